"""What is known about a node when people are asked about it: from the ledger, the guard, the policy and the cluster.

Whatever can't be read in time is left out and named; a question is never held back for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from activities.failures import Bounded, redact
from activities.ports import Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.changed import Changed
from activities.storage.ledger import LedgerLine
from activities.storage.policies import NoPolicy
from activities.storage.seen import SeenEvent
from medevac.approvals.approval import ApprovalView
from medevac.events.event import HealthEvent
from medevac.fleet.census import Census, domain_key, node_key
from medevac.fleet.guard_queue import allowed_at_once, units
from medevac.fleet.guard_state import Lease
from medevac.fleet.node import Node, Workload
from medevac.incident import IncidentView
from medevac.policy.cost import loss
from medevac.policy.plan import PastIncident
from medevac.policy.policy import Policy
from medevac.policy.settings import Checkpoint
from medevac.telling.facts import Budget, Facts, Job
from worker.stores import Stores

log = logging.getLogger(__name__)

T = TypeVar("T")
READ_S = 2.0
MOST = 20
"""Waiters of one question whose nodes are looked at one by one; of the others only what one reading tells of all."""
LISTING_S = 30.0
"""A cluster's nodes are listed at most this often: where they stand changes seldom, and each vote asks anew."""
JOBS = "its jobs"
EVIDENCE = 3
READ_ALL_S = 4.0
"""Of clusters, for one question: a person waits for it."""
LOOK_BACK = timedelta(hours=1)
"""Before the incident opened: what opened it was heard a moment earlier."""


@dataclass(frozen=True, slots=True)
class _Now:
    """Read once for all waiters of a question."""

    policy: Policy
    leases: list[Lease]
    until_s: float
    """By the monotonic clock: what isn't read by then isn't waited for."""


class FactsTaker:
    def __init__(self, registry: Registry, stores: Stores, bounded: Bounded, census: Callable[[str], Census]) -> None:
        """`census` may raise `Unreadable`."""
        self._registry = registry
        self._stores = stores
        self._bounded = bounded
        self._census = census
        self._changed = Changed(stores.database)
        self._listed: dict[str, tuple[float, dict[str, Node]]] = {}

    def of(self, view: ApprovalView, now: datetime) -> dict[str, Facts]:
        """By incident. Raises `Unreadable` only where the ledger itself can't be read."""
        try:
            policy = self._stores.policies.active().policy
        except NoPolicy as error:
            raise Unreadable(str(error)) from error
        around = _Now(policy, self._stores.guard.leases(), time.monotonic() + READ_ALL_S)
        others = self._together([waiter.incident for waiter in view.waiters[MOST:]], around, now)
        taken = ((waiter.incident, self._one(waiter.incident, around, now)) for waiter in view.waiters[:MOST])
        return {incident: facts for incident, facts in taken if facts is not None} | others

    def _together(self, ids: Sequence[str], around: _Now, now: datetime) -> dict[str, Facts]:
        """What the ledger and one listing of their clusters' nodes tell of many; nobody asks for the jobs of each."""
        views = self._changed.views(ids) if ids else {}
        if not views:
            return {}
        nodes = {cluster: self._nodes(cluster, around) for cluster in {view.cluster for view in views.values()}}
        machines = [view.machine_id for view in views.values() if view.machine_id]
        past = self._stores.ledger.past_of(machines, views, now)
        return {
            id: self._brief(view, nodes[view.cluster].get(view.node), past.get(view.machine_id or ""), around.policy)
            for id, view in views.items()
        }

    def _brief(
        self, view: IncidentView, found: Node | None, past: Sequence[PastIncident] | None, policy: Policy
    ) -> Facts:
        return _of(
            view,
            policy.place(found) if found else None,
            past=_past(past or ()),
            past_read=view.machine_id is not None,
            jobs_read=False,
        )

    def _nodes(self, cluster: str, around: _Now) -> dict[str, Node]:
        """Those of a moment ago where they can't be listed now; empty where they never could."""
        at, known = self._listed.get(cluster, (float("-inf"), {}))
        if time.monotonic() - at < LISTING_S:
            return known
        left_s = min(READ_S, around.until_s - time.monotonic())
        try:
            listed = self._bounded.call(max(left_s, 0.0), lambda: list(self._registry.cluster(cluster).nodes()))
        except (Unreadable, NotConfigured) as error:
            # One that is too slow must not take its time from every card.
            log.warning("the nodes of %s can't be listed: %s", cluster, error)
        else:
            known = {node.name: node for node in listed}
        self._listed[cluster] = (time.monotonic(), known)
        return known

    def teams(self, cluster: str, node: str) -> tuple[Job, ...]:
        """Whose jobs are on the node. Raises `Unreadable`."""
        try:
            work = self._bounded.call(READ_S, self._registry.cluster(cluster).workloads, node)
        except NotConfigured:
            return ()
        return tuple(_job(one) for one in work)

    def _one(self, incident: str, around: _Now, now: datetime) -> Facts | None:
        """None for what is no incident: a campaign asks for itself, and says all in its own text."""
        view = self._stores.ledger.incident(incident)
        if view is None:
            return None
        lines = self._stores.ledger.lines(incident)
        since = view.opened_at - LOOK_BACK
        heard = self._stores.ledger.heard_of(view.cluster, view.node, since)
        unread: list[str] = []

        def read(what: str, call: Callable[[], T], otherwise: T) -> T:
            try:
                left_s = around.until_s - time.monotonic()
                return self._bounded.call(max(min(READ_S, left_s), 0.0), call)
            except (Unreadable, NotConfigured) as error:
                unread.append(f"{what}: {redact(str(error), 200)}")
            except Exception as error:
                log.warning("%s of %s can't be read", what, view.node, exc_info=True)
                unread.append(f"{what}: {type(error).__name__}")
            return otherwise

        found = read("the node", lambda: self._registry.cluster(view.cluster).node(view.node), None)
        work = read(JOBS, lambda: self._registry.cluster(view.cluster).workloads(view.node), list[Workload]())
        jobs_read = not any(what.startswith(JOBS) for what in unread)
        census = read("the cluster's size", lambda: self._census(view.cluster), None)
        node = around.policy.place(found) if found else None
        history = self._stores.ledger.history(incident, view.cluster, view.node, view.machine_id, now)
        tried = sum(1 for one in history.attempts if one.rung == view.rung)
        return _of(
            view,
            node,
            entities=_entities(heard, view.fault),
            evidence=_evidence(heard, lines),
            jobs=tuple(_job(one, around.policy.checkpoints, now) for one in work),
            jobs_read=jobs_read,
            attempt=tried + 1 if view.rung else 0,
            of=max(around.policy.attempts.same_rung, tried + 1),
            budgets=_budgets(around, node, census),
            spares=census.spares.get(domain_key("pool", node.domains["pool"])) if census and node else None,
            past=_past(history.incidents),
            unreadable="; ".join(unread),
        )


