"""Writes of many deliveries at once become one transaction: the ledger's disk is the slowest thing on the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from activities.ports import Unreadable
from activities.storage.inbox import Item
from activities.storage.intake import IntakeStore, Seen
from activities.storage.said import Said
from medevac.events.event import HealthEvent
from worker.threads import Threads

log = logging.getLogger(__name__)

MOST_ROWS = 5_000
"""Of one transaction, so that no delivery waits long for the others'."""
MOST_PENDING = 100_000
"""Rows in memory; beyond it the ledger is too slow, and that must be said."""
REPEATS_S = 1.0
"""Repeats of one statement within this are one line, with their number."""
MOST_REPEATS = 10_000


@dataclass(slots=True)
class _Write:
    rows: Sequence[Seen]
    items: Sequence[Item]
    heard: Mapping[str, Said]
    written: asyncio.Future[None]

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.items)


class Writer:
    """Writes go in the order they came. Nothing is acknowledged before its transaction is."""

    def __init__(self, store: IntakeStore, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._pending: list[_Write] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._repeats: dict[tuple[str, ...], tuple[HealthEvent, str | None, str, int]] = {}
        self._repeating: asyncio.Task[None] | None = None

    async def write(
        self, rows: Sequence[Seen], items: Sequence[Item] = (), heard: Mapping[str, Said] | None = None
    ) -> None:
        """Returns once it is durable. Raises `Unreadable`, or what is wrong with these rows."""
        one = _Write(rows, items, heard or {}, asyncio.get_running_loop().create_future())
        if self._size + one.size > MOST_PENDING and self._size:
            raise Unreadable(f"{self._size} rows wait for the ledger already")
        self._pending.append(one)
        self._size += one.size
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        # Who gives up waiting (a disconnected sender) must not keep the others from being written.
        await asyncio.shield(one.written)

    def repeat(self, event: HealthEvent, node: str | None, said: str) -> None:
        """A line that nobody waits for: Temporal holds what it repeats. Lost when this process is killed."""
        key = (event.cluster or "", node or "", event.source, event.sender, event.dedupe_key, event.kind)
        count = self._repeats[key][3] if key in self._repeats else 0
        if count or len(self._repeats) < MOST_REPEATS:
            self._repeats[key] = event, node, said, count + 1
        if self._repeating is None or self._repeating.done():
            self._repeating = asyncio.create_task(self._flush_later())

    async def flush(self) -> None:
        """Writes the repeats that were counted so far. Raises `Unreadable`."""
        counted, self._repeats = self._repeats, {}
        if counted:
            await self.write([(e, n, said if c == 1 else f"{said}, {c} times") for e, n, said, c in counted.values()])

    async def close(self) -> None:
        """Writes all that waits, repeats too. What fails was logged, or told to who waits for it."""
        try:
            await self.flush()
        except Exception as error:
            log.error("the ledger did not take the lines of repeats: %s", error)
        if self._repeating is not None:
            self._repeating.cancel()
        if self._task is not None:
            await self._task

    async def _flush_later(self) -> None:
        await asyncio.sleep(REPEATS_S)
        try:
            await self.flush()
        except Exception as error:
            log.error("the ledger did not take the lines of repeats: %s", error)

    async def _drain(self) -> None:
        while self._pending:
            batch = self._next()
            try:
                await self._threads.run(self._commit, batch)
                _tell(batch, None)
            except Unreadable as error:
                _tell(batch, error)
            except Exception as error:
                if len(batch) == 1:
                    _tell(batch, error)
                    continue
                # One write's rows are wrong; the others' must not fall with it.
                log.exception("a batch of %d writes failed; each is written by itself", len(batch))
                for one in batch:
                    try:
                        await self._threads.run(self._commit, [one])
                        _tell([one], None)
                    except Exception as own:
                        _tell([one], own)

    def _next(self) -> list[_Write]:
        batch = [self._pending.pop(0)]
        size = batch[0].size
        while self._pending and size + self._pending[0].size <= MOST_ROWS:
            batch.append(self._pending.pop(0))
            size += batch[-1].size
        self._size -= size
        return batch

    def _commit(self, batch: Sequence[_Write]) -> None:
        heard: dict[str, Said] = {}
        for write in batch:
            heard.update(write.heard)
        self._store.commit(
            [row for write in batch for row in write.rows], [item for write in batch for item in write.items], heard
        )


def _tell(batch: Sequence[_Write], error: Exception | None) -> None:
    for one in batch:
        if one.written.done():
            continue
        if error is None:
            one.written.set_result(None)
        else:
            one.written.set_exception(error)
            # Nobody may be left who waits for it.
            one.written.exception()
