"""Callers that come at the same time share one transaction: one lock, one commit, one answer each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from activities.ports import Unreadable

J = TypeVar("J")
MOST = 200


class Job(Generic[J]):
    """One caller's piece of work. Exactly one of `result` and `error` is set once it is `done`."""

    def __init__(self, work: J) -> None:
        self.work = work
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Batching(Generic[J]):
    """Whoever gets the turn does the work of all who wait. `run` answers every job of its batch, or raises for all."""

    def __init__(self, run: Callable[[list[Job[J]]], None], timeout_s: float, name: str = "the guard") -> None:
        self._run = run
        self._name = name
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting: list[Job[J]] = []

    def do(self, work: J) -> Any:
        """Raises what the work raised; `Unreadable` when no turn came in time (then it wasn't done)."""
        job = Job(work)
        with self._lock:
            self._waiting.append(job)
        if self._turn.acquire(timeout=self._timeout_s):
            try:
                while not job.done.is_set():
                    self._serve()
            finally:
                self._turn.release()
        elif self._gave_up(job):
            raise Unreadable(f"{self._name} had no turn within {self._timeout_s:g} s")
        elif not job.done.wait(self._timeout_s):
            raise Unreadable(f"{self._name} did not answer in time; asking again gives the same answer")
        if isinstance(job.error, Unreadable):
            raise Unreadable(str(job.error))  # one of its own for each caller: threads share the other one
        if job.error is not None:
            raise job.error
        return job.result

    def _serve(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            self._run(batch)
        except BaseException as error:
            for job in batch:
                job.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            for job in batch:
                job.done.set()

    def _gave_up(self, job: Job[J]) -> bool:
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                return True
            return False
