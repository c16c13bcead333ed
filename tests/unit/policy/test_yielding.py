"""`coexist: yield`: the other begins first, is followed, and a check of ours has the last word."""

from __future__ import annotations

from datetime import timedelta

from medevac.faults.classes import ADOPTED, Covers
from medevac.faults.faultset import OpenFault
from medevac.fleet.remediator import Remediator, Switch
from medevac.incident import Line, StepKey
from medevac.policy.plan import Action, Mode, Plan, Rung
from medevac.policy.yielding import followed
from tests.unit.policy.cases import NOW, decide, fault, node, policy, said, with_pool

YIELDS = with_pool(policy(), coexist="yield")
OTHER = (
    Remediator(name="NVSentinel", switch=Switch.ON, seen="deployment nvsentinel/fault-quarantine", off="scale it"),
)
THEIRS = node(foreign_cordon="NVSentinel")
BOOTED = node(boot_id="boot-2")


def sick() -> OpenFault:
    return fault("xid/79", boot_id="boot-1")


def decision(plan: Plan) -> Line:
    """As the workflow writes it."""
    key = StepKey(incident="inc-1", step="decision")
    return Line(key=key, at=NOW, kind="decision", text="", data={"would": plan.would})


def test_the_other_gets_time_to_begin_and_nothing_is_marked_meanwhile() -> None:
    made = decide("xid/79", under=YIELDS, remediators=OTHER)
    assert (made.action, made.mark, made.rung) == (Action.WATCH, False, None)
    assert 0 < made.watch_s <= 60
    assert "NVSentinel" in said(made)


def test_where_it_does_not_begin_medevac_goes_on_as_elsewhere() -> None:
    late = fault("xid/119", first_seen=NOW - timedelta(hours=1))
    made = decide(late, under=YIELDS, remediators=OTHER)
    assert (made.action, made.rung, made.mark) == (Action.ACT, Rung.REBOOT, True)


def test_a_notice_of_the_provider_has_its_own_time() -> None:
    notice = fault("maintenance/retirement", not_before=NOW + timedelta(hours=3))
    assert decide(notice, under=YIELDS, remediators=OTHER).action is Action.ACT


def test_a_node_that_the_other_has_is_left_alone_for_however_long() -> None:
    late = fault("xid/79", first_seen=NOW - timedelta(days=3))
    made = decide(late, under=YIELDS, remediators=OTHER, where=THEIRS)
    assert (made.action, made.mark, made.rung) == (Action.OBSERVE, False, None)
    assert made.quiet_s > timedelta(days=7).total_seconds()
    assert "NVSentinel" in made.would


def test_when_it_is_done_a_check_decides_and_nothing_else_is_done() -> None:
    waited = decision(decide(sick(), under=YIELDS, remediators=OTHER, where=THEIRS))
    who = followed([waited])
    assert who == "NVSentinel"
    made = decide(sick(), under=YIELDS, remediators=OTHER, where=BOOTED, followed=who)
    assert (made.action, made.rung, made.drain, made.mark, made.approval) == (Action.ACT, Rung.WAIT, None, False, None)
    assert made.step_s == 0
    assert set(fault("xid/79").covers) <= set(made.covers)


def test_only_a_decision_to_follow_counts_as_following() -> None:
    assert followed([decision(decide("xid/79", under=policy(Mode.OBSERVE)))]) == ""


def test_the_node_is_checked_only_once_it_is_ready_and_free() -> None:
    again = node(foreign_cordon="NVSentinel", boot_id="boot-2")
    assert decide(sick(), under=YIELDS, where=again, followed="NVSentinel").action is Action.OBSERVE
    away = node(boot_id="boot-2", ready=False)
    assert decide(sick(), under=YIELDS, where=away, followed="NVSentinel").action is Action.WATCH


def test_what_a_check_cannot_clear_goes_to_a_person() -> None:
    same_boot = decide(sick(), under=YIELDS, where=node(), followed="NVSentinel")
    uncovered = decide(sick(), under=YIELDS, where=BOOTED, followed="NVSentinel", check_covers=frozenset())
    failed = decide(
        sick(), under=YIELDS, where=BOOTED, followed="NVSentinel", asked_rungs=(Rung.WAIT,), failed="the check says no"
    )
    for made in (same_boot, uncovered, failed):
        assert (made.action, made.mark, made.rung) == (Action.HAND_OVER, True, None)
        assert "NVSentinel" in said(made)


def test_a_repair_that_nobody_saw_is_checked_too() -> None:
    made = decide(sick(), under=YIELDS, remediators=OTHER, where=BOOTED)
    assert (made.action, made.rung, made.drain) == (Action.ACT, Rung.WAIT, None)


def test_a_fault_that_went_away_meanwhile_is_evidence_not_proof() -> None:
    made = decide(under=YIELDS, where=BOOTED, followed="NVSentinel")
    assert (made.action, made.rung, set(made.covers)) == (Action.ACT, Rung.WAIT, set(Covers))
    assert decide(under=YIELDS, where=THEIRS, followed="NVSentinel").action is Action.OBSERVE
    assert decide(under=YIELDS, where=BOOTED).action is Action.WITHDRAW


def test_in_mode_observe_no_check_is_run_either() -> None:
    watched = with_pool(policy(Mode.OBSERVE), coexist="yield")
    assert decide(sick(), under=watched, where=BOOTED, followed="NVSentinel").action is Action.OBSERVE
    assert decide(under=watched, where=BOOTED, followed="NVSentinel").action is Action.WITHDRAW


def test_what_was_adopted_waits_for_a_person_with_no_step_and_may_be_checked() -> None:
    made = decide(ADOPTED, where=node(foreign_cordon="alice"))
    assert (made.action, made.mark, made.rung) == (Action.OBSERVE, False, None)
    assert made.quiet_s > timedelta(days=7).total_seconds()
    assert set(made.covers) == set(Covers)
