"""A plan that acts: the rung that was chosen, how work leaves before it, who is asked, what it destroys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from medevac.faults.classes import FaultClass
from medevac.fleet.asking import Asking, Candidate
from medevac.policy.climbing import NEEDS, Climb, Climber
from medevac.policy.cost import Cost, cost
from medevac.policy.durations import words
from medevac.policy.judging import Judged
from medevac.policy.ladders import GENTLE, LadderStep, gentle
from medevac.policy.opening import asking_window
from medevac.policy.people import Who
from medevac.policy.plan import Action, ApprovalNeed, AtBudget, AtJobEnd, Drain, Mode, Plan, Rung
from medevac.policy.situation import Situation
from medevac.policy.stakes import KEEPS_WORK, Stakes, stakes

WORLD_DEADLINE = timedelta(hours=24)
"""A notice that ends within this sets its own deadline: leaving in time needs no vote (rule 9)."""
LAST_MINUTE_S = 60.0
MAX_POD_GRACE_S = 30.0


def climber(here: Situation) -> Climber:
    context = here.context
    planned = FaultClass.PLANNED
    recommended = context.faults.recommended
    return Climber(
        policy=here.policy,
        node=here.node,
        pool=here.standing.pool,
        incident=context.incident,
        # The provider's own event isn't over when a repair is: its proof waits for a plan of its own.
        faults=tuple(j for j in here.work if j.verdict.fault_class is not planned or here.lead_class is planned),
        history=context.history,
        asked=context.asked_rungs,
        under_way=context.under_way,
        recommended=Rung(recommended) if recommended else None,
        check_covers=context.check_covers,
        now=here.now,
        asks_again=context.asking.again,
    )


def begin(here: Situation, judged: Judged) -> datetime | None:
    """When the drain before a planned event has to begin; None where it isn't planned or has no time."""
    if judged.verdict.fault_class is not FaultClass.PLANNED or judged.fault.not_before is None:
        return None
    return judged.fault.not_before - timedelta(seconds=here.policy.drains.of(judged.verdict.drain or Drain.JOB_END))


def _where(asking: Asking) -> tuple[str, ...]:
    """Where the successor is asked for and why, for people."""
    if not asking.candidates:
        return ()
    best, *others = asking.candidates
    rather = f", rather than {' or '.join(one.why for one in others)}" if others else ""
    return (f"asked at {best.why}{rather}", *asking.notes)


