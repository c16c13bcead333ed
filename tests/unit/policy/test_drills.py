"""A drill climbs the true ladder, says so first, yields to work, and troubles nobody outside."""

from __future__ import annotations

from datetime import timedelta

from medevac.events.drill import A_DRILL, drill_event
from medevac.events.event import HealthEvent, Kind
from medevac.faults import catalogue
from medevac.faults.faultset import FaultSet
from medevac.policy.plan import Action, Mode, Rung
from tests.unit.policy.cases import NOW, bare, decide, job, policy


def played(fault: str = "xid/79") -> FaultSet:
    return FaultSet().observe(drill_event("c", "n1", fault, "ann", "before the night", NOW), NOW).faults


def test_it_is_the_true_ladder_and_says_that_it_is_a_drill() -> None:
    drill, true = decide(faults=played(), where=bare()), decide("xid/79", where=bare())
    assert (drill.action, drill.rung, drill.drain, drill.approval) == (
        true.action,
        true.rung,
        true.drain,
        true.approval,
    )
    assert drill.reasons == (A_DRILL, *true.reasons)


def test_it_asks_and_observes_as_the_policy_says() -> None:
    assert decide(faults=played(), under=policy(Mode.OBSERVE)).action is Action.OBSERVE
    assert decide(faults=played(), under=policy(Mode.APPROVE)).approval is not None


def test_work_that_came_to_the_node_ends_it() -> None:
    made = decide(faults=played(), workloads=(job(),))
    assert (made.action, made.mark) == (Action.WITHDRAW, False)
    assert "work has come" in made.reasons[1]


def test_what_was_begun_is_carried_to_its_end() -> None:
    made = decide(faults=played(), where=bare(), workloads=(job(),), asked_rungs=(Rung.REBOOT,))
    assert made.action is not Action.WITHDRAW


def test_it_opens_no_ticket() -> None:
    asked = (Rung.REBOOT, Rung.REBOOT, Rung.REINSTALL)
    assert decide("xid/79", where=bare(), asked_rungs=asked).rung is Rung.RMA
    made = decide(faults=played(), where=bare(), asked_rungs=asked)
    assert (made.action, made.ticket) == (Action.HAND_OVER, False)
    assert "a drill opens no ticket" in made.reasons[1]


def test_one_true_statement_makes_it_an_incident_like_any_other() -> None:
    true = HealthEvent(source="kmsg", id="e", dedupe_key="k", kind=Kind.FAULT, fault="xid/79")
    both = played().observe(catalogue.classify(true), NOW + timedelta(seconds=1)).faults
    assert not both.drill
    assert A_DRILL not in decide(faults=both).reasons
