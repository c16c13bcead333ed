"""Answers that are kept for a moment, so that one call serves all who need no fresher one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
KEPT = 1024


class Recent(Generic[T]):
    """By a key, for `age_s` from when the question was put. Thread-safe."""

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._kept: dict[str, tuple[float, T]] = {}
        self._lock = threading.Lock()

    def get(self, key: str = "") -> T | None:
        with self._lock:
            at, found = self._kept.get(key, (float("-inf"), None))
        return found if time.monotonic() - at < self._age_s else None

    def ask(self, question: Callable[[], T], key: str = "") -> T:
        """A new answer, which is kept."""
        began, found = time.monotonic(), question()
        with self._lock:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = (began, found)
        return found

    def drop(self, key: str = "") -> None:
        with self._lock:
            self._kept.pop(key, None)