@dataclass(frozen=True)
class Act:
    """One rung for one node in one mode."""

    here: Situation
    mode: Mode
    climb: Climb
    step: LadderStep

    def plan(self, reasons: tuple[str, ...]) -> Plan:
        here, step, policy, climb = self.here, self.step, self.here.policy, self.climb
        rung = step.rung
        asking = here.context.asking if rung is Rung.REPLACE else Asking()
        ask_at = next(iter(asking.candidates), None)
        cost = stakes(rung, here.node, here.context.workloads, policy.checkpoints, here.now)
        drain, drain_s = self._drain()
        approval = self._approval(cost, ask_at)
        window = words(policy.attempts.window)
        count = f"{rung}: attempt {climb.attempt} of at most {climb.of} on this machine in {window}"
        asks = tuple(f"asks first: {why}" for why in approval.why) if approval else ()
        return here.make(
            Action.ACT,
            (*reasons, count, *_where(asking), *asks),
            mode=self.mode,
            mark=here.suspected,
            mark_after_approval=here.suspected and self._mark_waits(approval),
            rung=rung,
            attempt=climb.attempt,
            of=climb.of,
            drain=drain,
            drain_s=drain_s,
            pod_grace_s=min(policy.drains.pod_grace, MAX_POD_GRACE_S),
            budget_bypass=drain is not None and policy.drains.at_budget is AtBudget.DELETE,
            budget_need=self._budget_need() if drain is not None else None,
            budget_waits=drain is None or policy.drains.at_budget is not AtBudget.HAND_OVER,
            job_end_evicts=drain is Drain.JOB_END and self._at_job_end() is AtJobEnd.EVICT,
            job_end_need=self._job_end_need() if drain is Drain.JOB_END else None,
            request_first=step.request_first,
            successor_need=self._successor_need(cost) if rung is Rung.REPLACE and ask_at is None else None,
            ask_at=ask_at.source if ask_at else None,
            # People outside are not drilled.
            ticket=(rung is Rung.RMA or any(judged.verdict.ticket for judged in here.work))
            and not here.context.faults.drill,
            covers=climber(here).needed,
            approval=approval,
            wait_s=step.wait,
            step_s=self._step_s(),
            destroys=cost.destroys,
            at_stake=cost.at_stake,
            passed_over=climb.passed_over,
        )

    def _budget_need(self) -> ApprovalNeed | None:
        """Whose yes lets the drain go around a budget. As for another machine: it is others' work that is cut short."""
        policy = self.here.policy
        if policy.drains.at_budget is not AtBudget.ASK:
            return None
        return policy.need(policy.who_may.replace, ("a disruption budget refuses at the drain's deadline",))

    def _at_job_end(self) -> AtJobEnd:
        """Where the machine goes at its provider's time anyway, the jobs' leaving before it needs no vote."""
        said = self.here.policy.drains.at_job_end
        return AtJobEnd.EVICT if said is AtJobEnd.ASK and self._world_sets_the_deadline() else said

    def _job_end_need(self) -> ApprovalNeed | None:
        """Whose yes evicts jobs before their end: theirs who may say it about a budget, for the same reason."""
        policy = self.here.policy
        if self._at_job_end() is not AtJobEnd.ASK:
            return None
        return policy.need(policy.who_may.replace, ("a job still runs when its drain's time is over",))

    def _successor_need(self, cost: Stakes) -> ApprovalNeed:
        """Whose yes ends the machine though no successor came. Where there is a choice, another place is asked."""
        return self.here.policy.need(self._who(cost), ("no successor is there in its time",))

    def _who(self, cost: Stakes) -> Who:
        may, light = self.here.policy.who_may, gentle(self.step.rung, self.here.node.machine)
        return may.loss if cost.data or cost.slot else may.reboot if light else may.replace

    def _mark_waits(self, approval: ApprovalNeed | None) -> bool:
        if approval is None or self.here.lead_class is FaultClass.CRITICAL:
            return False
        return self.mode is Mode.APPROVE or bool(self.here.node.hands_off)

    def _drain(self) -> tuple[Drain | None, float]:
        """The shortest that any of the faults wants, and never beyond the provider's own time."""
        if self.step.rung in KEEPS_WORK:
            return None, 0.0
        here, drains = self.here, self.here.policy.drains
        order = list(Drain)
        wanted = min((judged.verdict.drain or Drain.SOON for judged in here.work), key=order.index)
        times = [drains.of(wanted)]
        for judged in here.work:
            if judged.verdict.fault_class is FaultClass.PLANNED and judged.fault.not_before is not None:
                left = (judged.fault.not_before - here.now).total_seconds()
                times.append(max(0.0, left - min(here.policy.notice_margin, left / 4)))
        span_s = min(times)
        hurried = span_s < min(LAST_MINUTE_S, drains.of(wanted))
        return (Drain.NOW if hurried else wanted), span_s

    def _step_s(self) -> float:
        """A wait lasts until the provider's event is over."""
        if self.step.rung is not Rung.WAIT:
            return self.step.deadline
        ends = (judged.fault.ends_at or judged.fault.not_before for judged in self.here.work)
        left = max(((end - self.here.now).total_seconds() for end in ends if end is not None), default=0.0)
        return max(0.0, left) + self.step.deadline

    def _approval(self, cost: Stakes, ask_at: Candidate | None) -> ApprovalNeed | None:
        node, policy, rung = self.here.node, self.here.policy, self.step.rung
        why: list[str] = []
        if cost.slot:
            why.append(f"it gives up the reserved slot of {node.machine.id}")
        if cost.data:
            why.append(f"it destroys local data in use: {', '.join(cost.data)}")
        if ask_at and not ask_at.certified:
            name = ask_at.source.offer.provider
            proof = f"`medevac provider certify {name} --machine ID`"
            why.append(f"provider {name}, which is asked, isn't certified here; {proof} proves it")
        if node.hands_off:
            why.append(f"{node.hands_off} asked for hands off this node")
        if node.foreign_cordon:
            why.append(f"{node.foreign_cordon} has cordoned this node")
        if self.here.old_words:
            said = ", ".join(self.here.old_words)
            why.append(f"{said} says only what it said before a check proved it gone: its agent may lack a restart")
        why += self._by_time_and_cost()
        if self.here.context.history.bad_parts and rung is not Rung.WAIT:
            why.append("a part of it was sent back before, and is here again")
        if self.here.lead.fault.order is not None:
            pass  # Agreed to for the whole list; what the list couldn't know of this node is asked all the same.
        elif self.mode is Mode.APPROVE:
            if not self._world_sets_the_deadline():
                why.append("mode approve: a person confirms each plan")
        elif rung not in policy.auto:
            why.append(f"{rung} never goes without asking under this policy")
        elif rung in GENTLE and not gentle(rung, node.machine):
            why.append(f"a {rung} is a stop and a start here, which loses what is local: it never goes without asking")
        elif NEEDS.get(rung) in self.here.context.unproved:
            name = node.machine.provider
            proof = f"`medevac provider certify {name} --machine ID`"
            why.append(f"provider {name} wasn't seen to {rung} a machine here; {proof}")
        if not why:
            return None
        return policy.need(self._who(cost), tuple(why))

    def _by_time_and_cost(self) -> tuple[str, ...]:
        """Also of what was agreed to for a whole list, which knew neither."""
        here, policy, rung = self.here, self.here.policy, self.step.rung
        if self._world_sets_the_deadline():
            return ()
        pool = here.node.pool
        asked = asking_window(policy, pool, here.now) if rung.destructive or rung not in KEEPS_WORK else None
        lost = cost(here.context.workloads, policy.checkpoints, here.now) if rung not in KEEPS_WORK else Cost(0.0, ())
        reasons = (asked.why if asked else "", lost.why(policy.ask_above_gpu_hours))
        return tuple(filter(None, reasons))

    def _world_sets_the_deadline(self) -> bool:
        """Spot, retirement today: the machine goes anyway, so leaving in time needs no vote. Nothing else is exempt."""
        deadline = self.here.lead.fault.not_before
        return (
            self.step.rung is Rung.WAIT
            and self.here.lead_class is FaultClass.PLANNED
            and deadline is not None
            and deadline - self.here.now <= WORLD_DEADLINE
        )
