"""What silences and windows make of a plan: the same, less what they hold. What is begun, or mends, goes on."""

from __future__ import annotations

from datetime import datetime

from medevac.faults.classes import FaultClass
from medevac.policy.opening import Held, window
from medevac.policy.plan import Action, Plan
from medevac.policy.silences import Holds, Subject, silenced
from medevac.policy.situation import Situation
from medevac.policy.wording import sentence

SILENCE_LOOK_S = 300.0
"""A silence may be ended early, by a person who then waits."""


def hold(here: Situation, plan: Plan) -> Plan:
    """`plan`, or what is left of it."""
    destroys = plan.rung is not None and plan.rung.destructive
    disrupts = plan.action is Action.ACT and (destroys or plan.drain is not None)
    marks = plan.mark and not plan.mark_after_approval
    if here.place is None or not (marks or disrupts):
        return plan
    no_mark = _held(here, Holds.MARK)
    mark = marks and (no_mark is None or here.ours)
    if not disrupts:
        return plan if mark else plan.model_copy(update={"mark": False})
    held = no_mark or _held(here, Holds.DESTRUCTIVE)
    if held is None or _goes_anyway(here, held.until):
        return plan
    left_s = (held.until - here.now).total_seconds()
    return here.make(
        Action.WATCH,
        (held.why, f"then: {sentence(plan)}", *plan.reasons),
        mode=plan.mode,
        mark=here.ours or mark,
        watch_s=max(1.0, min(left_s, held.look_s)),
        passed_over=plan.passed_over,
    )


def _held(here: Situation, edge: Holds) -> Held | None:
    pool = here.place.pool if here.place else None
    return window(here.policy, pool, edge, here.now) or _silence(here, edge)


def _silence(here: Situation, edge: Holds) -> Held | None:
    """Only where each fault that something would be done about is silenced: another one is not what was agreed to."""
    found = [silenced(here.context.silences, subject, edge, here.now) for subject in subjects(here)]
    standing = [one for one in found if one is not None]
    if not standing or len(standing) < len(found):
        return None
    first = min(standing, key=lambda one: one.until)
    return Held(first.until, str(first), SILENCE_LOOK_S)


def subjects(here: Situation) -> tuple[Subject, ...]:
    context, node = here.context, here.place
    return tuple(
        Subject(
            cluster=context.cluster,
            pool=node.pool if node else None,
            node=context.node_name,
            fault=judged.code,
            fault_class=judged.verdict.fault_class,
            sources=tuple(sorted({raiser.source for raiser in judged.fault.raised_by})),
        )
        for judged in (here.work or here.judged)
    )


def _goes_anyway(here: Situation, until: datetime) -> bool:
    """The provider takes the machine before then: leaving in time is all that can be chosen."""
    return here.lead_class is FaultClass.PLANNED and any(
        judged.fault.not_before is not None and judged.fault.not_before <= until for judged in here.work
    )
