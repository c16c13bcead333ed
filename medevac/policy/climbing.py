"""Which rung comes next: the ladder, what was tried on this machine, what it can do, and what can be proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from medevac.faults.classes import Covers, FaultClass, in_order
from medevac.fleet.node import Capability, Node
from medevac.policy.bounds import AGENT_RUNGS
from medevac.policy.durations import words
from medevac.policy.judging import LADDER_OF, Judged
from medevac.policy.ladders import GENTLE, LadderStep
from medevac.policy.plan import UNCLEAR, Attempt, History, PassedOver, Rung
from medevac.policy.policy import Policy
from medevac.policy.pools import Pool

NEEDS = {
    Rung.RESTART_AGENT: Capability.RESTART_AGENT,
    Rung.RESET_GPU: Capability.RESET_GPU,
    Rung.REBOOT: Capability.REBOOT,
    Rung.REINSTALL: Capability.REINSTALL,
    Rung.REPLACE: Capability.REPLACE,
    Rung.TERMINATE: Capability.TERMINATE,
    Rung.RMA: Capability.TICKET,
}
LEAVES = frozenset({Rung.REPLACE, Rung.TERMINATE, Rung.RMA, Rung.ESCALATE})
"""Rungs after which this machine isn't in service."""


@dataclass(frozen=True, slots=True)
class Climb:
    step: LadderStep | None
    attempt: int
    of: int
    passed_over: tuple[PassedOver, ...]
    reasons: tuple[str, ...]
    person: str = ""
    """Why a person takes it instead of a rung."""


