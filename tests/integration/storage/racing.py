"""Many callers at the same moment, in threads and in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def race(calls: Sequence[Callable[[], T]]) -> list[T]:
    """All at once; their answers in order. The first error is raised."""
    barrier = threading.Barrier(len(calls))
    answers: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            barrier.wait()
            answers[i] = calls[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [answers[i] for i in range(len(calls))]


def in_processes(script: str, arguments: Sequence[Sequence[str]]) -> list[object]:
    """Runs the script once for each list of arguments, all at once; what each printed last, as JSON."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, *each], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for each in arguments
    ]
    ended = [(process, *process.communicate(timeout=400)) for process in running]
    for process, _, err in ended:
        assert process.returncode == 0, err
    return [json.loads(out.strip().splitlines()[-1]) for _, out, _ in ended]
