"""Which rung comes next, and why the others don't."""

from __future__ import annotations

from datetime import timedelta

import pytest

from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import ABLE, Capability, Node
from medevac.policy.plan import Action, History, Rung
from tests.unit.policy.cases import DAY, NOW, attempt, bare, decide, fault, node, policy, said

REPLACE_AUTO = {"simulated_only": True, "auto": [rung.value for rung in Rung]}


@pytest.mark.parametrize(
    ("code", "where", "rung"),
    [
        ("xid/119", node(), Rung.REBOOT),
        ("xid/62", node(), Rung.REBOOT),
        ("xid/79", node(), Rung.REPLACE),
        ("xid/48", node(), Rung.REPLACE),
        ("xid/64", node(), Rung.REPLACE),
        ("xid/74", node(), Rung.REPLACE),
        ("xid/119", bare(), Rung.REBOOT),
        ("xid/79", bare(), Rung.REBOOT),
        ("xid/64", bare(), Rung.RMA),
        ("row-remap/failure", bare(), Rung.RMA),
        ("condition/CorruptDockerOverlay2", bare(), Rung.REINSTALL),
    ],
)
def test_first_rung(code: str, where: Node, rung: Rung) -> None:
    assert decide(code, where=where).rung is rung


def test_a_reboot_that_mends_only_one_of_two_faults_is_passed_over() -> None:
    made = decide("xid/119", "xid/48")
    assert made.rung is Rung.REPLACE
    assert "reboot: it is not known to mend xid/48" in said(made)


def test_the_ladder_of_bare_metal_goes_on_where_it_stands() -> None:
    asked: list[Rung] = []
    for expected in (Rung.REBOOT, Rung.REBOOT, Rung.REINSTALL, Rung.RMA, None):
        made = decide("xid/79", where=bare(), asked_rungs=tuple(asked))
        assert made.rung is expected
        asked.append(expected or Rung.ESCALATE)
    assert made.action is Action.HAND_OVER
    assert "no rung of ladder `bare_metal` is left" in said(made)
    assert "reboot: this incident is past it" in said(made)


def test_attempts_of_the_week_count_through_other_incidents() -> None:
    week = History(attempts=tuple(attempt(Rung.REBOOT, of=f"inc-{i}", ago=i * DAY) for i in (2, 5)))
    made = decide("xid/79", where=bare(), history=week)
    assert made.rung is Rung.REINSTALL
    assert "reboot: tried twice on this machine in 7 d" in said(made)
    month = History(attempts=tuple(attempt(Rung.REBOOT, of=f"inc-{i}", ago=i * DAY) for i in (8, 9)))
    assert decide("xid/79", where=bare(), history=month).rung is Rung.REBOOT


def test_reboots_of_all_classes_count_together() -> None:
    week = History(attempts=(attempt(Rung.REBOOT), attempt(Rung.REBOOT, of="inc-9", fault_class=FaultClass.DEGRADED)))
    made = decide("xid/79", where=bare(), history=week)
    assert made.rung is Rung.REINSTALL
    assert "rebooted twice" in said(made)


def test_a_rung_that_the_ledger_lacks_yet_is_counted_once() -> None:
    known = History(attempts=(attempt(Rung.REBOOT, of="inc-1", ago=timedelta(minutes=5)),))
    made = decide("xid/79", where=bare(), history=known, asked_rungs=(Rung.REBOOT,))
    assert (made.rung, made.attempt, made.of) == (Rung.REBOOT, 2, 2)
    made = decide("xid/79", where=bare(), asked_rungs=(Rung.REBOOT,))
    assert (made.rung, made.attempt) == (Rung.REBOOT, 2)


def test_a_class_that_a_rule_raised_is_counted_with_what_the_ledger_calls_it() -> None:
    rule = {"name": "worse", "match": {"codes": ["xid/119"]}, "raise_to": "critical", "do": "repair"}
    week = History(
        attempts=tuple(attempt(Rung.REPLACE, of=f"inc-{i}", fault_class=FaultClass.DEGRADED) for i in range(2))
    )
    made = decide("xid/119", under=policy(rules=[rule]), history=week, asked_rungs=(Rung.REBOOT,))
    assert made.fault_class is FaultClass.CRITICAL
    assert made.action is Action.HAND_OVER


