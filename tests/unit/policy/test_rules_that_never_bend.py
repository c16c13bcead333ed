"""One test for each rule of the shipped defaults that the planner answers for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from medevac.events.event import HealthEvent, Kind, Severity, Statement
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.open_fault import OpenFault, Raiser
from medevac.fleet.node import Capability
from medevac.fleet.remediator import Remediator, Switch
from medevac.policy.plan import Action, Drain, History, Latch, Mode, Rung
from medevac.policy.policy import Policy
from tests.unit.policy.cases import (
    DAY,
    HOUR,
    NOW,
    attempt,
    bare,
    decide,
    fault,
    job,
    node,
    past,
    policy,
    said,
    with_pool,
)  # fmt: skip

# -- 1: a fault without an explicit rule notifies and does nothing else ------------------------------------------


def test_an_alert_that_no_table_knows_is_told_and_nothing_else() -> None:
    made = decide(fault("alert/SomethingIsOdd", severity=Severity.CRITICAL))
    assert made.action is Action.OBSERVE
    assert not made.mark
    assert made.rung is None
    assert "told and nothing else" in said(made)


def test_a_policy_without_rules_does_nothing_about_anything() -> None:
    made = decide("xid/79", under=policy(rules=()))
    assert (made.action, made.mark) == (Action.OBSERVE, False)


def test_a_senders_severity_never_marks() -> None:
    made = decide(fault("xid/13", severity=Severity.CRITICAL))
    assert made.action is Action.RECORD


def test_what_its_sender_forbids_to_act_on_is_only_told() -> None:
    made = decide(fault("xid/79", actionable=False))
    assert made.action is Action.OBSERVE
    assert "can't be acted on" in said(made)


# -- 2: observe touches nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["xid/79", "xid/119", "thermal/gpu-temp", "maintenance/reboot", "monitor/exporter-silent"]
)
def test_observe_touches_nothing_and_says_what_it_would_do(code: str) -> None:
    made = decide(code, under=policy(Mode.OBSERVE))
    assert made.action is Action.OBSERVE
    assert not made.mark
    assert made.approval is None
    assert made.would.startswith("would ")


def test_observe_names_the_steps() -> None:
    made = decide("xid/119", under=policy(Mode.OBSERVE))
    assert made.would == (
        "would mark the node, then evacuate it within 45 min (checkpoint), then reboot it (attempt 1 of 2), "
        "then check compute, service"
    )


def test_a_hand_over_in_observe_marks_nothing() -> None:
    made = decide("xid/79", under=policy(Mode.OBSERVE), hand_over="the mode was lowered")
    assert (made.action, made.mark) == (Action.HAND_OVER, False)


def test_of_pool_and_rule_the_stricter_mode_wins() -> None:
    rules = policy().model_dump(mode="json")["rules"]
    careful = [{"name": "careful", "match": {"codes": ["xid/79"]}, "mode": "observe"}, *rules]
    assert decide("xid/79", under=policy(rules=careful)).action is Action.OBSERVE
    assert decide("xid/119", under=policy(rules=careful)).action is Action.ACT
    eager = [{"name": "eager", "match": {"codes": ["xid/79"]}, "mode": "auto"}, *rules]
    assert decide("xid/79", under=policy(Mode.OBSERVE, rules=eager)).action is Action.OBSERVE


# -- 4: nothing is returned without a check that covers it -------------------------------------------------------


def test_no_check_that_covers_the_fault_means_no_rung_and_a_person() -> None:
    made = decide("xid/79", where=bare(), check_covers=frozenset({Covers.SERVICE, Covers.COMPUTE}))
    assert made.action is Action.HAND_OVER
    assert made.mark
    assert [p.rung for p in made.passed_over] == [Rung.REBOOT, Rung.REINSTALL, Rung.RMA]
    assert "no check covers bus" in said(made)


def test_an_alert_that_a_rule_names_needs_to_say_what_proves_it() -> None:
    rule = {"name": "ours", "match": {"codes": ["alert/OurGpuBroken"]}, "raise_to": "degraded", "do": "repair"}
    made = decide("alert/OurGpuBroken", under=policy(rules=[rule]))
    assert made.action is Action.HAND_OVER
    assert "give its rule `covers`" in said(made)
    made = decide("alert/OurGpuBroken", under=policy(rules=[rule | {"covers": ["service"]}]))
    assert made.rung is Rung.REBOOT
    assert made.covers == (Covers.SERVICE,)


def test_a_clear_after_a_reboot_was_begun_is_evidence_and_a_check_decides() -> None:
    begun = History(attempts=(attempt(Rung.REBOOT, of="inc-1", ago=timedelta(minutes=5)),))
    made = decide(asked_rungs=(Rung.REBOOT,), history=begun)
    assert (made.action, made.rung, made.drain) == (Action.ACT, Rung.WAIT, None)
    assert made.covers == (Covers.BUS, Covers.COMPUTE)
    made = decide(asked_rungs=(Rung.REBOOT,), history=begun, check_covers=frozenset())
    assert made.action is Action.HAND_OVER


def test_a_clear_before_anything_was_begun_withdraws() -> None:
    assert decide().action is Action.WITHDRAW


# -- 5: a foreign cordon or hands-off makes every destructive step ask -------------------------------------------


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.APPROVE])
@pytest.mark.parametrize("given", [{"foreign_cordon": "ann"}, {"hands_off": "ann"}])
def test_what_someone_else_keeps_is_asked_about_in_every_mode(mode: Mode, given: dict[str, str]) -> None:
    made = decide("xid/119", where=node(**given), under=policy(mode))
    assert made.approval is not None
    assert any("ann" in why for why in made.approval.why)
    planned = decide(fault("maintenance/reboot", not_before=NOW + HOUR), where=node(**given), under=policy(mode))
    assert planned.approval is not None


def test_a_node_with_hands_off_is_marked_only_after_the_approval() -> None:
    made = decide("xid/119", where=node(hands_off="ann"))
    assert made.mark
    assert made.mark_after_approval


# -- 6: never disrupted unless a policy names them ---------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        node(pool=None), node(pool="other"), node(gpus=0), node(roles=("control-plane",)), node(roles=("etcd",)),
        node(roles=("medevac",)), node(roles=("storage",)), node(cluster="elsewhere"),
    ],
)  # fmt: skip
def test_never_disrupted_unless_named(where: object) -> None:
    made = decide("xid/79", where=where)  # type: ignore[arg-type]
    assert made.action is Action.OBSERVE
    assert not made.mark


def test_roles_that_the_pool_includes_may_be_disrupted() -> None:
    made = decide(
        "xid/119", where=node(roles=("control-plane",)), under=with_pool(policy(), includes=["control-plane"])
    )
    assert made.action is Action.ACT


def test_storage_goes_one_at_a_time_and_only_while_its_probe_passes() -> None:
    base = policy().model_dump(mode="json")
    base["pools"]["train"] |= {"includes": ["storage"], "storage_probe": "weka"}
    base["limits"]["at_once"]["storage"] = {"count": 1, "percent": 0}
    under, where = Policy.model_validate(base), node(roles=("storage",))
    assert decide("xid/119", where=where, under=under).action is Action.OBSERVE
    held = decide("xid/119", where=where, under=under, storage_ok=False, storage_why="a backend is down")
    assert held.action is Action.OBSERVE
    assert "`weka` has not passed just now: a backend is down" in said(held)
    assert held.watch_s > 0, "it is looked at again"
    assert not decide("xid/119", where=node(roles=("etcd", "storage")), under=under).watch_s, "more than that holds it"
    made = decide("xid/119", where=where, under=under, storage_ok=True)
    assert made.action is Action.ACT
    assert made.domains["storage"] == "c"


def test_a_node_that_two_pools_take_belongs_to_none() -> None:
    base = policy().model_dump(mode="json")
    base["pools"]["also"] = {"clusters": ["c"], "select": {"labels": {"a": "b"}}, "mode": "auto"}
    made = decide("xid/79", where=node(labels={"a": "b"}), under=Policy.model_validate(base))
    assert made.action is Action.OBSERVE
    assert "several pools" in said(made)


def test_an_unknown_node_is_only_told() -> None:
    made = decide("xid/79", nowhere=True)
    assert (made.action, made.mark) == (Action.OBSERVE, False)
    assert "n1 is not in cluster c" in said(made)


def test_a_node_that_vanished_in_mid_repair_goes_to_a_person() -> None:
    assert decide("xid/79", nowhere=True, asked_rungs=(Rung.REBOOT,)).action is Action.HAND_OVER


def test_a_node_that_someone_took_away_ends_the_incident() -> None:
    made = decide("xid/79", nowhere=True, seen=True)
    assert (made.action, made.gone) == (Action.WITHDRAW, True)
    assert not decide("xid/79", nowhere=True, seen=True, asked_rungs=(Rung.REPLACE,)).gone, (
        "its successor is still awaited"
    )


def test_what_cannot_be_read_is_a_no_and_is_looked_at_again() -> None:
    made = decide("xid/79", nowhere=True, unreadable="the API server doesn't answer", asked_rungs=(Rung.REBOOT,))
    assert (made.action, made.mark) == (Action.WATCH, False)
    assert made.watch_s > 0


# -- 7: what was there before is left alone until it is adopted --------------------------------------------------


def test_older_trouble_waits_for_adoption() -> None:
    made = decide("xid/79", acting_since=NOW + HOUR)
    assert made.action is Action.OBSERVE
    assert "`medevac adopt --node c/n1`" in said(made)
    assert decide("xid/79", acting_since=NOW + HOUR, adopted=True).action is Action.ACT
    assert decide("xid/79", acting_since=NOW - HOUR).action is Action.ACT


# -- 8: another remediator caps the pool at observe --------------------------------------------------------------


KARPENTER = Remediator(name="Karpenter", switch=Switch.ON, seen="deployment karpenter", off="kubectl set env ...")
PERHAPS = KARPENTER.model_copy(update={"switch": Switch.OUTSIDE})


def test_another_remediator_caps_the_pool_until_the_policy_speaks() -> None:
    for there in (KARPENTER, PERHAPS):
        made = decide("xid/79", remediators=(there,))
        assert (made.action, made.mark) == (Action.OBSERVE, False)
        assert "coexist" in said(made)
    theirs = node(foreign_cordon="Karpenter")
    yields = with_pool(policy(), coexist="yield")
    assert decide("xid/119", remediators=(KARPENTER,), under=yields, where=theirs).action is Action.OBSERVE


def test_own_is_refused_while_the_other_still_acts_and_says_what_ends_that() -> None:
    owned = with_pool(policy(), coexist="own")
    for switch in (Switch.ON, Switch.UNREADABLE):
        made = decide("xid/119", remediators=(KARPENTER.model_copy(update={"switch": switch}),), under=owned)
        assert (made.action, made.mark) == (Action.OBSERVE, False)
        assert "kubectl set env" in said(made)
    assert decide("xid/119", remediators=(PERHAPS,), under=owned).action is Action.ACT
    assert decide("xid/119", under=owned).action is Action.ACT


# -- 9: where the world sets the deadline ------------------------------------------------------------------------


def test_leaving_before_todays_retirement_needs_no_vote_even_in_approve() -> None:
    made = decide(fault("maintenance/retirement", not_before=NOW + 3 * HOUR), under=policy(Mode.APPROVE))
    assert (made.action, made.rung, made.approval) == (Action.ACT, Rung.WAIT, None)
    assert made.mark
    assert not made.mark_after_approval


def test_nothing_else_is_exempt_in_approve() -> None:
    for code in ("xid/119", "thermal/gpu-temp"):
        made = decide(code, under=policy(Mode.APPROVE), at=NOW + HOUR)
        assert made.approval is not None


def test_observe_stays_observe_before_a_retirement() -> None:
    made = decide(fault("spot-interruption", not_before=NOW + timedelta(minutes=2)), under=policy(Mode.OBSERVE))
    assert made.action is Action.OBSERVE


# -- a simulated policy and a real node --------------------------------------------------------------------------


def test_a_policy_for_simulations_touches_no_real_node() -> None:
    under = policy(simulated_only=True)
    assert decide("xid/119", under=under).action is Action.OBSERVE
    assert decide("xid/119", under=under, where=node(simulated=True)).action is Action.ACT


# -- classes -----------------------------------------------------------------------------------------------------


def test_critical_is_marked_at_once_and_drained_soon() -> None:
    for mode in (Mode.AUTO, Mode.APPROVE):
        made = decide("xid/79", under=policy(mode), where=bare())
        assert (made.mark, made.mark_after_approval) == (True, False)
        assert (made.drain, made.drain_s) == (Drain.SOON, 900)


def test_degraded_drains_at_the_next_checkpoint_and_its_mark_waits_in_approve() -> None:
    made = decide("xid/119")
    assert (made.mark, made.mark_after_approval, made.drain, made.drain_s) == (True, False, Drain.CHECKPOINT, 2_700)
    made = decide("xid/119", under=policy(Mode.APPROVE))
    assert (made.mark, made.mark_after_approval) == (True, True)


def test_what_may_clear_is_marked_watched_and_acted_on_if_it_stays() -> None:
    made = decide("thermal/gpu-temp", at=NOW + timedelta(minutes=4))
    assert (made.action, made.mark, made.watch_s) == (Action.WATCH, True, 360)
    made = decide("thermal/gpu-temp", at=NOW + timedelta(minutes=10))
    assert made.action is Action.ACT


def test_the_mark_of_a_watched_node_waits_in_approve() -> None:
    assert not decide("thermal/gpu-temp", under=policy(Mode.APPROVE)).mark


def test_a_notice_far_ahead_disturbs_nobody_until_its_drain_must_begin() -> None:
    notice = fault("maintenance/reboot", not_before=NOW + 3 * DAY, ends_at=NOW + 3 * DAY + 2 * HOUR)
    made = decide(notice)
    assert (made.action, made.mark, made.watch_s) == (Action.WATCH, False, 2 * 86_400)
    made = decide(notice, at=NOW + 2 * DAY)
    assert (made.action, made.drain, made.rung) == (Action.ACT, Drain.JOB_END, Rung.WAIT)
    assert made.drain_s <= 86_400 - 600
    assert (made.job_end_evicts, made.job_end_need) == (True, None), "the machine goes anyway: no vote before it"
    assert made.step_s >= 26 * 3_600


def test_jobs_that_a_policy_lets_run_on_do_so_until_the_machine_goes() -> None:
    notice = fault("maintenance/reboot", not_before=NOW + DAY, ends_at=NOW + DAY + 2 * HOUR)
    made = decide(notice, under=policy(drains={"at_job_end": "hand_over"}))
    assert (made.drain, made.job_end_evicts, made.job_end_need) == (Drain.JOB_END, False, None)


def test_a_spot_notice_of_two_minutes_is_drained_now() -> None:
    made = decide(fault("spot-interruption", not_before=NOW + timedelta(seconds=60)))
    assert made.drain is Drain.NOW
    assert 0 < made.drain_s < 60


def test_a_planned_drain_is_not_missed_while_something_else_is_watched() -> None:
    notice = fault("maintenance/reboot", not_before=NOW + DAY + timedelta(minutes=2))
    made = decide("thermal/gpu-temp", notice)
    assert (made.action, made.watch_s) == (Action.WATCH, 120)
    assert decide("thermal/gpu-temp", notice, at=NOW + timedelta(minutes=2)).action is Action.ACT


@pytest.mark.parametrize("code", ["xid/13", "xid/31", "xid/43", "xid/63", "xid/92", "xid/94"])
def test_a_jobs_own_doing_and_records_are_recorded(code: str) -> None:
    made = decide(code)
    assert (made.action, made.mark) == (Action.RECORD, False)


def test_a_broken_monitor_is_restarted_and_never_touches_its_node() -> None:
    made = decide("monitor/exporter-silent")
    assert (made.action, made.rung, made.drain, made.mark) == (Action.ACT, Rung.RESTART_AGENT, None, False)
    tired = History(attempts=tuple(attempt(Rung.RESTART_AGENT, fault_class=FaultClass.MONITOR) for _ in range(2)))
    made = decide("monitor/exporter-silent", history=tired)
    assert (made.action, made.mark) == (Action.OBSERVE, False)
    assert decide("monitor/exporter-silent", where=node(capabilities=frozenset())).action is Action.OBSERVE


def test_a_broken_monitor_beside_a_broken_node_changes_nothing_about_the_node() -> None:
    made = decide("xid/79", "monitor/exporter-silent", where=bare())
    assert (made.cause, made.rung) == ("xid/79", Rung.REBOOT)


def test_records_that_join_change_no_plan() -> None:
    assert decide("xid/119").hash == decide("xid/119", "xid/63", "xid/13").hash


def test_the_shortest_drain_of_all_faults_counts() -> None:
    made = decide("xid/119", "xid/79", where=bare())
    assert (made.cause, made.drain) == ("xid/79", Drain.SOON)


# -- who is asked ------------------------------------------------------------------------------------------------


def test_who_may_say_yes() -> None:
    reboot = decide("xid/119", under=policy(Mode.APPROVE)).approval
    assert reboot is not None
    assert (reboot.groups, reboot.threshold) == (("operator", "approver"), 1)
    replace = decide("xid/79").approval
    assert replace is not None
    assert (replace.groups, replace.threshold, replace.expires_s) == (("approver",), 1, 14_400)


def test_a_reboot_in_auto_asks_nobody() -> None:
    assert decide("xid/119").approval is None


def test_reserved_capacity_is_repaired_before_it_is_replaced_and_takes_two() -> None:
    first = decide("xid/79", where=node(reserved=True))
    assert first.rung is Rung.REBOOT
    then = decide("xid/79", where=node(reserved=True), asked_rungs=(Rung.REBOOT,))
    assert then.rung is Rung.REPLACE
    assert then.approval is not None
    assert then.approval.threshold == 2
    assert any("reserved slot" in what for what in then.destroys)


def test_a_reboot_that_is_a_stop_and_a_start_asks_and_says_what_it_loses() -> None:
    moved = frozenset({Capability.REBOOT, Capability.REBOOT_MOVES})
    kept = decide(
        "xid/119", where=node(capabilities=moved - {Capability.REBOOT_MOVES}, public_addresses=("192.0.2.7",))
    )
    assert (kept.rung, kept.approval, kept.destroys) == (Rung.REBOOT, None, ())
    made = decide("xid/119", where=node(capabilities=moved, public_addresses=("192.0.2.7",)))
    assert (made.mode, made.rung) == (Mode.AUTO, Rung.REBOOT)
    assert made.approval is not None, "it goes without a question"
    assert any("stop and a start" in why for why in made.approval.why)
    assert made.approval.groups == policy().who_may.replace.groups
    assert made.destroys == (
        "the machine's local disks (nobody is known to use them)",
        "the public address 192.0.2.7 of the machine, unless it is elastic",
    )
    used = decide("xid/119", where=node(capabilities=moved, local_data_in_use=("instance-store /scratch",)))
    assert used.approval is not None
    assert used.approval.threshold == 2
    assert "local data in use: instance-store /scratch" in used.destroys


def test_a_public_address_that_goes_with_its_machine_is_named() -> None:
    made = decide("xid/79", where=node(public_addresses=("192.0.2.7",)))
    assert made.rung is Rung.REPLACE
    assert "the public address 192.0.2.7 of the machine" in made.destroys


def test_local_data_in_use_is_named_and_takes_two_in_any_mode() -> None:
    under = policy(simulated_only=True, auto=[rung.value for rung in Rung])
    where = node(simulated=True, local_data_in_use=("instance-store /scratch",))
    made = decide("xid/79", where=where, under=under)
    assert made.rung is Rung.REPLACE
    assert made.approval is not None
    assert made.approval.threshold == 2
    assert "local data in use: instance-store /scratch" in made.destroys


def test_a_reboot_keeps_disks_and_loses_memory() -> None:
    where = bare(local_data_in_use=("in-memory checkpoint of llm-1", "instance-store /scratch"))
    made = decide("xid/79", where=where)
    assert made.rung is Rung.REBOOT
    assert [what for what in made.destroys if "local data" in what] == [
        "local data in use: in-memory checkpoint of llm-1"
    ]
    assert made.approval is not None


def test_the_loss_is_printed_in_gpu_hours() -> None:
    saved = decide("xid/119", workloads=(job(last_checkpoint=NOW - HOUR / 2),))
    assert any("32.0 GPU-hours since its checkpoint" in what for what in saved.destroys)
    unknown = decide("xid/119", workloads=(job(),))
    assert any("no checkpoint is known" in what for what in unknown.destroys)
    began = decide("xid/119", workloads=(job(started_at=NOW - HOUR * 3),))
    [lost] = [what for what in began.destroys if "GPU-hours" in what]
    assert lost.endswith("192.0 GPU-hours since it began at 2026-05-01 09:00 UTC, no checkpoint is known")
    every = policy(checkpoints=[{"namespaces": ["research"], "interval": "15m"}])
    bounded = decide("xid/119", workloads=(job(),), under=every)
    assert any("at most 16.0 GPU-hours" in what for what in bounded.destroys)


# -- a no holds --------------------------------------------------------------------------------------------------


def latch(*codes: str, hours: int = 20) -> History:
    held = Latch(why="the team needs it until Friday", faults=codes, by="ann", until=NOW + hours * HOUR)
    return History(latches=(held,))


def test_a_no_holds_for_that_machine_and_its_faults() -> None:
    made = decide("xid/119", history=latch("xid/119"))
    assert (made.action, made.mark) == (Action.HAND_OVER, False)
    assert made.reasons[0].startswith("ann said no: the team needs it until Friday")
    assert "2026-05-02 08:00" in made.reasons[0]
    assert decide("xid/119", history=latch("xid/119", hours=-1)).action is Action.ACT
    assert decide("xid/79", history=latch("xid/119"), where=bare()).action is Action.ACT


def test_a_worse_fault_asks_again_and_another_of_the_same_kind_does_not() -> None:
    assert decide("xid/119", "xid/79", history=latch("xid/119"), where=bare()).action is Action.ACT
    assert decide("xid/119", "xid/120", history=latch("xid/119")).action is Action.HAND_OVER


def test_our_own_mark_stays_after_a_no() -> None:
    made = decide("xid/79", history=latch("xid/79"), where=bare(marked_by="inc-1"))
    assert (made.action, made.mark) == (Action.HAND_OVER, True)


# -- how often ---------------------------------------------------------------------------------------------------


def test_the_third_incident_of_a_class_starts_at_the_last_rung() -> None:
    twice = History(incidents=(past("a"), past("b", ago=2 * DAY)))
    made = decide("xid/79", where=bare(), history=twice)
    assert made.rung is Rung.RMA
    assert "incident 3" in said(made)
    old = History(incidents=(past("a"), past("b", ago=8 * DAY)))
    assert decide("xid/79", where=bare(), history=old).rung is Rung.REBOOT


def test_what_cleared_by_itself_is_no_repeat_offence_unless_its_class_cannot() -> None:
    def twice(fault_class: FaultClass) -> History:
        return History(incidents=tuple(past(i, fault_class=fault_class, end="withdrawn") for i in "ab"))

    hot = decide("thermal/gpu-temp", at=NOW + HOUR, where=bare(), history=twice(FaultClass.TRANSIENT))
    assert hot.rung is Rung.REBOOT
    assert decide("xid/79", where=bare(), history=twice(FaultClass.CRITICAL)).rung is Rung.RMA


def test_the_same_fault_on_the_successor_calls_a_person() -> None:
    made = decide("xid/79", history=History(succeeds=past("a", fault="xid/79")))
    assert (made.action, made.mark) == (Action.HAND_OVER, True)
    assert "came in place of one with xid/79" in said(made)
    assert decide("xid/119", history=History(succeeds=past("a", fault="xid/79"))).action is Action.ACT


# -- the workflow's own word -------------------------------------------------------------------------------------


def test_an_incident_that_the_ledger_has_ended_does_nothing_more() -> None:
    made = decide("xid/79", history=History(this_incident_ended=True), hand_over="x")
    assert made.action is Action.WITHDRAW
    assert "the ledger says" in said(made)


def test_a_hand_over_says_why_and_stays_marked() -> None:
    made = decide("xid/79", hand_over="evacuate is blocked by serving/chat")
    assert (made.action, made.mark) == (Action.HAND_OVER, True)
    assert made.reasons[0] == "evacuate is blocked by serving/chat"


def test_what_was_marked_for_has_cleared_and_only_a_notice_is_left() -> None:
    made = decide("alert/SomethingIsOdd", where=node(marked_by="inc-1"))
    assert made.action is Action.WITHDRAW


def test_freeze_and_spares_stand_in_the_reasons() -> None:
    made = decide("xid/119", history=History(frozen="all by ann: network works", spares=0), workloads=(job(),))
    assert made.action is Action.ACT
    assert "frozen: all by ann" in said(made)
    assert "no spare left" in said(made)


def test_the_hash_is_the_same_however_late_it_is_planned() -> None:
    jobs = (job(last_checkpoint=NOW - HOUR),)
    notice = fault("maintenance/reboot", not_before=NOW + 20 * HOUR)
    for what in ("xid/79", "xid/119", notice):
        first, again = decide(what, workloads=jobs), decide(what, workloads=jobs, at=NOW + HOUR, n=7)
        assert first.hash == again.hash
        assert again.stays_within(first)
    assert decide("xid/119").hash != decide("xid/120").hash
    assert decide("xid/119").hash != decide("xid/119", where=node(boot_id="boot-2")).hash
    assert decide("xid/119").hash != decide("xid/119", workloads=jobs).hash


def test_what_a_person_has_ends_by_itself_when_nothing_is_wrong_and_nothing_was_begun() -> None:
    assert decide(hand_over="bob said no").action is Action.WITHDRAW


# -- a provider that nobody has proved here ----------------------------------------------------------------------


def test_a_provider_without_a_proof_asks_people_first() -> None:
    made = decide("xid/119", certified=False)
    assert (made.action, made.mode) == (Action.ACT, Mode.APPROVE)
    assert made.approval is not None
    assert "`medevac provider certify skyline --machine ID`" in said(made)
    assert decide("xid/119").mode is Mode.AUTO


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.APPROVE])
def test_a_missing_proof_widens_nothing(mode: Mode) -> None:
    assert decide("xid/119", under=policy(mode), certified=False).mode is mode


def test_a_simulated_machine_needs_no_proof() -> None:
    assert decide("xid/119", where=node(simulated=True), certified=False).mode is Mode.AUTO


def latched(seconds_ago: float = 2 * 86_400, **given: Any) -> OpenFault:
    event = HealthEvent(
        source="eks_nma", id="1", dedupe_key="c", kind=Kind.FAULT, fault="xid/119", statement=Statement.LEVEL,
        starts_at=NOW - timedelta(seconds=seconds_ago), summary="AcceleratedHardwareReady=False NvidiaXID119Error",
    )  # fmt: skip
    return fault("xid/119", raised_by=(Raiser.of(event.model_copy(update=given), NOW),))


RETURNED = History(incidents=(past("inc-0", ago=2 * DAY, fault="xid/119", ended_at=NOW - HOUR),))


def test_a_condition_that_outlasted_its_proved_repair_is_asked_about() -> None:
    plan = decide(latched(), history=RETURNED)
    assert plan.approval is not None
    assert any("may lack a restart" in why for why in plan.approval.why)


@pytest.mark.parametrize(
    ("found", "history"),
    [
        (latched(), History()),
        (latched(seconds_ago=60), RETURNED),
        (latched(source="alertmanager"), RETURNED),
        (latched(), History(incidents=(past("inc-0", fault="xid/119", end="withdrawn", ended_at=NOW - HOUR),))),
    ],
    ids=["never proved", "a newer transition", "an alert", "not returned"],
)
def test_any_other_word_is_not_taken_for_an_old_one(found: OpenFault, history: History) -> None:
    plan = decide(found, history=history)
    assert plan.approval is None or not any("restart" in why for why in plan.approval.why)
