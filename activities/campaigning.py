"""One step of a campaign: what became of its nodes, what follows, and the orders that go out now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity

from activities import signatures as sig
from activities.campaign_world import CampaignWorld, Seen
from activities.clock import Clock, utcnow
from activities.failures import redact, unreadable, waits
from activities.heartbeat import Pulse
from activities.ports import Unreadable
from activities.registry import Registry
from activities.storage.campaigns import CampaignRow, Campaigns
from medevac.campaigns.progress import CampaignState, NodeProgress, NodeState, left_out, step
from medevac.campaigns.spec import Act
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.classes import Covers, FaultClass, in_order
from medevac.fleet.order import Order
from medevac.incident import StepKey

SOURCE = "campaign"
HELD_AT_MOST = timedelta(days=7)
"""A node that is drained for a campaign that nobody ends is checked and returned after this."""
Report = Callable[[str, str, HealthEvent], None]
"""Tells a node's incident, opening one where none runs; returns once Temporal holds it. Raises any error."""


class CampaignActivities:
    def __init__(
        self,
        campaigns: Campaigns,
        world: CampaignWorld,
        registry: Registry,
        report: Report,
        clock: Clock = utcnow,
    ) -> None:
        self._campaigns = campaigns
        self._world = world
        self._registry = registry
        self._report = report
        self._clock = clock

    @activity.defn(name=sig.CAMPAIGN_STEP.name, no_thread_cancel_exception=True)
    def step(self, request: sig.CampaignStepRequest) -> sig.CampaignStepped:
        """Written down before it is told, and told again until an incident shows it: no death in between loses any."""
        with Pulse():
            return self._step(request)

    def _step(self, request: sig.CampaignStepRequest) -> sig.CampaignStepped:
        now = self._clock()
        try:
            row = self._campaigns.get(request.campaign)
            if row is None:
                raise Unreadable(f"campaign {request.campaign} isn't in the ledger")
            if request.decided is not None and row.state is CampaignState.ASKED:
                row = self._decide(row, request.decided, request.reason, now)
            if row.state is CampaignState.ASKED or row.state is CampaignState.ENDED:
                return sig.CampaignStepped(state=row.state, why=row.why, look_again_s=60.0)
            return self._go_on(row, now)
        except Unreadable as error:
            raise unreadable("the ledger or a cluster", error) from None

    def _decide(self, row: CampaignRow, approved: bool, reason: str, now: datetime) -> CampaignRow:
        state = CampaignState.RUNNING if approved else CampaignState.ENDED
        self._campaigns.move(row.id, state, reason, now, only_from=(CampaignState.ASKED,))
        return self._campaigns.get(row.id) or row

    def _go_on(self, row: CampaignRow, now: datetime) -> sig.CampaignStepped:
        spec = row.plan.spec
        nodes = self._campaigns.nodes(row.id)
        order = Order(
            campaign=row.id,
            approval=row.approval,
            rung=spec.act.rung,
            drain=spec.drain.value,
            image=spec.image,
            deadline_s=spec.care.deadline,
        )
        seen = self._world.see(row, nodes, order.code, now)
        if spec.act is Act.CHECK:
            seen = seen.model_copy(update={"changes": {}, "at_work": {}, "unheard": ()})
        ended = self._apply(row, nodes, seen, now)
        checked = self._check(row, nodes, now) if spec.act is Act.CHECK else {}
        taken_back = [key for key, change in seen.changes.items() if change.withdraw]
        if row.state in (CampaignState.HALTED, CampaignState.ENDING):
            taken_back += self._take_back(row, seen)
        if row.state is CampaignState.ENDING and spec.act is Act.DRAIN:
            taken_back += [one.key for one in nodes if one.state is NodeState.DONE]
        nodes = self._campaigns.nodes(row.id) if ended or checked or taken_back else nodes
        next_step = step(
            spec.care, row.at_once, row.state, row.passed, nodes, seen.beside, now, holds=spec.act is Act.DRAIN,
            known=row.known,
        )  # fmt: skip
        if next_step.send:
            changes = {key: {"state": NodeState.SENT, "sent_at": now} for key in next_step.send}
            self._campaigns.change(row.id, changes)
        if row.state.begins:
            # From its present state only: a person's halt that came meanwhile stands.
            self._campaigns.move(
                row.id, next_step.state, next_step.why, now, passed=next_step.passed, only_from=(row.state,)
            )
        told = {one.key: one for one in nodes}
        for key in (*seen.unheard, *next_step.send) if spec.act is not Act.CHECK and row.state.begins else ():
            self._tell(told[key], order, Kind.PLANNED, spec.reason, now)
        for key in taken_back:
            self._tell(told[key], order, Kind.RECOVERED, "the campaign takes its order back", now)
        in_hand = any(one.state is NodeState.SENT for one in nodes)
        state, why = next_step.state if row.state.begins else row.state, next_step.why or row.why
        if row.state is CampaignState.ENDING and not in_hand:
            state, why = CampaignState.ENDED, "; ".join(filter(None, (row.why, left_out(nodes))))
            self._campaigns.move(row.id, state, why, now)
        return sig.CampaignStepped(
            state=state,
            why=why,
            look_again_s=min(next_step.look_again_s, pace(spec.act, in_hand), spec.care.look),
        )

    def _apply(self, row: CampaignRow, nodes: Sequence[NodeProgress], seen: Seen, now: datetime) -> bool:
        changes: dict[str, dict[str, Any]] = {}
        for key, change in seen.changes.items():
            over = None if change.state is NodeState.SKIPPED and not change.acted else now
            changes[key] = {
                "state": change.state, "why": change.why, "over_at": over, "incident": change.incident,
                "by": change.by, "fault": change.fault,
            }  # fmt: skip
        for one in nodes:
            if one.key in seen.at_work and (one.incident, one.why) != seen.at_work[one.key]:
                incident, why = seen.at_work[one.key]
                changes[one.key] = {"incident": incident, "why": why}
        for key, fault in seen.faults.items():
            changes.setdefault(key, {})["fault"] = fault
        for key, job in seen.jobs.items():
            changes.setdefault(key, {})["job"] = job
        if changes:
            self._campaigns.change(row.id, changes)
        return bool(changes)

    def _take_back(self, row: CampaignRow, seen: Seen) -> tuple[str, ...]:
        """Of a halted campaign: what is in hand and has not begun. What has begun ends as it must."""
        why = f"taken back: {row.why}"
        self._campaigns.change(row.id, {key: {"state": NodeState.SKIPPED, "why": why} for key in seen.untouched})
        return seen.untouched

    def _check(self, row: CampaignRow, nodes: Sequence[NodeProgress], now: datetime) -> Mapping[str, Any]:
        """Runs or reads the check of each node in hand; one that fails opens an incident of its own."""
        changes: dict[str, dict[str, Any]] = {}
        for one in nodes:
            if one.state is not NodeState.SENT:
                continue
            node = self._registry.cluster(one.cluster).node(one.node)
            if node is None:
                changes[one.key] = {"state": NodeState.SKIPPED, "why": "it is gone"}
                continue
            checks = self._registry.checks(one.cluster)
            covers = in_order(checks.covers(node))
            result = checks.run(node, covers, StepKey(incident=f"campaign-{row.id}", step=f"check-{one.node}"))
            if result is None:
                continue
            good = result.passed or result.flake
            state = NodeState.DONE if good else NodeState.FAILED
            changes[one.key] = {"state": state, "why": redact(result.reason, 300), "over_at": now}
            if not good:
                self._report(one.cluster, one.node, failed_check(row.id, one, result.covers, result.reason, now))
        self._campaigns.change(row.id, changes)
        return changes

    def _tell(self, one: NodeProgress, order: Order, kind: Kind, text: str, now: datetime) -> None:
        event = order_event(order, one, kind, text, now)
        try:
            self._report(one.cluster, one.node, event)
        except Exception as error:
            raise waits(f"{one.key} can't be told: {redact(str(error))}", 2.0) from None


def order_event(order: Order, one: NodeProgress, kind: Kind, text: str, now: datetime) -> HealthEvent:
    """Told twice it is the same statement."""
    return HealthEvent(
        source=SOURCE,
        sender=SOURCE,
        id=f"{order.code}/{one.key}/{kind}",
        dedupe_key=f"{order.code}/{one.key}",
        subject=one.node,
        cluster=one.cluster,
        kind=kind,
        fault=order.code,
        fault_class=FaultClass.PLANNED,
        covers=(Covers.SERVICE,),
        order=order if kind is Kind.PLANNED else None,
        ends_at=now + HELD_AT_MOST if order.rung == "wait" else None,
        statement=Statement.EDGE,
        received_at=now,
        summary=text,
    )


def failed_check(campaign: str, one: NodeProgress, covers: Sequence[Covers], reason: str, now: datetime) -> HealthEvent:
    code = f"check/{covers[0] if covers else 'failed'}"
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


def pace(act: Act, in_hand: bool) -> float:
    """Checks are read as they end; everything else takes minutes."""
    return 2.0 if act is Act.CHECK and in_hand else 30.0