@pytest.mark.parametrize("missing", [Capability.REBOOT, Capability.REINSTALL])
def test_never_a_rung_that_the_machine_cannot_do(missing: Capability) -> None:
    where = bare(capabilities=ABLE - {missing})
    made = decide("xid/79", where=where, asked_rungs=(Rung.REBOOT,) * 2 if missing is Capability.REINSTALL else ())
    assert made.rung is not None
    assert made.rung.value != missing.value
    assert f"ironworks can't {missing}" in said(made)


def test_a_gpu_reset_is_used_only_where_it_is_written() -> None:
    assert all(step.rung is not Rung.RESET_GPU for ladder in policy().ladders.values() for step in ladder)
    ladders = policy().model_dump(mode="json")["ladders"]
    ladders["bare_metal"] = [{"rung": "reset_gpu"}, *ladders["bare_metal"]]
    assert decide("xid/79", where=bare(), under=policy(ladders=ladders)).rung is Rung.RESET_GPU


# -- the driver's own recommendation -----------------------------------------------------------------------------


def advised(rung: str, **given: object) -> object:
    covers = (Covers.COMPUTE, Covers.MEMORY, Covers.LINK)
    return fault("xid/154", fault_class=FaultClass.DEGRADED, covers=covers, advice=rung, **given)


def test_the_driver_may_choose_the_first_rung() -> None:
    ladders = policy().model_dump(mode="json")["ladders"]
    ladders["bare_metal"] = [{"rung": "reset_gpu"}, *ladders["bare_metal"]]
    under = policy(ladders=ladders)
    made = decide("xid/95", advised("reboot"), where=bare(), under=under)  # type: ignore[arg-type]
    assert made.rung is Rung.REBOOT
    assert "the driver itself recommends reboot" in said(made)


def test_the_driver_may_ask_for_a_reboot_of_a_virtual_machine() -> None:
    assert decide("xid/95", advised("reboot")).rung is Rung.REBOOT  # type: ignore[arg-type]
    assert decide("xid/95", advised("reset_gpu")).rung is Rung.REBOOT  # type: ignore[arg-type]


def test_the_driver_is_not_heard_beside_a_failed_remap() -> None:
    assert decide("xid/64", advised("reboot")).rung is Rung.REPLACE  # type: ignore[arg-type]
    assert decide("xid/64", advised("reboot"), where=bare()).rung is Rung.RMA  # type: ignore[arg-type]


def test_what_no_rung_does_goes_to_a_person() -> None:
    made = decide("xid/74", advised("escalate"), where=bare())  # type: ignore[arg-type]
    assert made.action is Action.HAND_OVER
    assert decide("xid/54", where=bare()).action is Action.HAND_OVER


# -- eject -------------------------------------------------------------------------------------------------------


def test_a_ladder_may_end_with_a_person() -> None:
    ladders = policy().model_dump(mode="json")["ladders"] | {"bare_metal": [{"rung": "reboot"}, {"rung": "escalate"}]}
    made = decide("xid/79", where=bare(), under=policy(ladders=ladders), asked_rungs=(Rung.REBOOT,))
    assert (made.action, made.rung) == (Action.HAND_OVER, Rung.ESCALATE)


def test_every_rung_may_go_by_itself_in_a_simulation_only() -> None:
    made = decide("xid/79", where=node(simulated=True), under=policy(**REPLACE_AUTO))
    assert (made.rung, made.approval) == (Rung.REPLACE, None)


def test_a_wait_has_no_end_before_the_providers_event_has() -> None:
    notice = fault("maintenance/reboot", not_before=NOW + timedelta(hours=1), ends_at=NOW + timedelta(hours=3))
    made = decide(notice)
    assert (made.rung, made.step_s) == (Rung.WAIT, 3 * 3_600 + 14_400)
