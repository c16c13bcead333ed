"""One step of a campaign: what became of its nodes, what follows, and the orders that go out now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity

from activities import signatures as sig
from activities.campaign_checks import SOURCE, STOPS, CampaignChecks, Report, listed
from activities.campaign_world import CampaignWorld, Seen
from activities.clock import Clock, utcnow
from activities.failures import redact, unreadable, waits
from activities.heartbeat import Pulse
from activities.ports import Unreadable
from activities.registry import Registry
from activities.storage.campaigns import WANTED, CampaignRow, Campaigns, Word
from activities.storage.ledger import LedgerLine
from activities.storage.policies import Policies
from medevac.campaigns.halting import Evidence
from medevac.campaigns.progress import CampaignState, NodeProgress, NodeState, Step, left_out, step
from medevac.campaigns.spec import Act
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.order import Order

NEXT_S = 1.0
"""After nodes were left out in their turn: others go in their place."""
TOLD = (*WANTED, "resume", "widen", "end")
"""Orders and words that people are told of as such; a pause and a halt are told as the state that they bring about."""
HELD_AT_MOST = timedelta(days=7)
"""A node that is drained for a campaign that nobody ends is checked and returned after this."""


class CampaignActivities:
    def __init__(
        self,
        campaigns: Campaigns,
        world: CampaignWorld,
        registry: Registry,
        report: Report,
        policies: Policies,
        clock: Clock = utcnow,
    ) -> None:
        self._campaigns = campaigns
        self._world = world
        self._registry = registry
        self._report = report
        self._checks = CampaignChecks(campaigns, registry, policies, report)
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
            words = self._campaigns.words(row.id, after=request.told)
            told = tuple(sig.CampaignWord(n=one.key.n, text=one.text) for one in words if _told(one))
            if row.state is CampaignState.ASKED or row.state is CampaignState.ENDED:
                return sig.CampaignStepped(state=row.state, why=row.why, look_again_s=60.0, words=told)
            return self._go_on(row, now).model_copy(update={"words": told})
        except Unreadable as error:
            raise unreadable("the ledger or a cluster", error) from None

    def _decide(self, row: CampaignRow, approved: bool, reason: str, now: datetime) -> CampaignRow:
        state = CampaignState.RUNNING if approved else CampaignState.ENDED
        self._campaigns.move(row.id, state, reason, now, only_from=(CampaignState.ASKED,))
        return self._campaigns.get(row.id) or row

    def _go_on(self, row: CampaignRow, now: datetime) -> sig.CampaignStepped:
        spec = row.plan.spec
        nodes = self._campaigns.nodes(row.id)
        order = row.order
        members = {member.key: member for member in row.plan.members}
        seen = self._world.see(row, nodes, order.code, now)
        known = self._weighed(row, seen)
        told = {one.key: one for one in nodes}

        def take_back(keys: Iterable[str]) -> None:
            for key in keys:
                self._tell(told[key], order, Kind.RECOVERED, "the campaign takes its order back", now)

        # Before it is written that they are over: who looks again after a death in between would tell nobody.
        take_back(key for key, change in seen.changes.items() if change.withdraw)
        ended = self._apply(row, nodes, seen, now)
        checked = spec.act is Act.CHECK and self._checks.look(
            row, [(one, members[one.key]) for one in nodes if one.key not in seen.changes], now
        )
        stops = row.state in STOPS
        if stops:
            take_back(seen.untouched)
            why = f"taken back: {row.why}"
            self._campaigns.change(row.id, {key: _skipped(why) for key in seen.untouched})
        if row.state is CampaignState.ENDING and spec.act is Act.DRAIN:
            take_back(one.key for one in nodes if one.state is NodeState.DONE)
        nodes = self._campaigns.nodes(row.id) if ended or checked or stops else nodes
        next_step = step(
            spec.care, row.at_once, row.state, row.passed, nodes, seen.beside, now, holds=spec.act is Act.DRAIN,
            known=known,
        )  # fmt: skip
        orders = {key: row.order_for(members[key]) for key in (*seen.unheard, *next_step.send)}
        others = {key: why for key in orders if (why := listed(self._registry, row, members[key])[1])}
        take_back(key for key in seen.unheard if key in others)
        changes: dict[str, dict[str, Any]] = {
            key: {"state": NodeState.SENT, "sent_at": now} for key in next_step.send if key not in others
        }
        self._campaigns.change(row.id, changes | {key: _skipped(why) for key, why in others.items()})
        if row.state.begins:
            # From its present state only: a person's halt that came meanwhile stands.
            self._campaigns.move(
                row.id, next_step.state, next_step.why, now, passed=next_step.passed, only_from=(row.state,),
                word=_own(next_step),
            )  # fmt: skip
        for key, one in orders.items() if spec.act is not Act.CHECK and row.state.begins else ():
            if key not in others:
                self._tell(told[key], one, Kind.PLANNED, spec.reason, now)
        in_hand = any(one.state is NodeState.SENT for one in nodes)
        state, why = next_step.state if row.state.begins else row.state, next_step.why or row.why
        if row.state is CampaignState.ENDING and not in_hand:
            state, why = CampaignState.ENDED, "; ".join(filter(None, (row.why, left_out(nodes))))
            self._campaigns.move(row.id, state, why, now, word=Word(step="end", text=f"ended: {why}"))
        look_again_s = min(next_step.look_again_s, pace(spec.act, in_hand), spec.care.look)
        if others:
            look_again_s = min(look_again_s, NEXT_S)
        return sig.CampaignStepped(state=state, why=why, look_again_s=look_again_s)

    def _weighed(self, row: CampaignRow, seen: Seen) -> Evidence | None:
        """What people have weighed, as far as it still stands; the pools' shares are kept for the next who resumes."""
        known = row.known and row.known.still_weighed(seen.beside.out, row.plan.spec.care.out_percent)
        if known != row.known or seen.beside.out != row.out:
            self._campaigns.looked(row.id, seen.beside.out, known)
        return known

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

    def _tell(self, one: NodeProgress, order: Order, kind: Kind, text: str, now: datetime) -> None:
        event = order_event(order, one, kind, text, now)
        try:
            self._report(one.cluster, one.node, event)
        except Exception as error:
            raise waits(f"{one.key} can't be told: {redact(str(error))}", 2.0) from None


def _told(line: LedgerLine) -> bool:
    """A person's order that no state tells of."""
    return line.key.step in TOLD and "by" in line.data


def _skipped(why: str) -> dict[str, Any]:
    return {"state": NodeState.SKIPPED, "why": why}


def _own(step: Step) -> Word | None:
    """Where the campaign stops by itself."""
    if step.state is CampaignState.HALTED:
        return Word(step="halt", text=f"halted by itself: {step.why}")
    return Word(step="end", text=f"ended: {step.why}") if step.state is CampaignState.ENDED else None


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


def pace(act: Act, in_hand: bool) -> float:
    """Checks are read as they end; everything else takes minutes."""
    return 2.0 if act is Act.CHECK and in_hand else 30.0
