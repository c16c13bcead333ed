"""One delivery's way to the workflows. Nothing above it knows Temporal, nothing below it knows a sender.

A part is taken when Temporal holds it, or when the ledger's database does: as a line, where nothing is to be done
about it, or in the inbox, from where the drainer brings it to Temporal. Temporal has one second for a delivery.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from activities.ports import Unreadable
from activities.storage.inbox import Item
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults import catalogue
from medevac.model import Model
from medevac.policy.policy import Policy
from medevac.policy.routing import Route, classified, route
from worker import metrics
from worker.engine import Engine, Unavailable
from worker.intake.fold import Fold
from worker.intake.held import UNKNOWN_FOR, WORTH_KEEPING, Held, Strangers, item_of, stranger_lane
from worker.intake.inventory import Found, Inventory, NotFound
from worker.intake.lanes import Lanes, lane_of
from worker.intake.measured import judge_all
from worker.intake.writer import Writer
from worker.stores import Stores
from worker.threads import Threads

log = logging.getLogger(__name__)

NODES_AT_ONCE = 8
"""Of one delivery, so that a large one leaves room beside it."""
TEMPORAL_S = 1.0
"""What Temporal doesn't hold of a delivery within this goes to the inbox."""
REST_S = 2.0
"""How long Temporal isn't asked after it didn't answer."""
POLICY_S = 1.0
LEDGER_GRACE_S = 0.5
"""How long a written-down signal may wait for its ledger line; the signal itself is already held by Temporal."""


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    """Held durably; opens an incident, or starts one that the workflow decides about."""
    JOINED = "joined"
    RECORDED = "recorded"
    UNKNOWN_NODE = "unknown_node"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    """Not held. The sender must deliver again."""


class PartResult(Model):
    id: str
    subject: str | None = None
    fault: str | None = None
    outcome: Outcome
    reason: str = ""
    cluster: str | None = None
    node: str | None = None


@dataclass(slots=True)
class Part:
    """One event on its way. `held` is where a 202 finds it again."""

    event: HealthEvent
    cluster: str = ""
    node: str = ""
    is_open: bool | None = None
    """Whether the node has an incident; None where the ledger couldn't say."""
    waits_in: str = ""
    """Lane whose earlier items it must not overtake."""
    opened: bool = False
    outcome: Outcome | None = None
    reason: str = ""
    in_temporal: bool = False
    repeat: bool = False
    item: Item | None = None

    def settle(self, outcome: Outcome, reason: str = "", *, in_temporal: bool = False) -> None:
        self.outcome, self.reason, self.in_temporal = outcome, reason, in_temporal

    @property
    def lane(self) -> str:
        return lane_of(self.cluster, self.node)

    @property
    def said(self) -> str:
        return f"{self.outcome}: {self.reason}" if self.reason else str(self.outcome)

    @property
    def result(self) -> PartResult:
        return PartResult(
            id=self.event.id,
            subject=self.event.subject,
            fault=self.event.fault,
            outcome=self.outcome or Outcome.UNAVAILABLE,
            reason=self.reason,
            cluster=self.cluster or self.event.cluster,
            node=self.node or None,
        )


class TooMuch(Exception):
    """The node has said more than its workflow is asked to hear at once."""


