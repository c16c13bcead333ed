"""`coexist: yield`: another program repairs first. Its repair is followed, and a check of ours judges it afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from medevac.faults.classes import FaultClass, in_order
from medevac.incident import Line
from medevac.policy.plan import Action, Mode, Plan, Rung
from medevac.policy.pools import Coexist
from medevac.policy.situation import Situation
from medevac.policy.standing import STILL_ACTS

BEGINS = timedelta(minutes=45)
"""How long the other may take to begin. The longest that one of them waits as shipped is 30 minutes."""
LOOK_S = 60.0
LONG_S = 30 * 86_400.0
"""Quiet after which even an incident is withdrawn that waits for somebody else, or for a person."""
_FOLLOWS = "a check, once this one is done with the node: "


def follows(here: Situation) -> str:
    """What a plan that waits for another's repair says it would do; empty where it waits for none."""
    pool = here.standing.pool
    keeper = here.place.foreign_cordon if here.place else None
    waits = here.suspected or here.context.followed
    return f"{_FOLLOWS}{keeper}" if pool and pool.coexist is Coexist.YIELD and keeper and waits else ""


def follows_another(plan: Plan) -> bool:
    """True where the plan only waits for another's repair."""
    return plan.would.startswith(_FOLLOWS)


def followed(lines: Iterable[Line]) -> str:
    """Who was followed, by the decisions in the incident's ledger; empty where nobody was."""
    said = (str(line.data.get("would") or "") for line in lines if line.kind == "decision")
    return next((text.removeprefix(_FOLLOWS) for text in reversed(list(said)) if text.startswith(_FOLLOWS)), "")


def held_back(lines: Iterable[Line]) -> bool:
    """True where the last decision waits for a remediator to be switched off."""
    said = [line.text for line in lines if line.kind == "decision"]
    return bool(said) and STILL_ACTS in said[-1]


def yielded(here: Situation, reasons: tuple[str, ...]) -> Plan | None:
    """The plan where another comes first or has just been; None where medevac goes on as elsewhere."""
    context, pool = here.context, here.standing.pool
    if pool is None or pool.coexist is not Coexist.YIELD or not here.suspected or set(here.begun) - {Rung.WAIT}:
        return None
    if who := context.followed or _booted_by(here):
        return _judge(here, who, reasons)
    return _wait(here, reasons)


def cleared(here: Situation) -> Plan | None:
    """Every fault went away while another was followed: evidence, and a check decides once it is done."""
    who, pool = here.context.followed, here.standing.pool
    if not who or pool is None or pool.mode is Mode.OBSERVE or not here.context.check_covers:
        return None
    if here.node.foreign_cordon:
        why = f"the fault went away, and {here.node.foreign_cordon} still has the node"
        return here.make(Action.OBSERVE, (why,), mode=Mode.OBSERVE, faults=(), would=follows(here), quiet_s=LONG_S)
    why = f"the fault went away while {who} had the node in repair; a check decides"
    covers = in_order(here.context.check_covers)
    return here.make(Action.ACT, (why,), faults=(), mark=here.ours, rung=Rung.WAIT, covers=covers, step_s=0.0)


def _booted_by(here: Situation) -> str:
    """Who it was nobody saw, but the machine has been booted since the fault was raised, and not by us."""
    was = {judged.fault.boot_id for judged in here.work} - {None}
    is_now = here.node.machine.boot_id
    return "somebody else" if was and is_now and is_now not in was and not here.begun else ""


def _wait(here: Situation, reasons: tuple[str, ...]) -> Plan | None:
    """Unmarked: some leave a node alone that is cordoned already. A provider's notice has its own time."""
    if not here.context.remediators or here.lead_class is FaultClass.PLANNED or here.begun:
        return None
    names = ", ".join(one.name for one in here.context.remediators)
    left = (min(judged.fault.first_seen for judged in here.work) + BEGINS - here.now).total_seconds()
    if left <= 0:
        return None
    why = f"pool `{here.node.pool}` yields to {names}, which may begin until {here.now + timedelta(seconds=left):%H:%M}"
    return here.make(Action.WATCH, (why, *reasons), mark=here.ours, watch_s=min(left, LOOK_S))


def _judge(here: Situation, who: str, reasons: tuple[str, ...]) -> Plan:
    """The other is done: a check decides, newer than its repair. Where none can, a person does."""
    why = f"{who} had {here.node.name} in repair and is done with it"
    if not here.node.ready:
        return here.make(Action.WATCH, (f"{why}; it isn't ready yet", *reasons), mark=here.ours, watch_s=LOOK_S)
    about = here.work
    covers = in_order({c for judged in about for c in judged.covers})
    boots = {judged.fault.boot_id for judged in about if judged.verdict.fault_class.latched} - {None}
    not_ours = ""
    if here.context.failed:
        not_ours = here.context.failed
    elif not covers or not set(covers) <= here.context.check_covers:
        not_ours = "no check here says that the node is well"
    elif here.node.machine.boot_id in boots:
        not_ours = f"it has not been booted since {about[0].code}, which only a check on a newer boot clears"
    if not_ours:
        # It takes work again, and nothing says that it is well.
        mark = here.ours or (here.standing.mode is Mode.AUTO and not here.node.hands_off)
        return here.make(Action.HAND_OVER, (f"{why}; {not_ours}", *reasons), mark=mark)
    return here.make(
        Action.ACT, (f"{why}; a check decides", *reasons), mark=here.ours, rung=Rung.WAIT, covers=covers, step_s=0.0
    )
