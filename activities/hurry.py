"""Many slow things asked at once, for no longer than somebody waits."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def each(ask: Callable[[T], None], of: Iterable[T], at_once: int, within_s: float) -> None:
    """Asks of each, in threads; returns when all have been asked or the time is over, whichever comes first.

    What is under way then goes on unheard and holds nobody up, the process's end neither; nothing more is begun.
    `ask` must not raise.
    """
    left: queue.SimpleQueue[T] = queue.SimpleQueue()
    for one in of:
        left.put(one)
    until = time.monotonic() + within_s

    def work() -> None:
        while time.monotonic() < until:
            try:
                one = left.get_nowait()
            except queue.Empty:
                return
            ask(one)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, left.qsize()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
