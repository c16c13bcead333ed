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
from datetime import datetime

from activities.ports import Unreadable
from activities.storage.intake import Glance
from activities.storage.said import Said
from medevac.events.event import HealthEvent, Kind
from medevac.policy.policy import Policy
from worker import metrics
from worker.engine import Engine, Unavailable
from worker.intake.fold import Fold, key_of, keys_of, words_of
from worker.intake.held import Held, item_of
from worker.intake.inventory import Inventory
from worker.intake.lanes import Lanes
from worker.intake.looks import Looks, Question
from worker.intake.part import Outcome, Part, PartResult
from worker.intake.resolving import INBOX, Resolver, names_a_boot
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
LEDGER_GRACE_S = 0.5
"""How long a written-down signal may wait for its ledger line; the signal itself is already held by Temporal."""
LARGE = 100
"""Parts of a delivery that is looked up by itself, so that small ones don't wait for it."""


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
        self._stores = stores
        self._engine = engine
        self._fold = fold
        self._threads = threads
        self._clock = clock
        self.lanes = lanes or Lanes()
        self._resolver = Resolver(inventory, stores, clock)
        self.looks = Looks(stores.intake, threads)
        self._writer = Writer(stores.intake, threads)
        self._resting_until = 0.0
        self.on_held: Callable[[], None] = lambda: None
        """Called when something went to the inbox."""

    @property
    def resting(self) -> bool:
        """Temporal didn't answer a moment ago; it isn't asked again just yet."""
        return self._clock() < self._resting_until

    def policy(self) -> Policy:
        """Blocking. Raises `Unreadable`."""
        return self._resolver.policy()

    async def take(self, events: Iterable[HealthEvent], clusters: Sequence[str], now: datetime) -> list[PartResult]:
        """One result an event, in order. Events of one node keep their order; nodes go side by side.

        `clusters` are those that the sender may speak for.
        """
        listed, began = list(events), self._clock()
        try:
            parts = self._resolver.at_once(listed, clusters)
            if parts is None:
                parts = await self._threads.run(self._resolver.resolve, listed, clusters, now)
        except Exception as error:
            if not isinstance(error, Unreadable):
                log.exception("a delivery could not be resolved")
            unresolved = [Part(event) for event in listed]
            for part in unresolved:
                part.settle(Outcome.UNAVAILABLE, f"cannot be resolved now: {error}")
            return self._counted(unresolved)
        await self._look_around([part for part in parts if part.node and part.outcome is None], now)
        await self._signal_all([part for part in parts if part.outcome is None], now, began)
        for part in parts:
            if part.outcome is None:
                self._to_inbox(part, clusters, now)
        await self._written(parts, now)
        return self._counted(parts)

    # -- what the ledger knows ---------------------------------------------------------------------------------

    async def _look_around(self, parts: Sequence[Part], now: datetime) -> None:
        """Which nodes have an incident, behind what a part must wait, and what was said already. Without the ledger
        none of it is known."""
        if not parts:
            return
        keys = [keys_of(part.cluster, part.node, part.event) for part in parts]
        question = Question(
            nodes=frozenset((part.cluster, part.node) for part in parts),
            lanes=frozenset(lane for part in parts for lane in (part.stranger, part.lane)),
            keys=frozenset(key for some in keys for key in some),
            patient=all(self._fold.expects(part.cluster, part.node, part.event) for part in parts),
        )
        try:
            glance = await self._glance(question, large=len(parts) > LARGE)
        except Unreadable:
            return
        news: set[str] = set()
        for part, own in zip(parts, keys, strict=True):
            part.open_since = glance.open.get((part.cluster, part.node))
            part.is_open = part.open_since is not None
            part.waits_in = next((lane for lane in (part.stranger, part.lane) if lane in glance.waiting), "")
            if news.isdisjoint(own) and self._fold.repeats(part, now, glance.said):
                _repeated(part)
            else:
                news.update(own)

    async def _glance(self, question: Question, large: bool) -> Glance:
        if large:
            return await self._threads.run(self._stores.intake.glance, question.nodes, question.lanes, question.keys)
        return await self.looks.look(question)

    # -- to Temporal -------------------------------------------------------------------------------------------

    async def _signal_all(self, parts: Sequence[Part], now: datetime, began: float) -> None:
        """Whatever has no outcome afterwards is not known to be held."""
        lanes: dict[str, list[Part]] = {}
        for part in parts:
            lanes.setdefault(part.lane, []).append(part)
        todo = deque(lanes.values())

        async def work() -> None:
            while todo and not self.resting:
                await self._lane(todo.popleft(), began)

        if not lanes or self.resting:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(TEMPORAL_S):
                await asyncio.gather(*(work() for _ in range(min(NODES_AT_ONCE, len(lanes)))))

    async def _lane(self, parts: Sequence[Part], began: float) -> None:
        """The parts of one node in their order. The first that must wait lets all behind it wait too."""
        async with self.lanes.turn(parts[0].lane):
            for i, part in enumerate(parts):
                if part.waits_in or self.resting:
                    return
                if self._fold.signalled_since(part.cluster, part.node, part.event, began):
                    _repeated(part)
                    continue
                try:
                    await self.signal(part)
                except (Unavailable, TooMuch):
                    return
                except Exception as error:
                    log.exception("an event could not be taken")
                    part.settle(Outcome.UNAVAILABLE, f"cannot be taken now: {type(error).__name__}")
                if part.opened:
                    for later in parts[i + 1 :]:
                        later.is_open = True

    async def signal(self, part: Part) -> None:
        """Settles the part. Raises `Unavailable`, and `TooMuch` when the node's share is used up for now."""
        event, cluster, node = part.event, part.cluster, part.node
        may_be_old = not part.is_open and names_a_boot(event)
        if may_be_old and await self._threads.run(self._resolver.of_an_earlier_boot, part):
            part.settle(Outcome.RECORDED, "happened on an earlier boot of the node")
            return
        # The ledger may lag behind a fault that was signalled a moment ago; a clear must not be lost to that.
        if not part.opens and part.is_open is False and event.kind is not Kind.RECOVERED:
            self._idle(part)
            return
        if not self.lanes.may_signal(part.lane):
            raise TooMuch
        try:
            if part.opens:
                await self._engine.report(cluster, node, event)
                outcome = Outcome.JOINED if part.is_open else Outcome.ACCEPTED
            elif await self._engine.join(cluster, node, event):
                outcome = Outcome.JOINED
            else:
                self._idle(part)
                return
        except Unavailable:
            self._resting_until = self._clock() + REST_S
            raise
        self._fold.signalled(cluster, node, event, self._clock())
        part.opened = part.opens
        part.settle(outcome, part.reason, in_temporal=True)

    def _idle(self, part: Part) -> None:
        part.settle(Outcome.RECORDED, part.reason or "opens no incident")
        part.idle = True
        self._fold.signalled(part.cluster, part.node, part.event, self._clock())

    # -- to the ledger's database ------------------------------------------------------------------------------

    def _to_inbox(self, part: Part, clusters: Sequence[str], now: datetime) -> None:
        held = Held(event=part.event, clusters=tuple(clusters), cluster=part.cluster, node=part.node)
        new_code = self._resolver.codes.is_new(part.lane, part.event.fault, now)
        part.item = item_of(held, part.waits_in or part.lane, now, new_code=new_code)
        part.settle(Outcome.ACCEPTED, INBOX)
        self._fold.forget(part.cluster, part.node, part.event)

    async def _written(self, parts: Sequence[Part], now: datetime) -> None:
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
        heard = {
            key_of(part.cluster, part.node, part.event): Said(words_of(part.event, idle=part.idle), now)
            for part in kept
            if _told(part)
        }
        write = asyncio.ensure_future(
            self._writer.write([(part.event, part.node or None, part.said) for part in kept], items, heard)
        )
        waits = any(not part.in_temporal for part in kept)
        try:
            await asyncio.wait_for(asyncio.shield(write), None if waits else LEDGER_GRACE_S)
        except TimeoutError:
            write.add_done_callback(_log_failure)
        except Exception as error:
            log.error("the ledger did not take %d parts: %s", len(kept), error)
            for part in kept:
                if not part.in_temporal and not part.in_inbox:
                    part.settle(Outcome.UNAVAILABLE, "the ledger cannot be written now")
        else:
            metrics.INBOX_HELD.inc(len(items))
        if any(part.item is not None or part.in_inbox for part in kept):
            self.on_held()

    async def flush(self) -> None:
        """The lines of repeats, which come a little later than the others. Raises `Unreadable`."""
        await self._writer.flush()

    async def close(self) -> None:
        """Ends what was begun, once nothing more is taken."""
        await self._writer.close()

    @staticmethod
    def _counted(parts: Sequence[Part]) -> list[PartResult]:
        for part in parts:
            metrics.EVENTS.labels(part.event.source, part.result.outcome).inc()
        return [part.result for part in parts]


def _repeated(part: Part) -> None:
    if part.opens or part.is_open:
        part.settle(Outcome.JOINED, "a repeat, already signalled", in_temporal=True)
    else:
        part.settle(Outcome.RECORDED, "a repeat, already recorded", in_temporal=True)
    part.repeat = True


def _told(part: Part) -> bool:
    """Saying it again is a repeat: it is held, or there was nobody to tell."""
    return part.in_temporal or part.in_inbox or part.idle or (part.item is not None and bool(part.node))


def _log_failure(write: asyncio.Future[None]) -> None:
    if not write.cancelled() and write.exception() is not None:
        log.error("the ledger did not take events that Temporal holds: %s", write.exception())
