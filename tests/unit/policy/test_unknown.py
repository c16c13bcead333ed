"""An alert that nobody repeats any more is neither clear nor still there: nothing is destroyed for it."""

from __future__ import annotations

from datetime import datetime, timedelta

from medevac.events.event import Statement
from medevac.faults.open_fault import OpenFault, Raiser
from medevac.policy.plan import Action, Rung
from tests.unit.policy.cases import HOUR, NOW, decide, fault, said

HOT = "thermal/gpu"


def hot(last: datetime, **given: object) -> OpenFault:
    raiser = Raiser(source="alertmanager", sender="prom", dedupe_key="k", last_seen=last, statement=Statement.LEVEL)
    return fault(HOT, raised_by=(raiser,), first_seen=last - HOUR, last_seen=last, **given)


def test_while_it_is_repeated_it_is_acted_on() -> None:
    assert decide(hot(NOW - HOUR)).action is Action.ACT


def test_unrepeated_for_two_intervals_nothing_is_destroyed() -> None:
    plan = decide(hot(NOW - 9 * HOUR))
    assert plan.action is Action.WATCH
    assert "whether it still holds" in said(plan)


def test_after_a_day_a_person_looks() -> None:
    assert decide(hot(NOW - timedelta(days=2))).action is Action.HAND_OVER


def test_a_latched_fault_stands_whatever_is_said_and_what_was_begun_goes_on() -> None:
    assert decide(fault("xid/79", first_seen=NOW - 48 * HOUR, last_seen=NOW - 48 * HOUR)).action is Action.ACT
    assert decide(hot(NOW - 9 * HOUR), asked_rungs=(Rung.REBOOT,)).action is not Action.WATCH