class Intake:
    """`take` is the only way in: for the gateway's deliveries, the queue's, the watcher's and the poller's."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        stores: Stores,
        engine: Engine,
        fold: Fold,
        threads: Threads,
        lanes: Lanes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inventory = inventory
        self._stores = stores
        self._engine = engine
        self._fold = fold
        self._threads = threads
        self.lanes = lanes or Lanes()
        self._writer = Writer(stores.intake, threads)
        self._clock = clock
        self._policy: Policy | None = None
        self._policy_at = -POLICY_S
        self._resting_until = 0.0
        self._strangers = Strangers()
        self.on_held: Callable[[], None] = lambda: None
        """Called when something went to the inbox."""

    @property
    def resting(self) -> bool:
        """Temporal didn't answer a moment ago; it isn't asked again just yet."""
        return self._clock() < self._resting_until

    async def take(self, events: Iterable[HealthEvent], clusters: Sequence[str], now: datetime) -> list[PartResult]:
        """One result an event, in order. Events of one node keep their order; nodes go side by side.

        `clusters` are those that the sender may speak for.
        """
        listed = list(events)
        try:
            policy, parts = await self._threads.run(self._resolve, listed, clusters, now)
        except Exception as error:
            if not isinstance(error, Unreadable):
                log.exception("a delivery could not be resolved")
            unresolved = [Part(event) for event in listed]
            for part in unresolved:
                part.settle(Outcome.UNAVAILABLE, f"cannot be resolved now: {error}")
            return self._counted(unresolved)
        await self._signal_all([part for part in parts if part.outcome is None], policy, now)
        for part in parts:
            if part.outcome is None:
                self._to_inbox(part, clusters, now)
        await self._written(parts)
        return self._counted(parts)

    # -- who is meant ------------------------------------------------------------------------------------------

    def policy(self) -> Policy:
        """The active one, at most `POLICY_S` old; while the ledger can't be read, the one before. Blocking."""
        if self._policy is not None and self._clock() - self._policy_at < POLICY_S:
            return self._policy
        try:
            self._policy = self._stores.policies.active().policy
            self._policy_at = self._clock()
        except Unreadable:
            if self._policy is None:
                raise
        return self._policy

    def _resolve(
        self, events: Sequence[HealthEvent], clusters: Sequence[str], now: datetime
    ) -> tuple[Policy, list[Part]]:
        policy = self.policy()
        parts = []
        for event in events:
            part = Part(classified(catalogue.classify(event), policy))
            parts.append(part)
            if event.kind in (Kind.TEST, Kind.HANDSHAKE):
                part.settle(Outcome.RECORDED, f"a {event.kind} asks for nothing")
                continue
            where = self._inventory.resolve(event.subject, event.cluster, clusters)
            if isinstance(where, Found):
                part.cluster, part.node = where.cluster, where.node.name
            elif where.forbidden:
                part.settle(Outcome.REFUSED, where.text)
            else:
                self._unknown(part, where, clusters, now)
            if part.node and event.kind is Kind.MEASUREMENT:
                self._judge(part, policy, now)
            elif part.node and self._fold.just_said(part.cluster, part.node, part.event, now.timestamp()):
                part.event = part.event.model_copy(update={"cluster": part.cluster})
                self._repeated(part)
        self._look_around(parts, now)
        return policy, parts

    def _unknown(self, part: Part, where: NotFound, clusters: Sequence[str], now: datetime) -> None:
        event, reason = part.event, where.text
        if event.subject and event.kind in WORTH_KEEPING and self._strangers.admit(now):
            held = Held(event=event, clusters=tuple(clusters), until=now + UNKNOWN_FOR)
            part.item = item_of(held, stranger_lane(event), now)
            reason += f"; tried again for {UNKNOWN_FOR.seconds // 60} minutes"
        part.settle(Outcome.UNKNOWN_NODE, reason)

    def _judge(self, part: Part, policy: Policy, now: datetime) -> None:
        try:
            judged = judge_all(self._stores.dwells, part.event, part.cluster, part.node, policy, now)
        except Unreadable as error:
            part.settle(Outcome.UNAVAILABLE, f"the ledger does not answer: {error}")
            return
        if judged is None:
            part.settle(Outcome.RECORDED, "no threshold is crossed")
        else:
            part.event, part.reason = classified(judged, policy), judged.summary

    def _look_around(self, parts: Sequence[Part], now: datetime) -> None:
        """Which nodes have an incident, and behind what a part must wait. Without the ledger neither is known."""
        known = [part for part in parts if part.node and part.outcome is None]
        if not known:
            return
        # As its earlier events were held when nobody knew the node yet.
        strangers = [stranger_lane(part.event) for part in known]
        for part in known:
            part.event = part.event.model_copy(update={"cluster": part.cluster})
        try:
            glance = self._stores.intake.glance(
                {(part.cluster, part.node) for part in known}, {*strangers, *(part.lane for part in known)}
            )
        except Unreadable:
            return
        for part, stranger in zip(known, strangers, strict=True):
            lanes = (stranger, part.lane)
            part.is_open = (part.cluster, part.node) in glance.open
            if part.is_open:
                self._fold.seen_open(part.cluster, part.node, now.timestamp())
            part.waits_in = next((lane for lane in lanes if lane in glance.waiting), "")

    # -- to Temporal -------------------------------------------------------------------------------------------

    async def _signal_all(self, parts: Sequence[Part], policy: Policy, now: datetime) -> None:
        """Whatever has no outcome afterwards is not known to be held."""
        lanes: dict[str, list[Part]] = {}
        for part in parts:
            lanes.setdefault(part.lane, []).append(part)
        todo = deque(lanes.values())

        async def work() -> None:
            while todo and not self.resting:
                await self._lane(todo.popleft(), policy, now)

        if not lanes or self.resting:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(TEMPORAL_S):
                await asyncio.gather(*(work() for _ in range(min(NODES_AT_ONCE, len(lanes)))))

    async def _lane(self, parts: Sequence[Part], policy: Policy, now: datetime) -> None:
        """The parts of one node in their order. The first that must wait lets all behind it wait too."""
        async with self.lanes.turn(parts[0].lane):
            for i, part in enumerate(parts):
                if part.waits_in or self.resting:
                    return
                try:
                    await self.signal(part, policy, now)
                except (Unavailable, TooMuch):
                    return
                except Exception as error:
                    log.exception("an event could not be taken")
                    part.settle(Outcome.UNAVAILABLE, f"cannot be taken now: {type(error).__name__}")
                if part.opened:
                    for later in parts[i + 1 :]:
                        later.is_open = True

    async def signal(self, part: Part, policy: Policy, now: datetime) -> None:
        """Settles the part. Raises `Unavailable`, and `TooMuch` when the node's share is used up for now."""
        event, cluster, node, at = part.event, part.cluster, part.node, now.timestamp()
        opens = event.kind is not Kind.RECOVERED and route(event, policy) is Route.INCIDENT
        if self._fold.repeats(cluster, node, event, at, lambda: bool(part.is_open) or not opens):
            self._repeated(part)
            return
        if not part.is_open and await self._threads.run(self._of_an_earlier_boot, event, cluster, node):
            part.settle(Outcome.RECORDED, "happened on an earlier boot of the node")
            return
        # The ledger may lag behind a fault that was signalled a moment ago; a clear must not be lost to that.
        if not opens and part.is_open is False and event.kind is not Kind.RECOVERED:
            part.settle(Outcome.RECORDED, part.reason or "opens no incident")
            return
        if not self.lanes.may_signal(part.lane):
            raise TooMuch
        try:
            if opens:
                await self._engine.report(cluster, node, event)
                outcome = Outcome.JOINED if part.is_open else Outcome.ACCEPTED
            elif await self._engine.join(cluster, node, event):
                outcome = Outcome.JOINED
            else:
                part.settle(Outcome.RECORDED, part.reason or "opens no incident")
                return
        except Unavailable:
            self._resting_until = self._clock() + REST_S
            raise
        self._fold.signalled(cluster, node, event, at)
        part.opened = opens
        part.settle(outcome, part.reason, in_temporal=True)

    @staticmethod
    def _repeated(part: Part) -> None:
        part.settle(Outcome.JOINED, "a repeat, already signalled", in_temporal=True)
        part.repeat = True

    def _of_an_earlier_boot(self, event: HealthEvent, cluster: str, node: str) -> bool:
        """A log line sent once more after a repair is no new fault. Only a fresh read of the boot can tell."""
        if event.statement is not Statement.EDGE or event.boot_id is None:
            return False
        boot_id = self._inventory.boot_id(cluster, node)
        return boot_id is not None and boot_id != event.boot_id

    # -- to the ledger's database ------------------------------------------------------------------------------

    def _to_inbox(self, part: Part, clusters: Sequence[str], now: datetime) -> None:
        held = Held(event=part.event, clusters=tuple(clusters), cluster=part.cluster, node=part.node)
        part.item = item_of(held, part.waits_in or part.lane, now)
        part.settle(Outcome.ACCEPTED, "held in the inbox until the workflow engine takes it")
        self._fold.forget(part.cluster, part.node, part.event)

    async def _written(self, parts: Sequence[Part]) -> None:
        """The ledger's lines and the inbox. What Temporal holds waits for them only a little."""
        kept = []
        for part in parts:
            if part.repeat:
                self._writer.repeat(part.event, part.node, part.said)
            elif part.outcome is not Outcome.UNAVAILABLE:
                kept.append(part)
        if not kept:
            return
        items = [part.item for part in kept if part.item is not None]
        write = asyncio.ensure_future(
            self._writer.write([(part.event, part.node or None, part.said) for part in kept], items)
        )
        waits = any(not part.in_temporal for part in kept)
        try:
            await asyncio.wait_for(asyncio.shield(write), None if waits else LEDGER_GRACE_S)
        except TimeoutError:
            write.add_done_callback(_log_failure)
        except Exception as error:
            log.error("the ledger did not take %d parts: %s", len(kept), error)
            for part in kept:
                if not part.in_temporal:
                    part.settle(Outcome.UNAVAILABLE, "the ledger cannot be written now")
        else:
            metrics.INBOX_HELD.inc(len(items))
            if items:
                self.on_held()

    async def flush(self) -> None:
        """The lines of repeats, which come a little later than the others. Raises `Unreadable`."""
        await self._writer.flush()

    @staticmethod
    def _counted(parts: Sequence[Part]) -> list[PartResult]:
        for part in parts:
            metrics.EVENTS.labels(part.event.source, part.result.outcome).inc()
        return [part.result for part in parts]


def _log_failure(write: asyncio.Future[None]) -> None:
    if not write.cancelled() and write.exception() is not None:
        log.error("the ledger did not take events that Temporal holds: %s", write.exception())