@dataclass(frozen=True, slots=True)
class Climber:
    """Everything that the choice depends on."""

    policy: Policy
    node: Node
    pool: Pool | None
    incident: str
    faults: Sequence[Judged]
    """Worst first; those that are to be worked on."""
    history: History
    asked: Sequence[Rung]
    recommended: Rung | None
    """By the driver itself (Xid 154 and its kin)."""
    check_covers: frozenset[Covers]
    now: datetime
    under_way: Rung | None = None
    """The rung whose attempt is still going on: asked about in its midst, it is the same attempt."""
    asks_again: bool = False
    """Nothing came of a successor that was asked for in this incident, and it can be asked for elsewhere."""

    @property
    def lead(self) -> Judged:
        return self.faults[0]

    @property
    def fault_class(self) -> FaultClass:
        return self.lead.verdict.fault_class

    @property
    def classes(self) -> frozenset[FaultClass]:
        """Of the leading fault, as the catalogue has it (and the ledger with it) and as a rule may have raised it."""
        return frozenset({self.lead.fault.fault_class, self.fault_class})

    def climb(self) -> Climb:
        name, ladder = self.ladder()
        if person := self._successor() or self._wants_a_person():
            return Climb(None, 0, 0, (), (), person)
        start, why = self._start(ladder)
        reasons = (f"ladder `{name}`: {' → '.join(step.rung for step in ladder)}", *([why] if why else []))
        passed: list[PassedOver] = []
        for i, step in enumerate(ladder):
            reason = why if i < start else self.why_not(ladder, i)
            if reason:
                passed.append(PassedOver(rung=step.rung, why=reason))
                continue
            if step.rung is Rung.ESCALATE:
                return Climb(step, 0, 0, tuple(passed), reasons, f"ladder `{name}` ends with a person")
            attempt = self.tried(step.rung) + (not (step.rung is Rung.REPLACE and self.asks_again))
            return Climb(step, attempt, max(self.policy.attempts.same_rung, attempt), tuple(passed), reasons)
        return Climb(None, 0, 0, tuple(passed), reasons, f"no rung of ladder `{name}` is left")

    def ladder(self) -> tuple[str, Sequence[LadderStep]]:
        order = self.lead.fault.order
        if order is not None:
            rung = Rung(order.rung)
            attempts = 2 if UNCLEAR in self._outcomes(rung) else 1
            return order.code, (LadderStep(rung=rung, attempts=attempts, deadline=order.deadline_s),)
        name = self.ladder_name()
        return name, self.policy.ladders[name]

    def ladder_name(self) -> str:
        """A rule's own, else what the class wants, else the pool's, else by the kind of machine."""
        named = self.lead.verdict.ladder or LADDER_OF.get(self.fault_class)
        if named is None and self.pool is not None:
            named = self.pool.ladder
        return named or ("cloud" if self.node.machine.virtual else "bare_metal")

    # -- where to begin ----------------------------------------------------------------------------------------

    def _successor(self) -> str:
        past = self.history.succeeds
        if past is not None and any(judged.code == past.fault for judged in self.faults):
            return (
                f"this machine came in place of one with {past.fault} within 24 h and has it too: "
                "replacing machines doesn't end it"
            )
        return ""

    def _wants_a_person(self) -> str:
        if self.lead.verdict.ladder is not None:
            return ""
        if self.recommended is Rung.ESCALATE:
            return "the driver recommends what no rung here does"
        if self.lead.advice is Rung.ESCALATE and self.lead.fault.fault_class.latched:
            return f"no rung is known to mend {self.lead.code}: somebody has to look"
        return ""

    def _start(self, ladder: Sequence[LadderStep]) -> tuple[int, str]:
        """Index of the first rung that may be taken, and why it isn't the first of the ladder."""
        last = len(ladder) - 1
        nth = self.nth_incident()
        if nth >= self.policy.attempts.incidents and last > 0:
            span = words(self.policy.attempts.window)
            return (
                last,
                f"incident {nth} with a {self.fault_class} fault on this machine in {span}: the last rung comes first",
            )
        if self.lead.verdict.ladder is not None:
            return 0, ""
        rungs = [step.rung for step in ladder]
        for judged in self.faults:
            if judged.advice is Rung.REPLACE and judged.verdict.fault_class.latched:
                leaving = [i for i, rung in enumerate(rungs) if rung in LEAVES]
                if leaving and leaving[0] > 0:
                    return leaving[0], f"nothing short of another machine mends {judged.code}"
        if self.recommended in rungs and self.recommended in GENTLE:
            return rungs.index(self.recommended), f"the driver itself recommends {self.recommended}"
        can_reinstall = Capability.REINSTALL in self.node.machine.capabilities
        if self.lead.advice is Rung.REINSTALL and Rung.REINSTALL in rungs and can_reinstall:
            return rungs.index(Rung.REINSTALL), f"a reinstall is what mends {self.lead.code}"
        return 0, ""

    def nth_incident(self) -> int:
        """This one counted. One that cleared by itself counts only where the class can't do that."""
        since = self.now - timedelta(seconds=self.policy.attempts.window)
        past = {
            p.incident
            for p in self.history.incidents
            if p.incident != self.incident
            and p.fault_class in self.classes
            and p.opened_at >= since
            and (p.end != "withdrawn" or p.fault_class.latched)
        }
        return len(past) + 1

    # -- why not this rung -------------------------------------------------------------------------------------

    def why_not(self, ladder: Sequence[LadderStep], i: int) -> str:
        step = ladder[i]
        rung = step.rung
        later = [other.rung for other in ladder[i + 1 :] if other.rung in self.asked]
        if later:
            return f"this incident is past it: {later[-1]} was begun"
        if self.fault_class is FaultClass.MONITOR and rung not in AGENT_RUNGS:
            return "the monitor is broken, not the node"
        need = NEEDS.get(rung)
        if need is not None and need not in self.node.machine.capabilities:
            return f"{self.node.machine.provider} can't {need.replace('_', ' ')} this machine"
        return self._unsuitable(step) or self._worn(step) or self._unproved(rung)

    def _unsuitable(self, step: LadderStep) -> str:
        only = step.only
        if only is None or self.node.machine.reserved or self._driver_wants(step.rung):
            return ""
        for judged in self.faults:
            if judged.code not in only.codes and not set(judged.covers) & set(only.covers):
                return f"it is not known to mend {judged.code}"
        return ""

    def _driver_wants(self, rung: Rung) -> bool:
        """A recommended reset is served by a reboot as well. Not heard beside a fault that needs another machine."""
        if any(judged.advice is Rung.REPLACE for judged in self.faults):
            return False
        return rung is self.recommended or (rung is Rung.REBOOT and self.recommended is Rung.RESET_GPU)

    def _worn(self, step: LadderStep) -> str:
        rung = step.rung
        if rung is Rung.REPLACE and self.asks_again:
            return ""  # The same attempt goes on; the old machine has not been touched by it.
        here = max(self.asked.count(rung), len(self._attempts(rung, incident=self.incident)))
        here -= rung is self.under_way
        if here >= step.attempts:
            return f"tried {_times(here)} in this incident"
        if rung is Rung.WAIT:
            return ""
        return _too_often(self.policy, rung, self.tried(rung), self.tried(rung, any_class=True))

    def _unproved(self, rung: Rung) -> str:
        if rung is Rung.ESCALATE:
            return ""
        for judged in self.faults:
            if not judged.covers:
                return f"nothing says which check proves {judged.code} gone; give its rule `covers`"
        missing = [cover for cover in self.needed if cover not in self.check_covers]
        return f"no check covers {', '.join(missing)}, so its result couldn't be proved" if missing else ""

    @property
    def needed(self) -> tuple[Covers, ...]:
        """What the check after the rung must cover: all of it, in one order."""
        wanted = {cover for judged in self.faults for cover in judged.covers}
        return in_order(wanted)

    # -- counting ----------------------------------------------------------------------------------------------

    def tried(self, rung: Rung, *, any_class: bool = False) -> int:
        """Attempts on this machine in the window, with those of this run that the ledger doesn't have yet."""
        known = self._attempts(rung, classes=None if any_class else self.classes)
        unwritten = self.asked.count(rung) - len(self._attempts(rung, incident=self.incident))
        return max(0, len(known) + max(0, unwritten) - (rung is self.under_way))

    def _outcomes(self, rung: Rung) -> set[str]:
        """Of this incident's attempts."""
        return {p.outcome for p in self.history.attempts if p.rung is rung and p.incident == self.incident}

    def _attempts(
        self, rung: Rung, *, incident: str | None = None, classes: frozenset[FaultClass] | None = None
    ) -> list[datetime]:
        since = self.now - timedelta(seconds=self.policy.attempts.window)
        return [
            past.at
            for past in self.history.attempts
            if past.rung is rung
            and past.at >= since
            and (incident is None or past.incident == incident)
            and (classes is None or past.fault_class in classes)
        ]


def worn(policy: Policy, rung: Rung, fault_class: FaultClass, attempts: Sequence[Attempt], now: datetime) -> str:
    """Why a machine has had too much of a rung for one more incident of a class to begin with it; empty where not."""
    since = now - timedelta(seconds=policy.attempts.window)
    past = [one for one in attempts if one.rung is rung and one.at >= since]
    return _too_often(policy, rung, sum(one.fault_class is fault_class for one in past), len(past))


def _too_often(policy: Policy, rung: Rung, same_class: int, any_class: int) -> str:
    bounds = policy.attempts
    if rung is Rung.WAIT:
        return ""
    if same_class >= bounds.same_rung:
        return f"tried {_times(same_class)} on this machine in {words(bounds.window)}"
    if rung is Rung.REBOOT and any_class >= bounds.same_rung:
        return f"this machine was rebooted {_times(any_class)} in {words(bounds.window)}"
    return ""


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"
