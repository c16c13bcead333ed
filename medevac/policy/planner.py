"""`plan()`: what is done next to one node, and why. Pure: the same facts give the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from medevac.faults.catalogue import lookup
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import FaultSet
from medevac.fleet.node import Node, Workload
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from medevac.policy.climbing import Climb, Climber
from medevac.policy.durations import words
from medevac.policy.judging import Judged, judge
from medevac.policy.ladders import GENTLE
from medevac.policy.plan import Action, ApprovalNeed, Drain, History, Latch, Mode, PassedOver, Plan, Rung
from medevac.policy.policy import Policy
from medevac.policy.rules import Do
from medevac.policy.stakes import KEEPS_WORK, Stakes, stakes
from medevac.policy.standing import Standing, Surroundings, standing
from medevac.policy.wording import sentence, what_is_wrong

WORLD_DEADLINE = timedelta(hours=24)
"""A notice that ends within this sets its own deadline: leaving in time needs no vote (rule 9)."""
LAST_MINUTE_S = 60.0


class Context(Model):
    """All that a plan is made from, read at one moment."""

    incident: str
    n: int
    cluster: str
    node_name: str
    node: Node | None
    """None where there is no such node, or `unreadable` says why it can't be read."""
    unreadable: str = ""
    workloads: tuple[Workload, ...] = ()
    faults: FaultSet
    history: History
    opened_at: datetime
    asked_rungs: tuple[Rung, ...] = ()
    failed: str = ""
    hand_over: str = ""
    check_covers: frozenset[Covers] = frozenset()
    acting_since: datetime | None = None
    """When the pool's mode was last raised (`active.acting_since`); older trouble is left alone until adopted."""
    adopted: bool = False
    remediators: tuple[str, ...] = ()
    """Other programs that repair nodes of the pool."""
    storage_ok: bool | None = None


def plan(context: Context, version: PolicyVersion, now: datetime) -> Plan:
    """Never acts where it isn't sure that it may: what can't be read counts as a no."""
    return Planner(context, version, now).plan()


