"""A campaign that only looks: the check of each node in its turn, without any order to the node's incident."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from activities.failures import redact
from activities.ports import HasOthers, NotSent, Unclear, Unreadable
from activities.registry import Registry
from activities.storage.campaigns import CampaignRow, Campaigns
from activities.storage.policies import Policies
from activities.verification import MAX_RUNS
from medevac.campaigns.listing import Member, left_alone
from medevac.campaigns.progress import CampaignState, NodeProgress, NodeState
from medevac.campaigns.spec import CHECKED
from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import Covers, FaultClass, in_order
from medevac.fleet.node import Node
from medevac.incident import StepKey
from medevac.policy.policy import Policy
from medevac.policy.standing import Surroundings

SOURCE = "campaign"
STOPS = (CampaignState.HALTED, CampaignState.ENDING)
"""No check is begun any more; one that runs is read to its end."""
Report = Callable[[str, str, HealthEvent], None]
"""Tells a node's incident, opening one where none runs; returns once Temporal holds it. Raises any error."""
Change = dict[str, Any]


class CampaignChecks:
    def __init__(self, campaigns: Campaigns, registry: Registry, policies: Policies, report: Report) -> None:
        self._campaigns = campaigns
        self._registry = registry
        self._policies = policies
        self._report = report

    def look(self, row: CampaignRow, nodes: Iterable[tuple[NodeProgress, Member]], now: datetime) -> bool:
        """Begins or reads the check of each node in hand. True where anything has changed."""
        policy = self._policies.active().policy
        changes: dict[str, Change] = {}
        begun: dict[str, Change] = {}
        running: list[tuple[NodeProgress, Node]] = []
        for one, member in nodes:
            if one.state is not NodeState.SENT:
                continue
            try:
                node, why = listed(self._registry, row, member)
                if not why and node is not None and one.run == 0:
                    why = f"taken back: {row.why}" if row.state in STOPS else self._left_alone(policy, node)
            except Unreadable as error:
                changes[one.key] = {"why": redact(str(error), 300)}
                continue
            if node is None or why:
                changes[one.key] = {"state": NodeState.SKIPPED, "why": why}
                continue
            if one.run == 0:
                begun[one.key] = {"run": 1}
            running.append((one.model_copy(update={"run": max(1, one.run)}), node))
        # Written first: what was begun is read to its end, whatever stops the campaign.
        self._campaigns.change(row.id, begun)
        for one, node in running:
            if change := self._read(row, one, node, policy, now):
                changes[one.key] = change
        said = {one.key: one.why for one, _ in running}
        changes = {key: change for key, change in changes.items() if change != {"why": said.get(key)}}
        self._campaigns.change(row.id, changes)
        return bool(begun or changes)

    def _left_alone(self, policy: Policy, node: Node) -> str:
        """As it was listed: the pool's mode, and what people have set on the node, may be others by its turn."""
        cluster = self._registry.cluster(node.cluster)
        others = tuple(cluster.remediators(node)) if isinstance(cluster, HasOthers) else ()
        return left_alone(policy, policy.place(node), Surroundings(remediators=others))

    def _read(self, row: CampaignRow, one: NodeProgress, node: Node, policy: Policy, now: datetime) -> Change | None:
        """None while it runs. One that says nothing of the node is run again; a node that fails opens an incident."""
        checks = self._registry.checks(one.cluster)
        try:
            result = checks.run(node, in_order(checks.covers(node)), _key(row.id, one))
            if result is None:
                return None
            reason = redact(result.reason, 300)
            if result.flake and one.run < MAX_RUNS:
                held = f"the campaign is {row.state}" if row.state in STOPS else self._left_alone(policy, node)
                if held:
                    return {"state": NodeState.SKIPPED, "why": f"check {one.run} could not run: {reason}; {held}"}
                return {"run": one.run + 1, "why": f"check {one.run} could not run: {reason}; it is run again"}
        except (Unreadable, NotSent, Unclear) as error:
            return {"why": redact(str(error), 300)}
        if result.flake:
            why = f"{MAX_RUNS} checks could not run, the last: {reason}"
            return {"state": NodeState.FAILED, "why": why, "over_at": now}
        if not result.passed:
            self._report(one.cluster, one.node, failed_check(row.id, one, result.covers, result.reason, now))
        state = NodeState.DONE if result.passed else NodeState.FAILED
        return {"state": state, "why": reason, "over_at": now}


def listed(registry: Registry, row: CampaignRow, member: Member) -> tuple[Node | None, str]:
    """The node of that name as it is, and why it isn't the machine that people agreed to. Raises `Unreadable`."""
    node = registry.cluster(member.cluster).node(member.node)
    return node, row.order_for(member).another(node.identity if node else None)


def _key(campaign: str, one: NodeProgress) -> StepKey:
    """Of one check; each is run once."""
    again = f"-run{one.run}" if one.run > 1 else ""
    return StepKey(incident=f"campaign-{campaign}", step=f"check-{one.node}{again}")


def failed_check(campaign: str, one: NodeProgress, covers: Sequence[Covers], reason: str, now: datetime) -> HealthEvent:
    code = f"{CHECKED}{covers[0] if covers else 'failed'}"
    return HealthEvent(
        source=SOURCE,
        sender=SOURCE,
        id=f"campaign/{campaign}/{one.key}/failed",
        dedupe_key=f"campaign/{campaign}/{one.key}/failed",
        subject=one.node,
        cluster=one.cluster,
        kind=Kind.FAULT,
        fault=code,
        fault_class=FaultClass.DEGRADED,
        covers=tuple(covers),
        received_at=now,
        summary=redact(reason, 500),
    )
