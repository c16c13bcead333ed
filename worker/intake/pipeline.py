"""One delivery's way to the workflows. Nothing above it knows Temporal, nothing below it knows a sender."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from activities.storage.dwells import Dwells, State
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults import catalogue
from medevac.faults.threshold import Dwell, Threshold, judge
from medevac.model import Model
from medevac.policy.policy import Policy
from medevac.policy.routing import Route, classified, route
from worker import metrics
from worker.engine import Engine, Unavailable
from worker.intake.fold import Fold
from worker.intake.inventory import Found, Inventory, NotFound
from worker.stores import Stores
from worker.threads import Threads

log = logging.getLogger(__name__)

NODES_AT_ONCE = 20
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


class _Held(StrEnum):
    TEMPORAL = "temporal"
    LEDGER = "ledger"


class Intake:
    """`take` is the only way in: the gateway's deliveries, and later the queue's and the watcher's."""

    def __init__(self, *, inventory: Inventory, stores: Stores, engine: Engine, fold: Fold, threads: Threads) -> None:
        self._inventory = inventory
        self._stores = stores
        self._engine = engine
        self._fold = fold
        self._threads = threads

    async def take(self, events: Iterable[HealthEvent], clusters: Sequence[str], now: datetime) -> list[PartResult]:
        """One result an event, in order. Events of one node keep their order; nodes go side by side.

        `clusters` are those that the sender may speak for.
        """
        listed = list(events)
        try:
            policy, found = await self._threads.run(self._resolve, listed, clusters)
            listed = [classified(catalogue.classify(event), policy) for event in listed]
        except Exception as error:
            log.exception("a delivery could not be resolved")
            return [_result(event, Outcome.UNAVAILABLE, f"cannot be resolved now: {error}") for event in listed]

        lanes: dict[tuple[str, str], list[int]] = {}
        results: dict[int, tuple[PartResult, _Held]] = {}
        for i, where in enumerate(found):
            if isinstance(where, Found):
                listed[i] = listed[i].model_copy(update={"cluster": where.cluster})
                lanes.setdefault((where.cluster, where.node.name), []).append(i)
            else:
                outcome = Outcome.REFUSED if where.forbidden else Outcome.UNKNOWN_NODE
                results[i] = _result(listed[i], outcome, where.text), _Held.LEDGER
        slots = asyncio.Semaphore(NODES_AT_ONCE)

        async def lane(cluster: str, node: str, indexes: list[int]) -> None:
            async with slots:
                for i in indexes:
                    listed[i], outcome, reason, held = await self._deliver(listed[i], cluster, node, policy, now)
                    results[i] = _result(listed[i], outcome, reason, cluster, node), held

        await asyncio.gather(*(lane(*where, indexes) for where, indexes in lanes.items()))
        return await self._written(listed, [results[i] for i in range(len(listed))])

    def _resolve(self, events: Sequence[HealthEvent], clusters: Sequence[str]) -> tuple[Policy, list[Found | NotFound]]:
        policy = self._stores.policies.active().policy
        return policy, [self._inventory.resolve(event.subject, event.cluster, clusters) for event in events]

    async def _deliver(
        self, event: HealthEvent, cluster: str, node: str, policy: Policy, now: datetime
    ) -> tuple[HealthEvent, Outcome, str, _Held]:
        reason = ""
        try:
            if event.kind is Kind.MEASUREMENT:
                judged = await self._threads.run(judge_all, self._stores.dwells, event, cluster, node, policy, now)
                if judged is None:
                    return event, Outcome.RECORDED, "no threshold is crossed", _Held.LEDGER
                event, reason = classified(judged, policy), judged.summary
            if event.kind in (Kind.TEST, Kind.HANDSHAKE):
                return event, Outcome.RECORDED, f"a {event.kind} asks for nothing", _Held.LEDGER
            return await self._signal(event, cluster, node, policy, now, reason)
        except Unavailable as error:
            return event, Outcome.UNAVAILABLE, f"the workflow engine does not answer: {error}", _Held.LEDGER
        except Exception as error:
            log.exception("an event could not be taken")
            return event, Outcome.UNAVAILABLE, f"cannot be taken now: {type(error).__name__}", _Held.LEDGER

    async def _signal(
        self, event: HealthEvent, cluster: str, node: str, policy: Policy, now: datetime, reason: str
    ) -> tuple[HealthEvent, Outcome, str, _Held]:
        is_open = await self._threads.run(self._is_open, cluster, node)
        if not is_open and await self._threads.run(self._of_an_earlier_boot, event, cluster, node):
            return event, Outcome.RECORDED, "happened on an earlier boot of the node", _Held.LEDGER
        at = now.timestamp()
        opens = event.kind is not Kind.RECOVERED and route(event, policy) is Route.INCIDENT
        if self._fold.repeats(cluster, node, event, at, lambda: is_open or not opens):
            return event, Outcome.JOINED, "a repeat, already signalled", _Held.LEDGER
        if opens:
            await self._engine.report(cluster, node, event)
            self._fold.signalled(cluster, node, event, at)
            return event, Outcome.JOINED if is_open else Outcome.ACCEPTED, reason, _Held.TEMPORAL
        # The ledger may lag behind a fault that was signalled a moment ago; a clear must not be lost to that.
        if (is_open or event.kind is Kind.RECOVERED) and await self._engine.join(cluster, node, event):
            self._fold.signalled(cluster, node, event, at)
            return event, Outcome.JOINED, reason, _Held.TEMPORAL
        return event, Outcome.RECORDED, reason or "opens no incident", _Held.LEDGER

    def _is_open(self, cluster: str, node: str) -> bool:
        return bool(self._stores.ledger.incidents(open_only=True, cluster=cluster, node=node, limit=1))

    def _of_an_earlier_boot(self, event: HealthEvent, cluster: str, node: str) -> bool:
        """A log line sent once more after a repair is no new fault. Only a fresh read of the boot can tell."""
        if event.statement is not Statement.EDGE or event.boot_id is None:
            return False
        boot_id = self._inventory.boot_id(cluster, node)
        return boot_id is not None and boot_id != event.boot_id

    async def _written(
        self, events: Sequence[HealthEvent], results: Sequence[tuple[PartResult, _Held]]
    ) -> list[PartResult]:
        """The ledger's lines of what was seen. Where it alone holds an event, a failed write is not held."""
        rows = [
            (event, result.node, _said(result))
            for event, (result, _) in zip(events, results, strict=True)
            if result.outcome is not Outcome.UNAVAILABLE
        ]
        waits = any(held is _Held.LEDGER for _, held in results)
        written = True
        if rows:
            write = asyncio.ensure_future(self._threads.run(self._stores.ledger.see_events, rows))
            try:
                await asyncio.wait_for(asyncio.shield(write), None if waits else LEDGER_GRACE_S)
            except TimeoutError:
                write.add_done_callback(_log_failure)
            except Exception:
                log.exception("the ledger did not take %d events", len(rows))
                written = False
        final = []
        for event, (result, held) in zip(events, results, strict=True):
            if not written and held is _Held.LEDGER and result.outcome is not Outcome.UNAVAILABLE:
                result = result.model_copy(
                    update={"outcome": Outcome.UNAVAILABLE, "reason": "the ledger cannot be written now"}
                )
            metrics.EVENTS.labels(event.source, result.outcome).inc()
            final.append(result)
        return final


