"""Brings what the inbox holds to Temporal: each lane in its order, no lane before another. One process leads.

An item leaves the inbox only after Temporal, or the ledger's line, has it. Killed in between, it is brought again, and
the workflow drops an event that it has heard.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from activities.ports import Unreadable
from activities.storage.inbox import Item
from activities.storage.intake import Seen
from medevac.policy.policy import Policy
from worker import metrics
from worker.engine import Unavailable
from worker.intake.held import UNKNOWN_EVERY, Held
from worker.intake.inventory import Found, Inventory
from worker.intake.looks import Question
from worker.intake.part import Outcome, Part
from worker.intake.pipeline import Intake, TooMuch
from worker.intake.resolving import opens
from worker.stores import Stores
from worker.threads import Threads

log = logging.getLogger(__name__)

EVERY_S = 1.0
LEAD = "inbox"
LEAD_FOR_S = 15.0
LANES_AT_ONCE = 16
PASS_S = 0.5
"""How long lanes are begun before what was brought on leaves the inbox; until then new events queue up behind it."""
AGAIN_AFTER = timedelta(seconds=5)
"""A lane that failed waits this long, so that the others get their turn."""
MOST_TRIES = 50
"""Of one item while others pass; then a person must look at it."""


@dataclass(slots=True)
class _Pass:
    done: list[int] = field(default_factory=list)
    rows: list[Seen] = field(default_factory=list)
    again: dict[timedelta, set[str]] = field(default_factory=dict)

    def later(self, lane: str, wait: timedelta) -> None:
        self.again.setdefault(wait, set()).add(lane)


class Drainer:
    def __init__(
        self,
        intake: Intake,
        inventory: Inventory,
        stores: Stores,
        threads: Threads,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        every_s: float = EVERY_S,
    ) -> None:
        self._intake = intake
        self._inventory = inventory
        self._stores = stores
        self._threads = threads
        self._now = now
        self._every_s = every_s
        self._me = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._wake = asyncio.Event()
        self._tries: dict[int, tuple[int, int]] = {}
        """Of items that failed: how often, and how many had passed when the first try failed."""
        self._passed = 0
        intake.on_held = self._wake.set

    async def run(self) -> None:
        """Until cancelled; then the next process may lead at once."""
        trouble = ""
        try:
            while True:
                try:
                    while await self.once():
                        pass
                    trouble = ""
                except Unreadable as error:
                    if not trouble:
                        log.error("the inbox can't be drained: %s", error)
                    trouble = str(error)
                except Exception:
                    log.exception("draining the inbox failed")
                self._wake.clear()
                with suppress(TimeoutError):
                    # Something new is looked at soon, but not in the same breath: it may be many.
                    await asyncio.wait_for(self._wake.wait(), self._every_s)
                    await asyncio.sleep(self._every_s / 10)
        finally:
            with suppress(Unreadable):
                self._stores.leaders.resign(LEAD, self._me)

    async def once(self) -> bool:
        """True when it got on and there may be more."""
        now = self._now()
        if not await self._threads.run(self._stores.leaders.lead, LEAD, self._me, now, LEAD_FOR_S):
            return False
        count, oldest = await self._threads.run(self._stores.inbox.waiting)
        metrics.INBOX_WAITING.set(count)
        metrics.INBOX_OLDEST_SECONDS.set((now - oldest).total_seconds() if oldest else 0)
        if not count or self._intake.resting:
            return False
        lanes: dict[str, list[Item]] = {}
        for item in await self._threads.run(self._stores.inbox.heads, now):
            lanes.setdefault(item.lane, []).append(item)
        policy = await self._threads.run(self._intake.policy)
        loop = asyncio.get_running_loop()
        made, began = _Pass(), loop.time()
        todo = deque(lanes.items())

        async def work() -> None:
            while todo and not self._intake.resting and loop.time() - began < PASS_S:
                lane, items = todo.popleft()
                await self._lane(lane, items, made, policy, now)

        try:
            await asyncio.gather(*(work() for _ in range(min(LANES_AT_ONCE, len(lanes)))))
        finally:
            # Also when it is stopped here: what Temporal has need not be brought to it again.
            await asyncio.shield(self._threads.run(self._settle, made, now))
        return bool(made.done) and not self._intake.resting

    def _settle(self, made: _Pass, now: datetime) -> None:
        for id in made.done:
            self._tries.pop(id, None)
        if made.done or made.rows:
            self._stores.intake.settle(made.done, made.rows)
        for wait, lanes in made.again.items():
            self._stores.inbox.postpone(lanes, now + wait)

    async def _lane(self, lane: str, items: Sequence[Item], made: _Pass, policy: Policy, now: datetime) -> None:
        is_open: dict[str, bool] = {}
        for item in items:
            try:
                held = Held.model_validate(item.body)
                part = await self._part(held, is_open, policy, now)
                if part is None:
                    made.later(lane, UNKNOWN_EVERY)
                    return
                if part.outcome is None:
                    async with self._intake.lanes.turn(part.lane):
                        await self._intake.signal(part)
                    is_open[part.lane] = bool(part.is_open or part.opened)
            except TooMuch:
                return
            except Exception as error:
                tries, passed = self._tries.get(item.id, (0, self._passed))
                self._tries[item.id] = tries + 1, passed
                if not tries and not isinstance(error, Unavailable):
                    log.exception("item %d of the inbox could not be brought on", item.id)
                if tries + 1 < MOST_TRIES or passed == self._passed:
                    made.later(lane, AGAIN_AFTER)
                    return
                await self._give_up(item, error, now)
                made.done.append(item.id)
                continue
            self._passed += 1
            made.done.append(item.id)
            made.rows.append((part.event, part.node or None, f"from the inbox: {part.said}"))
            metrics.INBOX_DRAINED.labels(str(part.outcome)).inc()

    async def _part(self, held: Held, is_open: dict[str, bool], policy: Policy, now: datetime) -> Part | None:
        """None: its node is still unknown, and it is too early to give up."""
        part = Part(held.event, held.cluster or "", held.node or "")
        if not part.node:
            event = held.event
            where = await self._threads.run(
                self._inventory.resolve, event.subject, event.cluster, held.clusters, event.gpu_ids
            )
            if not isinstance(where, Found):
                if held.until is not None and now < held.until:
                    return None
                part.settle(Outcome.UNKNOWN_NODE, f"{where.text}, for as long as it was tried")
                return part
            part.cluster, part.node = where.cluster, where.node.name
            part.event = event.model_copy(update={"cluster": part.cluster})
        if part.lane not in is_open:
            node, nothing = (part.cluster, part.node), frozenset[str]()
            glance = await self._intake.looks.look(Question(frozenset({node}), nothing, nothing, patient=False))
            is_open[part.lane] = node in glance.open
        part.is_open, part.opens = is_open[part.lane], opens(part.event, policy)
        return part

    async def _give_up(self, item: Item, error: Exception, now: datetime) -> None:
        held = Held.model_validate(item.body)
        body = held.event.model_dump_json(exclude_defaults=True).encode()
        reason = f"event {held.event.id}: {type(error).__name__} {MOST_TRIES} times over"
        await self._threads.run(
            self._stores.dead_letters.put, held.event.source, held.event.sender, "stuck", reason, {}, body, now
        )
        metrics.INBOX_DRAINED.labels("stuck").inc()
        metrics.REFUSALS.labels(held.event.source, "stuck").inc()
