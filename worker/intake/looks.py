"""What deliveries must know of the ledger, read for many of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from activities.storage.intake import Glance, IntakeStore
from worker.threads import Threads

T = TypeVar("T")

PATIENCE_S = 0.05
"""How long a look waits for others when nobody is in a hurry: a storm of repeats costs twenty looks a second."""


@dataclass(frozen=True, slots=True)
class Question:
    nodes: frozenset[tuple[str, str]]
    lanes: frozenset[str]
    keys: frozenset[str]
    patient: bool


@dataclass(slots=True)
class _Asked:
    questions: list[Question] = field(default_factory=list)
    answers: list[asyncio.Future[Glance]] = field(default_factory=list)


class Looks:
    """Every look begins after it was asked for; one at a time, each for all that wait."""

    def __init__(self, store: IntakeStore, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._asked = _Asked()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def look(self, question: Question) -> Glance:
        """Answers at least what was asked. Raises `Unreadable`."""
        answer: asyncio.Future[Glance] = asyncio.get_running_loop().create_future()
        self._asked.questions.append(question)
        self._asked.answers.append(answer)
        if not question.patient:
            self._hurry.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._asked.questions:
            if not self._hurry.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), PATIENCE_S)
            asked, self._asked = self._asked, _Asked()
            self._hurry.clear()
            try:
                glance = await self._threads.run(
                    self._store.glance,
                    _union(one.nodes for one in asked.questions),
                    _union(one.lanes for one in asked.questions),
                    _union(one.keys for one in asked.questions),
                )
            except Exception as error:
                for answer in asked.answers:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for answer in asked.answers:
                    if not answer.done():
                        answer.set_result(glance)


def _union(sets: Iterable[frozenset[T]]) -> frozenset[T]:
    empty: frozenset[T] = frozenset()
    return empty.union(*sets)