def judge_all(
    dwells: Dwells, event: HealthEvent, cluster: str, node: str, policy: Policy, now: datetime
) -> HealthEvent | None:
    """The fault, or its clearing, that a measurement makes by the policy's thresholds; the worst where several do."""
    said: list[HealthEvent] = []
    name = event.measurement.name if event.measurement else ""
    entity = event.entities[0] if event.entities else ""
    for threshold in policy.thresholds:
        if threshold.name != name:
            continue

        def step(state: State | None, threshold: Threshold = threshold) -> tuple[State, HealthEvent | None]:
            dwell, outcome = judge(threshold, Dwell.model_validate(state) if state else None, event, now)
            return dwell.model_dump(mode="json"), outcome

        key = f"{threshold.name}>{threshold.above:g}:{threshold.fault}"
        if (outcome := dwells.update(cluster, node, entity, key, step)) is not None:
            said.append(outcome)
    return min(
        said, key=lambda e: (e.kind is Kind.RECOVERED, e.fault_class.rank if e.fault_class else 99), default=None
    )


def _result(
    event: HealthEvent, outcome: Outcome, reason: str, cluster: str | None = None, node: str | None = None
) -> PartResult:
    return PartResult(
        id=event.id,
        subject=event.subject,
        fault=event.fault,
        outcome=outcome,
        reason=reason,
        cluster=cluster or event.cluster,
        node=node,
    )


def _said(result: PartResult) -> str:
    return f"{result.outcome}: {result.reason}" if result.reason else str(result.outcome)


def _log_failure(write: asyncio.Future[None]) -> None:
    if not write.cancelled() and write.exception() is not None:
        log.error("the ledger did not take events that Temporal holds", exc_info=write.exception())
