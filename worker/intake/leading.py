"""One process at a time: several may run, one speaks, and the next follows it within its claim's time.

The claim lies in the ledger, where the intake needs no further account. A process that was stopped and wakes up finds
its claim run out and begins anew. What it had just sent is a repeat of what its successor says, and folds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

from activities.ports import Unreadable
from activities.storage.leaders import Leaders
from worker import metrics
from worker.threads import Threads

log = logging.getLogger(__name__)

LEAD_S = 15.0
TROUBLE_S = 5.0


class Lead:
    def __init__(self, name: str, leaders: Leaders, threads: Threads, for_s: float = LEAD_S) -> None:
        self.name = name
        self._leaders = leaders
        self._threads = threads
        self._for_s = for_s
        self._me = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._until = float("-inf")
        metrics.LEADING.labels(name).set(0)

    @property
    def holds(self) -> bool:
        """Also asked right before something is said: a process that was stopped for long has lost its claim."""
        return time.monotonic() < self._until

    async def claim(self) -> bool:
        """Takes the claim, or renews it."""
        began = time.monotonic()
        try:
            mine = await self._threads.run(self._leaders.lead, self.name, self._me, datetime.now(UTC), self._for_s)
        except Unreadable as error:
            log.error("%s: who leads can't be told: %s", self.name, error)
            # Who can't renew a claim for want of a ledger loses it to nobody: no other can take it either.
            mine = self.holds
        self._until = began + self._for_s if mine else float("-inf")
        metrics.LEADING.labels(self.name).set(int(mine))
        return mine

    async def resign(self) -> None:
        self._until = float("-inf")
        metrics.LEADING.labels(self.name).set(0)
        with suppress(Unreadable):
            await self._threads.run(self._leaders.resign, self.name, self._me)

    async def lead(self, work: Callable[[asyncio.Event], Awaitable[None]], stop: asyncio.Event) -> None:
        """Runs `work` while this process leads, and anew each time that it comes to lead, until `stop`.

        `work` gets an event at which it must end. It is cancelled where the claim is lost.
        """
        try:
            while not stop.is_set():
                if await self.claim():
                    log.info("%s: this process leads", self.name)
                    await self._led(work, stop)
                else:
                    await pause(stop, self._for_s / 5)
        finally:
            await asyncio.shield(self.resign())

    async def _led(self, work: Callable[[asyncio.Event], Awaitable[None]], stop: asyncio.Event) -> None:
        working = asyncio.ensure_future(work(stop))
        try:
            while not working.done():
                await asyncio.wait([working], timeout=self._for_s / 3)
                if not working.done() and not await self.claim():
                    log.warning("%s: another process leads now", self.name)
                    return
        finally:
            working.cancel()
            (ended,) = await asyncio.gather(working, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("%s: begins anew after %s: %s", self.name, type(ended).__name__, ended, exc_info=ended)
            await pause(stop, TROUBLE_S)


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Until `stop`, or for so long."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