def _of(view: IncidentView, node: Node | None, **more: Any) -> Facts:
    """What the incident itself says and where its node stands, and `more`."""
    machine = node.machine if node else None
    return Facts(
        cluster=view.cluster,
        node=view.node,
        rack=node.topology.get("rack", "") if node else "",
        pool=view.pool or (node.pool if node else None) or "",
        provider=machine.provider if machine else "",
        machine_id=view.machine_id or (machine.id if machine else ""),
        serial=(machine.serial or "") if machine else "",
        fault=view.fault or "",
        fault_class=str(view.fault_class or ""),
        first_seen=view.opened_at,
        rung=view.rung or "",
        **more,
    )


def _budgets(around: _Now, node: Node | None, census: Census | None) -> tuple[Budget, ...]:
    if node is None or census is None:
        return ()
    made = []
    domains, me = around.policy.domains(node), node_key(node.cluster, node.name)
    for kind, share in around.policy.limits.at_once.items():
        if kind not in domains:
            continue
        key = domain_key(kind, domains[kind])
        here = [lease for lease in around.leases if lease.domains.get(kind) == key]
        others = census.out.get(key, frozenset()) - {lease.node_key for lease in here} - {me}
        limit = allowed_at_once(share, census.size(key))
        made.append(Budget(domain=f"{kind} {domains[kind]}", used=len(units(kind, here)), limit=limit, out=len(others)))
    return tuple(made)


def _past(incidents: Sequence[PastIncident]) -> tuple[str, ...]:
    """`incidents` oldest first."""
    return tuple(f"{one.opened_at:%Y-%m-%d} {one.fault}: {one.end or 'open'}" for one in reversed(incidents))


def _job(work: Workload, checkpoints: tuple[Checkpoint, ...] = (), now: datetime | None = None) -> Job:
    """`now`: when what it would lose is reckoned; unset, it isn't."""
    lost = loss(work, checkpoints, now).words if now else ""
    return Job(name=work.name, owner=work.owner, gpus=work.gpus, lost=lost, lost_at=now)


def _evidence(heard: Iterable[SeenEvent], lines: Iterable[LedgerLine]) -> tuple[str, ...]:
    """What was said of it; where nobody is on record, what the incident noted."""
    said = [f"{one.at:%m-%d %H:%M:%S} UTC {one.event.source}: {_short(one.event)}" for one in heard]
    noted = [f"{line.at:%m-%d %H:%M:%S} UTC {line.text[:160]}" for line in lines if line.kind == "event"]
    return tuple(said[:EVIDENCE] or noted[: -EVIDENCE - 1 : -1])


def _short(event: HealthEvent) -> str:
    return (event.summary or event.fault or str(event.kind))[:140]


def _entities(heard: Iterable[SeenEvent], fault: str | None) -> tuple[str, ...]:
    named = (entity for one in heard if one.event.fault == fault for entity in one.event.entities)
    return tuple(dict.fromkeys(named))[:8]
