"""`plan()`: what is done next to one node, and why. Pure: the same facts give the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from medevac.faults.catalogue import lookup
from medevac.faults.classes import ADOPTED, Covers, FaultClass, in_order
from medevac.policy.acting import Act, begin, climber
from medevac.policy.active import PolicyVersion
from medevac.policy.climbing import Climb
from medevac.policy.durations import words
from medevac.policy.holding import hold
from medevac.policy.judging import Judged
from medevac.policy.plan import Action, Mode, Plan, Rung
from medevac.policy.rules import Do
from medevac.policy.situation import Context, Situation
from medevac.policy.wording import sentence, what_is_wrong
from medevac.policy.yielding import LONG_S, cleared, follows, yielded

LOOK_AGAIN_S = 15.0
MAX_LOOK_AGAIN_S = 300.0
VERIFY_TRIES = 2
"""Checks that are made of a node whose fault went away in mid-repair, before a person looks."""


def plan(context: Context, version: PolicyVersion, now: datetime) -> Plan:
    """Never acts where it isn't sure that it may: what can't be read counts as a no."""
    here = Situation(context, version, now)
    return hold(here, Planner(here).plan())


@dataclass(frozen=True)
class Planner:
    here: Situation

    def plan(self) -> Plan:
        here, context = self.here, self.here.context
        if context.history.this_incident_ended:
            return here.make(
                Action.WITHDRAW,
                ("the ledger says that this incident has ended: nothing more is done for it",),
                faults=(),
            )
        if self._gone():
            return here.make(Action.WITHDRAW, (f"node {context.node_name} is gone", *here.wrong), faults=(), gone=True)
        if context.hand_over and (here.judged or here.begun):
            return self._hand_over(context.hand_over)
        if context.unreadable:
            return self._look_again()
        if not here.judged:
            if here.begun:
                return self._verify_only()
            if theirs := cleared(here):
                return theirs
            return here.make(Action.WITHDRAW, ("no fault is open any more, and nothing was begun",))
        if here.place is None and here.begun:
            return self._hand_over(f"{here.standing.reasons[0]}, and {here.begun[-1]} was begun")
        if context.faults.drill and context.workloads and not here.begun:
            return here.make(Action.WITHDRAW, ("work has come to the node, so nothing is done to it",), faults=())
        if not here.work:
            return self._verify_only() if here.begun else self._nothing_to_do()
        if here.standing.mode is Mode.OBSERVE:
            return self._observe()
        return self._decide(here.standing.mode, here.standing.reasons)

    def _gone(self) -> bool:
        """The node was there when the incident began and left by someone else's hand."""
        context = self.here.context
        if context.node is not None or context.unreadable or not context.seen:
            return False
        return not {Rung.REPLACE, Rung.TERMINATE, Rung.RMA} & set(self.here.begun)

    # -- nothing is done ---------------------------------------------------------------------------------------

    def _look_again(self) -> Plan:
        """What can't be read counts as a no, for now."""
        here = self.here
        wait_s = _patience(here)
        reasons = (f"{here.context.unreadable}; nothing is done until it can be read", *here.wrong)
        return here.make(Action.WATCH, reasons, mode=Mode.OBSERVE, faults=here.work or here.judged, watch_s=wait_s)

    def _nothing_to_do(self) -> Plan:
        here = self.here
        reasons = tuple(_why_not(judged) for judged in here.judged)
        if here.ours:
            return here.make(
                Action.WITHDRAW, ("what the node was marked for has cleared", *reasons), faults=here.judged
            )
        quiet = all(
            judged.verdict.do is Do.RECORD or judged.verdict.fault_class in (FaultClass.RECORD, FaultClass.APPLICATION)
            for judged in here.judged
        )
        if any(judged.code == ADOPTED for judged in here.judged):
            # A person has it until a person closes it. Whatever checks there are may say that it is well.
            covers = in_order(here.context.check_covers)
            return here.make(Action.OBSERVE, reasons, faults=here.judged, covers=covers, quiet_s=LONG_S)
        return here.make(Action.RECORD if quiet else Action.OBSERVE, reasons, faults=here.judged)

    def _observe(self) -> Plan:
        """Touches nothing, and says what it would do if it might."""
        here = self.here
        reasons = (*here.wrong, *here.standing.reasons)
        if here.lead.fault.order is not None:
            # The campaign knows what it wants, and notes the first reason as why it doesn't get it.
            reasons = (*here.standing.reasons, *here.wrong)
        if here.context.failed:
            reasons = (*reasons, f"before: {here.context.failed}")
        if here.place is None:
            return here.make(Action.OBSERVE, reasons, mode=Mode.OBSERVE)
        inner = self._decide(Mode.AUTO, ())
        theirs = follows(here)
        # What still stands on the node, or is still in somebody's hands, isn't over because nobody repeats it.
        quiet_s = LONG_S if here.ours or theirs else here.policy.quiet
        return here.make(
            Action.OBSERVE,
            reasons,
            mode=Mode.OBSERVE,
            would=theirs or sentence(inner),
            passed_over=inner.passed_over,
            destroys=inner.destroys,
            quiet_s=quiet_s,
            watch_s=_patience(here) if here.standing.look_again else 0.0,
        )

    def _hand_over(self, why: str) -> Plan:
        """The workflow knows that a person must take it. In mode `observe` nothing is marked."""
        here = self.here
        reasons = (why, *here.wrong, *here.standing.reasons, *here.circumstances)
        mark = self._stays_marked(here.standing.mode)
        return here.make(Action.HAND_OVER, reasons, faults=here.work or here.judged, mark=mark)

    def _stays_marked(self, mode: Mode) -> bool:
        """While a person has it: where it may be marked; and what a person has just unmarked isn't marked again."""
        here = self.here
        if mode is Mode.OBSERVE:
            return False
        may = mode is Mode.AUTO or (here.suspected and here.lead_class is FaultClass.CRITICAL)
        return here.ours or (may and here.suspected and not here.latch and not here.node.hands_off)

    def _verify_only(self) -> Plan:
        """The fault went away after a remedy was begun: that is evidence, and a check decides."""
        here, context = self.here, self.here.context
        begun = here.begun
        mine = [past for past in context.history.attempts if past.incident == context.incident]
        wanted = {cover for past in mine for cover in lookup(past.fault).covers}
        if not wanted and set(begun) == {Rung.WAIT}:
            wanted = {Covers.MAINTENANCE}
        covers = in_order(wanted)
        missing = [cover for cover in covers if cover not in context.check_covers]
        why = f"the fault went away after {begun[-1]} was begun: evidence, not proof"
        tried = begun[-VERIFY_TRIES:] == [Rung.WAIT] * VERIFY_TRIES
        if here.place is None or not covers or missing or tried or here.standing.mode is Mode.OBSERVE:
            return self._hand_over(f"{why}; no check here says that the node is well")
        last: dict[str, Any] = {"cause": mine[-1].fault, "fault_class": mine[-1].fault_class} if mine else {}
        return here.make(
            Action.ACT, (f"{why}; a check decides",), faults=(), mark=here.ours, rung=Rung.WAIT, covers=covers, **last
        )

    # -- something is done -------------------------------------------------------------------------------------

    def _decide(self, mode: Mode, reasons: tuple[str, ...]) -> Plan:
        """For a node that may be acted on in `mode`."""
        here = self.here
        reasons = (*here.wrong, *reasons, *here.circumstances)
        if latch := here.latch:
            until = latch.until.strftime("%Y-%m-%d %H:%M %Z").strip()
            return self._person(mode, f"{latch.by} said no: {latch.why}; this holds until {until}", reasons)
        if theirs := yielded(here, reasons):
            return theirs
        if waits := self._waits(mode, reasons) or self._unknown(mode, reasons):
            return waits
        if here.context.refused:
            return self._person(mode, here.context.refused, reasons)
        climb = climber(here).climb()
        reasons = (*reasons, *climb.reasons)
        if climb.person or climb.step is None:
            return self._person(mode, climb.person, reasons, climb)
        if here.context.faults.drill and climb.step.rung is Rung.RMA:
            return self._person(mode, "it comes to its last rung, and a drill opens no ticket", reasons, climb)
        return Act(here, mode, climb, climb.step).plan(reasons)

    def _person(self, mode: Mode, why: str, reasons: tuple[str, ...], climb: Climb | None = None) -> Plan:
        here = self.here
        if here.lead_class is FaultClass.MONITOR:
            return here.make(Action.OBSERVE, (why, *reasons), mode=mode, passed_over=climb.passed_over if climb else ())
        return here.make(
            Action.HAND_OVER,
            (why, *reasons),
            mode=mode,
            mark=self._stays_marked(mode),
            passed_over=climb.passed_over if climb else (),
            rung=Rung.ESCALATE if climb and climb.step else None,
        )

    def _waits(self, mode: Mode, reasons: tuple[str, ...]) -> Plan | None:
        """A fault that may clear by itself is watched; a notice far ahead is left until its drain must begin."""
        here = self.here
        starts = [at for judged in here.work if (at := begin(here, judged)) is not None]
        left = [(at - here.now).total_seconds() for at in starts]
        if here.lead_class is FaultClass.PLANNED:
            if not left or len(left) < len(here.work) or min(left) <= 0:
                return None
            why, mark = f"nothing has to leave before {min(starts):%Y-%m-%d %H:%M}", False
        elif here.lead_class is FaultClass.TRANSIENT:
            watch_s = here.lead.verdict.watch_s
            left.append(watch_s - (here.now - here.lead.fault.first_seen).total_seconds())
            if min(left) <= 0:
                return None
            why = f"it may clear by itself: watched for {words(watch_s)} from when it was first seen"
            mark = here.ours or (mode is Mode.AUTO and not here.node.hands_off)
        else:
            return None
        return here.make(Action.WATCH, (*reasons, why), mode=mode, mark=mark, watch_s=min(left))

    def _unknown(self, mode: Mode, reasons: tuple[str, ...]) -> Plan | None:
        """Neither clear nor still there: nothing is destroyed for it, and after a day a person looks."""
        here = self.here
        unknown = here.context.faults.unknown(here.now, here.policy.repeat)
        if here.begun or not all(judged.code in unknown for judged in here.work):
            return None
        last = max(judged.fault.last_seen for judged in here.work)
        why = f"nobody has said since {last:%Y-%m-%d %H:%M} whether it still holds"
        if (here.now - last).total_seconds() > here.policy.quiet:
            return self._person(mode, why, reasons)
        return here.make(Action.WATCH, (*reasons, why), mode=mode, mark=here.ours, watch_s=MAX_LOOK_AGAIN_S)


def _patience(here: Situation) -> float:
    return min(LOOK_AGAIN_S * here.context.n, MAX_LOOK_AGAIN_S)


def _why_not(judged: Judged) -> str:
    what = what_is_wrong(judged)
    verdict = judged.verdict
    if not judged.fault.actionable:
        return f"{what}: its sender says that it can't be acted on"
    match verdict.fault_class:
        case FaultClass.APPLICATION:
            return f"{what}: the job's own doing, never a node's fault by itself"
        case FaultClass.RECORD:
            return f"{what}: worth counting, not acting on"
        case FaultClass.UNKNOWN:
            return f"{what}: no rule makes it a node's fault, so it is told and nothing else"
        case _ if verdict.rules:
            return f"{what}: rule {', '.join(f'`{name}`' for name in verdict.rules)} says {verdict.do}"
        case _:
            return f"{what}: no rule names it, so it is told and nothing else"


__all__ = ["Context", "plan"]