@dataclass(frozen=True)
class Planner:
    context: Context
    version: PolicyVersion
    now: datetime

    @cached_property
    def policy(self) -> Policy:
        return self.version.policy

    @cached_property
    def node(self) -> Node | None:
        return self.policy.place(self.context.node) if self.context.node else None

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Every open fault by the rules, worst first."""
        node = self.node
        found = (
            judge(
                self.policy,
                fault,
                pool=node.pool if node else None,
                sku=node.sku if node else None,
                provider=node.machine.provider if node else "",
            )
            for fault in self.context.faults.faults
        )
        return tuple(sorted(found, key=lambda judged: judged.order))

    @cached_property
    def work(self) -> tuple[Judged, ...]:
        """Those that something is to be done about. A monitor's own fault waits while the node is at fault."""
        works = [judged for judged in self.judged if judged.works]
        node_faults = [judged for judged in works if judged.verdict.fault_class.repairable]
        return tuple(node_faults or works)

    @cached_property
    def standing(self) -> Standing:
        context = self.context
        if self.node is None:
            why = context.unreadable or f"{context.node_name} is not in cluster {context.cluster}"
            return Standing(Mode.OBSERVE, (why,))
        predates = ""
        if context.acting_since and context.opened_at < context.acting_since and not context.adopted:
            predates = f"it was there before pool `{self.node.pool}` was allowed to act"
        around = Surroundings(remediators=context.remediators, storage_ok=context.storage_ok, predates=predates)
        found = standing(self.policy, self.node, around)
        if self.work and (cap := self.work[0].verdict).mode.reach < found.mode.reach:
            rules = ", ".join(f"`{name}`" for name in cap.rules)
            return Standing(cap.mode, (*found.reasons, f"rules {rules} allow {cap.mode} at most"), found.pool)
        return found

    # -- the decision ------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        context = self.context
        begun = [rung for rung in context.asked_rungs if rung is not Rung.RMA]
        if context.history.this_incident_ended:
            return self._simple(
                Action.WITHDRAW, ("the ledger says that this incident has ended: nothing more is done for it",)
            )
        if context.hand_over:
            return self._hand_over(context.hand_over)
        if not self.judged:
            if begun:
                return self._verify_only(begun)
            return self._simple(Action.WITHDRAW, ("no fault is open any more, and nothing was begun",))
        if self.node is None and begun:
            return self._hand_over(f"{self.standing.reasons[0]}, and {begun[-1]} was begun")
        if not self.work:
            return self._nothing_to_do(begun)
        if self.standing.mode is Mode.OBSERVE:
            return self._observe()
        return self._decide(self.standing.mode, self.standing.reasons)

    def _nothing_to_do(self, begun: Sequence[Rung]) -> Plan:
        if begun:
            return self._verify_only(begun)
        reasons = tuple(self._why_not_acted(judged) for judged in self.judged)
        node = self.node
        if node and node.marked_by == self.context.incident:
            return self._simple(
                Action.WITHDRAW, ("what the node was marked for has cleared", *reasons), faults=self.judged
            )
        quiet = all(
            judged.verdict.do is Do.RECORD or judged.verdict.fault_class in (FaultClass.RECORD, FaultClass.APPLICATION)
            for judged in self.judged
        )
        return self._simple(Action.RECORD if quiet else Action.OBSERVE, reasons, faults=self.judged)

    def _why_not_acted(self, judged: Judged) -> str:
        what = what_is_wrong(judged)
        match judged.verdict.fault_class:
            case FaultClass.APPLICATION:
                return f"{what}: the job's own doing, never a node's fault by itself"
            case FaultClass.RECORD:
                return f"{what}: worth counting, not acting on"
            case _ if not judged.fault.actionable:
                return f"{what}: its sender says that it can't be acted on"
            case FaultClass.UNKNOWN:
                return f"{what}: no rule names it, so it is told and nothing else"
            case _:
                by = (
                    f"rules {', '.join(judged.verdict.rules)} say" if judged.verdict.rules else "no rule says more than"
                )
                return f"{what}: {by} {judged.verdict.do}"

    def _observe(self) -> Plan:
        inner = self._decide(Mode.AUTO, ()) if self.node else None
        reasons = (*self._wrong(), *self.standing.reasons)
        if self.context.failed:
            reasons = (*reasons, f"before: {self.context.failed}")
        fields = self._about(self.work, mark=False)
        if inner is not None:
            fields |= {"would": sentence(inner), "passed_over": inner.passed_over, "destroys": inner.destroys}
        return self._make(Action.OBSERVE, mode=Mode.OBSERVE, reasons=reasons, **fields)

    def _decide(self, mode: Mode, reasons: tuple[str, ...]) -> Plan:
        """The plan of a node that may be acted on in `mode`."""
        assert self.node is not None  # noqa: S101  a node that isn't there is observed or handed over
        reasons = (*self._wrong(), *reasons, *self._circumstances())
        if latch := self._latch():
            until = latch.until.strftime("%Y-%m-%d %H:%M %Z").strip()
            return self._person(
                mode, f"{latch.by} said no: {latch.why}; this holds until {until}", reasons, latched=True
            )
        if wait := self._waits(mode, reasons):
            return wait
        climb = self._climber().climb()
        reasons = (*reasons, *climb.reasons)
        if climb.person or climb.step is None:
            why = (climb.person or "no rung is left",)
            return self._person(mode, why[0], reasons, climb=climb)
        return self._act(mode, climb, reasons)

    def _act(self, mode: Mode, climb: Climb, reasons: tuple[str, ...]) -> Plan:
        node, step, policy = self._node(), climb.step, self.policy
        assert step is not None  # noqa: S101
        rung = step.rung
        lead = self._lead()
        cost = stakes(rung, node, self.context.workloads, policy.checkpoints, self.now)
        drain, drain_s = self._drain(rung)
        approval = self._approval(mode, rung, cost)
        fields = self._about(self.work, mark=self._marks())
        fields |= {
            "mark_after_approval": fields["mark"] and self._mark_waits(mode, approval),
            "rung": rung,
            "attempt": climb.attempt,
            "of": climb.of,
            "drain": drain,
            "drain_s": drain_s,
            "pod_grace_s": min(policy.drains.pod_grace, 30.0),
            "budget_bypass": policy.drains.bypass_budgets,
            "request_first": step.request_first,
            "ticket": rung is Rung.RMA or any(judged.verdict.ticket for judged in self.work),
            "covers": self._climber().needed,
            "approval": approval,
            "wait_s": step.wait,
            "step_s": self._step_s(step.rung, step.deadline),
            "destroys": cost.destroys,
            "at_stake": cost.at_stake,
            "passed_over": climb.passed_over,
        }
        count = (
            f"{rung}: attempt {climb.attempt} of at most {climb.of} on this machine in {words(policy.attempts.window)}"
        )
        asks = tuple(f"asks first: {why}" for why in approval.why) if approval else ()
        return self._make(Action.ACT, mode=mode, reasons=(*reasons, count, *asks), **(fields | {"lead": lead}))

    def _person(
        self, mode: Mode, why: str, reasons: tuple[str, ...], *, climb: Climb | None = None, latched: bool = False
    ) -> Plan:
        """A person takes it. It stays marked where it may be; what a person has just unmarked is not marked again."""
        node = self._node()
        ours = node.marked_by == self.context.incident
        critical = self._lead().verdict.fault_class is FaultClass.CRITICAL
        mark = ours or (self._marks() and not latched and not node.hands_off and (mode is Mode.AUTO or critical))
        return self._make(
            Action.HAND_OVER,
            mode=mode,
            reasons=(why, *reasons),
            **self._about(self.work, mark=mark),
            passed_over=climb.passed_over if climb else (),
            rung=Rung.ESCALATE if climb and climb.step else None,
        )

    # -- special plans -----------------------------------------------------------------------------------------

    def _hand_over(self, why: str) -> Plan:
        """The workflow knows that a person must take it; in `observe` even its mark is left as it is."""
        faults = self.work or self.judged
        mode = self.standing.mode
        node = self.node
        mark = node is not None and mode is not Mode.OBSERVE and node.marked_by == self.context.incident
        if node and faults and mode is Mode.AUTO and self.work and not self._latch() and not node.hands_off:
            mark = mark or self._marks()
        reasons = (why, *self._wrong(), *self.standing.reasons)
        return self._make(Action.HAND_OVER, mode=mode, reasons=reasons, **self._about(faults, mark=mark))

    def _verify_only(self, begun: Sequence[Rung]) -> Plan:
        """The fault went away after a remedy was begun: that is evidence, and a check decides."""
        why = f"the fault went away after {begun[-1]} was begun: evidence, not proof"
        context, node = self.context, self.node
        mine = [past for past in context.history.attempts if past.incident == context.incident]
        wanted = {cover for past in mine for cover in lookup(past.fault).covers}
        if not wanted and all(rung is Rung.WAIT for rung in begun):
            wanted = {Covers.MAINTENANCE}
        covers = tuple(cover for cover in Covers if cover in wanted)
        missing = [cover for cover in covers if cover not in context.check_covers]
        if node is None or not covers or missing or self.standing.mode is Mode.OBSERVE or begun[-2:] == [Rung.WAIT] * 2:
            return self._hand_over(f"{why}; no check here can say that the node is well")
        return self._make(
            Action.ACT,
            mode=self.standing.mode,
            reasons=(f"{why}; a check decides",),
            cause=mine[-1].fault if mine else None,
            fault_class=mine[-1].fault_class if mine else None,
            identity=node.identity,
            domains=self.policy.domains(node),
            mark=node.marked_by == context.incident,
            rung=Rung.WAIT,
            covers=covers,
            foreign_cordon=node.foreign_cordon,
            hands_off=node.hands_off,
        )

    def _waits(self, mode: Mode, reasons: tuple[str, ...]) -> Plan | None:
        """A fault that may clear by itself is watched; a notice far ahead is left until its drain must begin."""
        lead = self._lead()
        if lead.verdict.fault_class is FaultClass.PLANNED:
            begin = self._begin(lead)
            if begin is None or self.now >= begin:
                return None
            why = f"nothing has to leave before {begin:%Y-%m-%d %H:%M}"
            left, mark = (begin - self.now).total_seconds(), False
        elif lead.verdict.fault_class is FaultClass.TRANSIENT:
            left = lead.verdict.watch_s - (self.now - lead.fault.first_seen).total_seconds()
            if left <= 0:
                return None
            due = [begin for judged in self.work if (begin := self._begin(judged))]
            left = min([left, *((begin - self.now).total_seconds() for begin in due)])
            if left <= 0:
                return None
            why = f"it may clear by itself: watched for {words(lead.verdict.watch_s)} from when it was first seen"
            mark = mode is Mode.AUTO and self._marks() and not self._node().hands_off
        else:
            return None
        return self._make(
            Action.WATCH, mode=mode, reasons=(*reasons, why), watch_s=left, **self._about(self.work, mark=mark)
        )

    # -- parts -------------------------------------------------------------------------------------------------

    def _node(self) -> Node:
        assert self.node is not None  # noqa: S101
        return self.node

    def _lead(self) -> Judged:
        return self.work[0]

    @cached_property
    def _due(self) -> tuple[Judged, ...]:
        return tuple(j for j in self.work if (begin := self._begin(j)) is not None and self.now >= begin)

    def _climber(self) -> Climber:
        context = self.context
        provable = tuple(
            judged
            for judged in self.work
            # The provider's own event isn't over when a repair is, so its proof waits for its own plan.
            if judged.verdict.fault_class is not FaultClass.PLANNED
            or self._lead().verdict.fault_class is FaultClass.PLANNED
        )
        return Climber(
            policy=self.policy,
            node=self._node(),
            pool=self.standing.pool,
            incident=context.incident,
            faults=provable,
            history=context.history,
            asked=context.asked_rungs,
            check_covers=context.check_covers,
            now=self.now,
        )

    def _marks(self) -> bool:
        """Only where the node itself is suspected, or about to go."""
        return bool(self.work) and self._lead().verdict.fault_class.repairable

    def _mark_waits(self, mode: Mode, approval: ApprovalNeed | None) -> bool:
        if approval is None or self._lead().verdict.fault_class is FaultClass.CRITICAL:
            return False
        return mode is Mode.APPROVE or bool(self._node().hands_off)

    def _latch(self) -> Latch | None:
        """A no that still holds: for these faults, unless one has joined that is worse than all it was said about."""
        ranks = {judged.code: judged.verdict.fault_class.rank for judged in self.work}
        for latch in self.context.history.latches:
            about = ranks.keys() & set(latch.faults)
            if latch.until <= self.now or not about:
                continue
            worst = min(ranks[code] for code in about)
            if not any(rank < worst for code, rank in ranks.items() if code not in about):
                return latch
        return None

    def _begin(self, judged: Judged) -> datetime | None:
        """When the drain before a planned event has to begin."""
        if judged.verdict.fault_class is not FaultClass.PLANNED or judged.fault.not_before is None:
            return None
        ahead = self.policy.drains.of(judged.verdict.drain or Drain.JOB_END)
        return judged.fault.not_before - timedelta(seconds=ahead)

    def _drain(self, rung: Rung) -> tuple[Drain | None, float]:
        """The shortest that any of the faults wants, and never beyond the provider's own time."""
        if rung in KEEPS_WORK:
            return None, 0.0
        drains = self.policy.drains
        order = list(Drain)
        wanted = min((j.verdict.drain or Drain.SOON for j in self.work), key=order.index)
        times = [drains.of(wanted)]
        for judged in self.work:
            if judged.verdict.fault_class is FaultClass.PLANNED and judged.fault.not_before is not None:
                left = (judged.fault.not_before - self.now).total_seconds()
                times.append(max(0.0, left - min(self.policy.notice_margin, left / 4)))
        span_s = min(times)
        return (Drain.NOW, span_s) if span_s < min(LAST_MINUTE_S, drains.of(wanted)) else (wanted, span_s)

    def _step_s(self, rung: Rung, deadline_s: float) -> float:
        """A wait lasts until the provider's event is over."""
        if rung is not Rung.WAIT:
            return deadline_s
        ends = [j.fault.ends_at or j.fault.not_before for j in self.work]
        left = max(((end - self.now).total_seconds() for end in ends if end is not None), default=0.0)
        return max(0.0, left) + deadline_s

    def _approval(self, mode: Mode, rung: Rung, cost: Stakes) -> ApprovalNeed | None:
        node, policy = self._node(), self.policy
        why: list[str] = []
        lost = bool(cost.data) or cost.slot
        if cost.slot:
            why.append(f"it gives up the reserved slot of {node.machine.id}")
        if cost.data:
            why.append(f"it destroys local data in use: {', '.join(cost.data)}")
        if node.hands_off:
            why.append(f"{node.hands_off} asked for hands off this node")
        if node.foreign_cordon:
            why.append(f"{node.foreign_cordon} has cordoned this node")
        if mode is Mode.APPROVE and not self._world_sets_the_deadline(rung):
            why.append("mode approve: a person confirms each plan")
        elif rung not in policy.auto and mode is Mode.AUTO:
            why.append(f"{rung} never goes without asking under this policy")
        if not why:
            return None
        who = policy.who_may.loss if lost else policy.who_may.reboot if rung in GENTLE else policy.who_may.replace
        return policy.need(who, tuple(why))

    def _world_sets_the_deadline(self, rung: Rung) -> bool:
        """Spot, retirement today: the machine goes anyway, so leaving in time needs no vote. Nothing else is exempt."""
        deadline = self._lead().fault.not_before
        return (
            rung is Rung.WAIT
            and self._lead().verdict.fault_class is FaultClass.PLANNED
            and deadline is not None
            and deadline - self.now <= WORLD_DEADLINE
        )

    def _wrong(self) -> tuple[str, ...]:
        return tuple(what_is_wrong(judged) for judged in (self.work or self.judged))

    def _circumstances(self) -> tuple[str, ...]:
        found = []
        history, node = self.context.history, self._node()
        if self.context.failed:
            found.append(f"before: {self.context.failed}")
        if history.frozen:
            found.append(f"frozen: {history.frozen}; destructive steps wait until it is thawed")
        if history.spares == 0 and self.context.workloads:
            found.append(f"pool `{node.pool}` has no spare left and work runs here: the guard makes it wait")
        return tuple(found)

    def _about(self, faults: Sequence[Judged], *, mark: bool) -> dict[str, Any]:
        node = self.node
        lead = faults[0] if faults else None
        return {
            "cause": lead.code if lead else None,
            "fault_class": lead.verdict.fault_class if lead else None,
            "faults": tuple(judged.code for judged in faults),
            "identity": node.identity if node else self._nobody(),
            "domains": self.policy.domains(node) if node else {},
            "mark": mark,
            "foreign_cordon": node.foreign_cordon if node else None,
            "hands_off": node.hands_off if node else None,
        }

    @staticmethod
    def _nobody() -> Any:
        from medevac.fleet.node import Identity

        return Identity()

    def _simple(self, action: Action, reasons: tuple[str, ...], *, faults: Sequence[Judged] = ()) -> Plan:
        return self._make(action, mode=self.standing.mode, reasons=reasons, **self._about(faults, mark=False))

    def _make(self, action: Action, *, mode: Mode, reasons: tuple[str, ...], **fields: Any) -> Plan:
        context, policy = self.context, self.policy
        fields.pop("lead", None)
        fields.setdefault("passed_over", ())
        return Plan(
            incident=context.incident,
            n=context.n,
            cluster=context.cluster,
            node=context.node_name,
            policy_version=self.version.version,
            policy_hash=self.version.hash,
            made_at=self.now,
            mode=mode,
            action=action,
            verify_s=policy.verify,
            probation_s=policy.probation,
            quiet_s=policy.quiet,
            reasons=reasons,
            **fields,
        )


__all__ = ["Context", "PassedOver", "plan"]
