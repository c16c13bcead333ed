"""What would be done about an event, and why, touching nothing. Shared by `explain` and the policy's diff."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from activities.means import means
from activities.ports import HasOthers, Unreadable
from activities.registry import Registry
from activities.storage.ledger import Ledger
from medevac.events.event import HealthEvent, Kind
from medevac.faults import catalogue
from medevac.faults.faultset import FaultSet
from medevac.fleet.node import Node, Workload
from medevac.fleet.remediator import Remediator, Switch
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from medevac.policy.plan import History, Plan
from medevac.policy.planner import Context, plan
from medevac.policy.routing import Route, route
from worker.intake.inventory import Found, Inventory

INCIDENT = "explain"
"""Incident name of plans that are only looked at."""


class Explanation(Model):
    event: HealthEvent
    cluster: str | None = None
    node: str | None = None
    outcome: str
    """In words: `opens an incident`, `recorded`, `unknown node: ...`."""
    plan: Plan | None = None


class Explainer:
    """Reads the world and the ledger (where there is one), writes nowhere. Blocking."""

    def __init__(self, registry: Registry, version: PolicyVersion, ledger: Ledger | None = None) -> None:
        self._registry = registry
        self._version = version
        self._ledger = ledger
        self._inventory = Inventory(registry.clusters)

    def explain(self, events: Iterable[HealthEvent], now: datetime) -> list[Explanation]:
        """Events of one node add up, as they would in its incident."""
        explanations: list[Explanation] = []
        faults: dict[tuple[str, str], FaultSet] = {}
        for event in (catalogue.classify(event) for event in events):
            where = self._inventory.resolve(event.subject, event.cluster, gpus=event.gpu_ids)
            if not isinstance(where, Found):
                explanations.append(Explanation(event=event, outcome=f"unknown node: {where.text}"))
                continue
            place = (where.cluster, where.node.name)
            said = Explanation(event=event, cluster=place[0], node=place[1], outcome="")
            if event.kind is Kind.RECOVERED:
                outcome = "told to the node's incident, if one is open"
            elif event.kind is Kind.MEASUREMENT:
                outcome = "a measurement: feeds the policy's thresholds"
            elif event.kind in (Kind.TEST, Kind.HANDSHAKE) or route(event, self._version.policy) is Route.RECORD:
                outcome = "recorded, opens no incident"
            else:
                observed = faults.get(place, FaultSet()).observe(event, now)
                faults[place] = observed.faults
                planned = self.plan(where.node, observed.faults, now)
                said = said.model_copy(update={"plan": planned})
                outcome = f"incident: {in_words(planned)}"
            explanations.append(said.model_copy(update={"outcome": outcome}))
        return explanations

    def plan(self, node: Node, faults: FaultSet, now: datetime) -> Plan:
        return plan(self.context(node, faults, now), self._version, now)

    def context(
        self, node: Node, faults: FaultSet, now: datetime, incident: str = INCIDENT, opened_at: datetime | None = None
    ) -> Context:
        """What a plan for the node would be made from, as far as it can be known from here."""
        history = (
            self._ledger.history(incident, node.cluster, node.name, node.machine.id, now, pool=node.pool)
            if self._ledger
            else History()
        )
        return Context(
            incident=incident,
            n=1,
            cluster=node.cluster,
            node_name=node.name,
            node=self._capable(node),
            workloads=self._workloads(node),
            faults=faults,
            history=history,
            opened_at=opened_at or now,
            check_covers=self._registry.checks(node.cluster).covers(node),
            remediators=self._remediators(node),
        )

    def _capable(self, node: Node) -> Node:
        capabilities = means(self._registry, node.cluster, node.machine.provider).capabilities(node)
        return node.model_copy(update={"machine": node.machine.model_copy(update={"capabilities": capabilities})})

    def _remediators(self, node: Node) -> tuple[Remediator, ...]:
        cluster = self._registry.cluster(node.cluster)
        try:
            return tuple(cluster.remediators(node)) if isinstance(cluster, HasOthers) else ()
        except Unreadable as error:
            return (Remediator(name="other remediators", switch=Switch.UNREADABLE, seen=str(error)),)

    def _workloads(self, node: Node) -> tuple[Workload, ...]:
        try:
            return tuple(self._registry.cluster(node.cluster).workloads(node.name))
        except Unreadable:
            return ()


def in_words(planned: Plan) -> str:
    """`act: reboot (attempt 1 of 2), after 1 approval by operator`."""
    words = str(planned.action)
    if planned.would:
        words += f": {planned.would}"
    elif planned.rung:
        words += f": {planned.rung} (attempt {planned.attempt} of {planned.of})"
    if planned.mark:
        words += ", mark" + (" after the approval" if planned.mark_after_approval else " at once")
    if planned.approval:
        words += f", after {planned.approval.threshold} approval(s) by {' or '.join(planned.approval.groups)}"
    return words


def fold_faults(events: Sequence[HealthEvent], now: datetime) -> FaultSet:
    """The fault set that these events of one node make."""
    faults = FaultSet()
    for event in events:
        faults = faults.observe(catalogue.classify(event), event.received_at or now).faults
    return faults
