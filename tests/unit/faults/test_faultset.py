"""What opens a fault, what joins it, and what clears it."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from medevac.events.event import HealthEvent, Kind, Severity, Statement
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import MAX_FAULTS, Change, FaultSet, Observed
from medevac.faults.open_fault import ANYONE, MAX_RAISERS
from tests.unit.faults.said import alert, at, said

HOT = "thermal/gpu-temp"


def hear(*events: tuple[float, HealthEvent], start: FaultSet | None = None) -> FaultSet:
    faults = start or FaultSet()
    for seconds, event in events:
        faults = faults.observe(event, at(seconds)).faults
    return faults


def last(faults: FaultSet, event: HealthEvent, seconds: float) -> Observed:
    return faults.observe(event, at(seconds))


# --- opening and joining -------------------------------------------------------------------------------------


def test_the_first_fault_is_new_and_a_repeat_only_moves_last_seen() -> None:
    first = FaultSet().observe(said("xid/79", boot_id="b1"), at(0))
    again = first.faults.observe(said("xid/79", boot_id="b1"), at(90))
    assert (first.change, again.change) == (Change.NEW, Change.REPEAT)
    fault = again.faults.get("xid/79")
    assert fault is not None
    assert (fault.first_seen, fault.last_seen, fault.count) == (at(0), at(90), 2)
    assert again.faults.first_seen == at(0)


def test_a_worse_fault_is_worse_and_a_lesser_one_is_only_new() -> None:
    faults = hear((0, said("xid/119")))
    assert last(faults, said("xid/79"), 60).change is Change.WORSE
    assert last(faults, alert(HOT), 60).change is Change.NEW
    both = hear((0, said("xid/119")), (60, said("xid/79")))
    assert both.codes == ("xid/79", "xid/119")
    assert both.worst is not None
    assert both.worst.code == "xid/79"


def test_the_senders_clock_orders_nothing() -> None:
    early = said("xid/79", starts_at=at(-1800))
    faults = hear((0, early))
    assert faults.first_seen == at(0)


def test_two_senders_of_one_fault_are_one_fault() -> None:
    faults = hear(
        (0, said("xid/79")), (1, alert("xid/79", entities=("gpu:4",))), (2, said("xid/79", source="nvsentinel"))
    )
    assert faults.codes == ("xid/79",)
    fault = faults.faults[0]
    assert [r.source for r in fault.raised_by] == ["kmsg", "alertmanager", "nvsentinel"]
    assert fault.entities == ("gpu:4",)


def test_application_faults_and_records_are_never_a_nodes_fault() -> None:
    for code in ("xid/13", "xid/31", "xid/43", "xid/45", "xid/94", "xid/63", "xid/92", "application/nccl-timeout"):
        observed = FaultSet().observe(said(code), at(0))
        assert (observed.faults, observed.change) == (FaultSet(), Change.IGNORED), code


@pytest.mark.parametrize("kind", [Kind.INFO, Kind.TEST, Kind.CHECK, Kind.MEASUREMENT, Kind.HANDSHAKE, Kind.LIFECYCLE])
def test_what_states_no_fault_opens_none(kind: Kind) -> None:
    observed = FaultSet().observe(said("xid/79", kind=kind), at(0))
    assert (observed.faults, observed.change) == (FaultSet(), Change.IGNORED)


def test_what_medevac_itself_emitted_is_ignored() -> None:
    assert FaultSet().observe(said("xid/79", marker="MedevacStuckStep"), at(0)).change is Change.IGNORED


# --- chains --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["xid/79", "xid/48", "xid/119", "sxid/23001", "dcgm/DCGM_FR_FALLEN_OFF_BUS"])
def test_application_xids_right_after_a_hardware_fault_are_its_symptoms(head: str) -> None:
    faults = hear((0, said(head)), (2, said("xid/45")), (4, said("xid/43")))
    assert faults.codes == (head,)
    assert faults.faults[0].symptoms == ("xid/45", "xid/43")


def test_a_storm_of_45_after_79_is_one_fault_seen_once() -> None:
    faults = hear((0, said("xid/79")))
    for i in range(400):
        observed = faults.observe(said("xid/45", key=f"45|{i}"), at(1 + i))
        assert observed.change is Change.REPEAT
        faults = observed.faults
    assert faults.codes == ("xid/79",)
    assert faults.faults[0].symptoms == ("xid/45",)
    assert faults.faults[0].last_seen == at(0)


def test_long_after_it_is_an_application_fault_again() -> None:
    faults = hear((0, said("xid/79")))
    observed = faults.observe(said("xid/31"), at(6))
    assert (observed.change, observed.faults) == (Change.IGNORED, faults)


def test_a_double_bit_error_with_its_remap_is_critical_and_says_so() -> None:
    with_event = hear((0, said("xid/48")), (1, said("xid/63")))
    assert [(f.code, f.note) for f in with_event.faults] == [("xid/48", "48 with 63")]
    for pair in itertools.permutations(["xid/48", "xid/64"]):
        faults = hear(*((float(i), said(code)) for i, code in enumerate(pair)))
        assert set(faults.codes) == {"xid/48", "xid/64"}
        assert faults.get("xid/48").note == "48 with 64"  # type: ignore[union-attr]
        assert {f.fault_class for f in faults.faults} == {FaultClass.CRITICAL}


# --- Xid 154 -------------------------------------------------------------------------------------------------


def drive(label: str) -> HealthEvent:
    return said("xid/154", detail={"recovery_action": label})


def test_the_drivers_recommendation_raises_and_chooses_the_rung() -> None:
    faults = hear((0, said("xid/13")), (1, drive("Node Reboot Required")))
    assert faults.codes == ("xid/154",)
    assert faults.faults[0].fault_class is FaultClass.DEGRADED
    assert faults.recommended == "reboot"


def test_the_newest_recommendation_holds_and_none_takes_nothing_back() -> None:
    faults = hear(
        (0, said("xid/79")), (1, drive("Drain and Reset")), (2, drive("Node Reboot Required")), (3, drive("None"))
    )
    assert faults.codes == ("xid/79", "xid/154")
    assert faults.recommended == "reboot"


@pytest.mark.parametrize("failed", ["xid/64", "row-remap/failure", "dcgm/DCGM_FR_ROW_REMAP_FAILURE"])
def test_no_recommendation_is_heard_beside_a_failed_remap(failed: str) -> None:
    faults = hear((0, drive("GPU Reset Required")), (1, said(failed)))
    assert faults.recommended is None
    assert faults.worst is not None
    assert faults.worst.code == failed


# --- clearing ------------------------------------------------------------------------------------------------


def test_a_transient_fault_clears_when_its_sender_takes_it_back_for_the_dwell() -> None:
    faults = hear((0, alert(HOT)))
    observed = last(faults, alert(HOT, over=True), 100)
    assert observed.change is Change.CLEARING
    assert observed.faults.codes == (HOT,)
    assert observed.faults.next_settle(60) == at(160)
    assert observed.faults.settle(at(159), 60) == (observed.faults, ())
    assert observed.faults.settle(at(160), 60) == (FaultSet(), (HOT,))


def test_what_comes_back_within_the_dwell_was_never_gone() -> None:
    faults = hear((0, alert(HOT)), (100, alert(HOT, over=True)), (130, alert(HOT)))
    assert faults.next_settle(60) is None
    assert faults.settle(at(9_999), 60)[0].codes == (HOT,)


def test_a_repeated_clear_does_not_put_the_dwell_off() -> None:
    faults = hear((0, alert(HOT)), (100, alert(HOT, over=True)), (150, alert(HOT, over=True)))
    assert faults.next_settle(60) == at(160)


@pytest.mark.parametrize("code", ["xid/79", "xid/119", "row-remap/failure", "nvlink/down"])
def test_a_latched_fault_is_not_cleared_by_any_sender(code: str) -> None:
    faults = hear((0, alert(code)), (300, alert(code, over=True)))
    assert faults.codes == (code,)
    assert faults.next_settle(60) is None
    assert faults.settle(at(1e6), 60)[0].codes == (code,)
    assert last(faults, alert(code, over=True), 300).change is Change.IGNORED


def test_a_clear_by_one_sender_leaves_the_others_statement() -> None:
    faults = hear((0, alert(HOT)), (1, alert(HOT, key="other rule")), (2, said(HOT, source="nvsentinel")))
    faults = hear((10, alert(HOT, over=True)), (11, said(HOT, source="nvsentinel", kind=Kind.RECOVERED)), start=faults)
    observed = last(faults, said(HOT, source="dcgm", kind=Kind.RECOVERED), 12)
    assert observed.change is Change.IGNORED
    assert faults.settle(at(1e6), 60)[0].codes == (HOT,)
    done = last(faults, alert(HOT, key="other rule", over=True), 20)
    assert done.change is Change.CLEARING


def test_the_same_key_from_another_principal_is_another_statement() -> None:
    faults = hear((0, alert(HOT, sender="prometheus-a")))
    assert last(faults, alert(HOT, sender="prometheus-b", over=True), 10).change is Change.IGNORED


def test_a_clear_of_a_series_takes_all_of_it_back() -> None:
    fault = said("nvsentinel/GpuThermalWatch", source="nvsentinel", key="a|c|n|GPU 0", series="a|c|n")
    other = said("nvsentinel/GpuThermalWatch", source="nvsentinel", key="a|c|n|GPU 1", series="a|c|n")
    one = said(
        "nvsentinel/GpuThermalWatch", source="nvsentinel", key="a|c|n|GPU 0", series="a|c|n", kind=Kind.RECOVERED
    )
    all_ = said("nvsentinel/GpuThermalWatch", source="nvsentinel", key="a|c|n", series="a|c|n", kind=Kind.RECOVERED)
    faults = hear((0, fault), (1, other))
    assert last(faults, one, 10).change is Change.REPEAT
    assert last(faults, all_, 10).change is Change.CLEARING


def test_a_clear_that_names_a_code_clears_no_other() -> None:
    first = said("xid/149", source="nvsentinel", key="k", fault_class=FaultClass.TRANSIENT)
    clear = said("xid/79", source="nvsentinel", key="k", kind=Kind.RECOVERED)
    faults = FaultSet().observe(first, at(0)).faults
    assert last(faults, clear, 5).change is Change.IGNORED


def test_a_newer_instance_of_an_alert_replaces_one_whose_end_was_lost() -> None:
    first, second = f"fp|{at(0).isoformat()}", f"fp|{at(600).isoformat()}"
    old = alert(HOT, key=first, series="fp", starts_at=at(0))
    new = alert(HOT, key=second, series="fp", starts_at=at(600))
    over = alert(HOT, key=second, series="fp", over=True)
    for order in ((old, new), (new, old)):
        faults = hear(*((float(i), e) for i, e in enumerate(order)))
        assert [r.dedupe_key for r in faults.faults[0].raised_by] == [second]
        assert last(faults, over, 700).change is Change.CLEARING
        assert last(faults, alert(HOT, key=first, series="fp", over=True), 700).change is Change.IGNORED


def test_162_takes_163_back_on_the_same_gpu_only() -> None:
    faults = hear((0, said("xid/163", entities=("pci:0000:01:00",))))
    assert last(faults, said("xid/162", entities=("pci:0000:02:00",)), 5).change is Change.IGNORED
    observed = last(faults, said("xid/162", entities=("pci:0000:01:00",)), 5)
    assert observed.change is Change.CLEARING
    assert observed.faults.settle(at(65), 60)[1] == ("xid/163",)


def test_a_notice_that_is_called_off_is_gone_at_once() -> None:
    notice = said("maintenance/system-reboot", source="aws", kind=Kind.PLANNED, not_before=at(9_000))
    off = said("maintenance/system-reboot", source="aws", kind=Kind.RECOVERED)
    faults = hear((0, notice))
    assert faults.faults[0].not_before == at(9_000)
    assert last(faults, off, 5) == Observed(
        faults=FaultSet(), change=Change.CLEARED, reason="maintenance/system-reboot taken back"
    )


def test_a_notice_moved_forward_is_worse() -> None:
    def notice(seconds: float) -> HealthEvent:
        return said("maintenance/system-reboot", source="aws", kind=Kind.PLANNED, not_before=at(seconds))

    faults = hear((0, notice(9_000)))
    assert last(faults, notice(1_000), 5).change is Change.WORSE
    assert last(faults, notice(20_000), 5).change is Change.REPEAT


# --- proof ---------------------------------------------------------------------------------------------------


def test_a_check_removes_what_it_covers_and_nothing_else() -> None:
    faults = hear((0, said("xid/79")), (1, said("xid/48")), (2, said("xid/74")))
    after = faults.prove({Covers.BUS, Covers.COMPUTE, Covers.MEMORY}, "b2", at(900))
    assert after.codes == ("xid/74",)
    assert after.prove({Covers.LINK}, "b2", at(901)).codes == ()


def test_what_only_a_rule_says_how_to_prove_goes_by_the_plan_that_it_was_checked_for() -> None:
    faults = hear((0, said("xid/9", covers=(), fault_class=FaultClass.CRITICAL)))
    assert faults.faults[0].covers == ()
    assert faults.prove({Covers.COMPUTE}, "b2", at(900)).codes == ("xid/9",)
    assert faults.prove({Covers.COMPUTE}, "b2", at(900), about=["xid/79"]).codes == ("xid/9",)
    assert faults.prove(set(), "b2", at(900), about=["xid/9"]).codes == ("xid/9",)
    assert faults.prove({Covers.COMPUTE}, "b2", at(900), about=["xid/9"]).codes == ()


def test_half_a_cover_is_no_proof() -> None:
    assert hear((0, said("xid/79"))).prove({Covers.BUS}, "b2", at(900)).codes == ("xid/79",)


def test_what_was_stated_after_the_remedy_stays() -> None:
    faults = hear((0, said("xid/79", boot_id="b1")), (700, said("xid/79", boot_id="b2")))
    covers = {Covers.BUS, Covers.COMPUTE}
    assert faults.prove(covers, "b2", at(900), since=at(600)).codes == ("xid/79",)
    assert faults.prove(covers, "b2", at(900), since=at(800)).codes == ()


# --- evidence that may not be acted on -----------------------------------------------------------------------


def test_a_forbidden_statement_is_evidence_and_never_makes_the_set_actionable() -> None:
    faults = hear((0, said("xid/79", source="nvsentinel", actionable=False)))
    assert faults.codes == ("xid/79",)
    assert not faults.actionable
    faults = hear((1, alert(HOT)), start=faults)
    assert faults.actionable
    assert faults.worst is not None
    assert faults.worst.code == HOT


def test_a_forbidden_statement_does_not_make_an_open_fault_worse() -> None:
    faults = hear((0, alert("nvlink/crc-data-error")))
    louder = said("nvlink/crc-data-error", source="x", actionable=False, fault_class=FaultClass.CRITICAL)
    observed = last(faults, louder, 5)
    assert observed.change is Change.REPEAT
    assert observed.faults.faults[0].fault_class is FaultClass.TRANSIENT


def test_when_the_one_that_may_be_acted_on_is_taken_back_the_rest_is_evidence() -> None:
    faults = hear((0, alert(HOT)), (1, said(HOT, source="nvsentinel", actionable=False)), (2, alert(HOT, over=True)))
    assert faults.codes == (HOT,)
    assert not faults.actionable


def test_an_actionable_statement_makes_known_evidence_news() -> None:
    faults = hear((0, said("xid/79", source="nvsentinel", actionable=False)))
    assert last(faults, said("xid/79"), 5).change is Change.NEW
    beside = hear((1, said("xid/119")), start=faults)
    assert last(beside, said("xid/79"), 5).change is Change.WORSE


# --- staleness and bounds ------------------------------------------------------------------------------------


def test_an_old_log_line_is_stale_unless_it_is_of_the_present_boot() -> None:
    old = said("xid/79", starts_at=at(0), received_at=at(4_000), boot_id="b1")
    assert FaultSet().observe(old, at(4_000)).change is Change.STALE
    known = hear((4_000, said("xid/119", boot_id="b1")))
    assert last(known, old, 4_000).change is Change.WORSE
    fresh = said("xid/79", starts_at=at(0), received_at=at(1_000))
    assert FaultSet().observe(fresh, at(90_000)).change is Change.NEW  # it waited with us, not with its sender


def test_an_alert_that_fires_for_days_is_not_stale() -> None:
    event = alert("xid/79", starts_at=at(0) - timedelta(days=3), received_at=at(0))
    assert FaultSet().observe(event, at(0)).change is Change.NEW


def test_a_flood_of_codes_is_bounded_and_never_crowds_out_a_latched_one() -> None:
    faults = FaultSet()
    for i in range(3 * MAX_FAULTS):
        faults = faults.observe(alert(f"alert/Custom{i}"), at(i)).faults
    assert len(faults.faults) == MAX_FAULTS
    observed = faults.observe(said("xid/79"), at(1_000))
    assert observed.change is Change.WORSE
    assert len(observed.faults.faults) == MAX_FAULTS
    assert observed.faults.codes[0] == "xid/79"


def test_a_flood_of_statements_is_bounded_and_what_does_not_fit_still_stands() -> None:
    faults = FaultSet()
    for i in range(2 * MAX_RAISERS):
        faults = faults.observe(alert(HOT, key=f"rule {i}"), at(i)).faults
    assert len(faults.faults[0].raised_by) == MAX_RAISERS
    for i in range(2 * MAX_RAISERS):
        faults = faults.observe(alert(HOT, key=f"rule {i}", over=True), at(500 + i)).faults
    assert [r.dedupe_key for r in faults.faults[0].raised_by if r.cleared_at is None] == [ANYONE]
    assert faults.settle(at(1e6), 60)[0].codes == (HOT,)


def test_the_worst_word_of_the_senders_is_kept_and_the_set_survives_json() -> None:
    faults = hear((0, alert(HOT, severity=Severity.WARNING)), (1, said(HOT, source="x", severity=Severity.CRITICAL)))
    assert faults.faults[0].severity is Severity.CRITICAL
    assert faults.faults[0].statement is Statement.LEVEL
    assert FaultSet.model_validate_json(faults.model_dump_json()) == faults


# --- contradictions -----------------------------------------------------------------------------------------


def test_a_sender_that_thinks_less_of_a_fault_never_lowers_it_in_either_order() -> None:
    fatal = said("sxid/20034", detail={"driver_word": "fatal"})
    mild = said("sxid/20034", source="alertmanager", key="b")
    assert fatal.fault_class is FaultClass.CRITICAL
    assert mild.fault_class is FaultClass.DEGRADED
    for first, second in ((fatal, mild), (mild, fatal)):
        fault = hear((0, first), (10, second)).get("sxid/20034")
        assert fault is not None
        assert fault.fault_class is FaultClass.CRITICAL
        assert len(fault.raised_by) == 2


def test_a_notice_has_the_time_that_was_said_last() -> None:
    def notice(seconds: float, begins: float) -> tuple[float, HealthEvent]:
        code = "maintenance/instance-reboot"
        return seconds, said(code, kind=Kind.PLANNED, source="aws", not_before=at(begins))

    for moved in (3_600, 90_000):
        fault = hear(notice(0, 7_200), notice(60, moved)).get("maintenance/instance-reboot")
        assert fault is not None
        assert fault.not_before == at(moved)
        assert fault.fault_class is FaultClass.PLANNED


# --- levels that nobody repeats ---------------------------------------------------------------------------------


def test_an_alert_that_is_not_repeated_is_unknown_after_two_intervals_neither_clear_nor_still_there() -> None:
    faults = hear((0, alert(HOT)), (300, alert(HOT)), (600, alert(HOT)))
    assert faults.unknown(at(600 + 599), 60) == ()
    assert faults.unknown(at(600 + 600), 60) == (HOT,), "it has been seen to repeat every 300 s"
    assert faults.codes == (HOT,)
    assert not faults.clearing
    assert faults.settle(at(10_000))[1] == ()


def test_a_first_statement_has_the_usual_interval_and_a_repeat_makes_it_known_again() -> None:
    faults = hear((0, alert(HOT)))
    assert faults.unknown(at(119), 60) == ()
    assert faults.unknown(at(120), 60) == (HOT,)
    assert hear((120, alert(HOT)), start=faults).unknown(at(121), 60) == ()


def test_latched_edges_and_what_another_still_says_are_never_unknown() -> None:
    assert hear((0, alert("xid/79"))).unknown(at(10_000), 60) == (), "latched: it stands whatever is said"
    line = said(HOT)
    assert hear((0, alert(HOT)), (1, line)).unknown(at(10_000), 60) == (), "a log line is never repeated"
    both = hear((0, alert(HOT, key="a")), (0, alert(HOT, key="b")), (9_990, alert(HOT, key="b")))
    assert both.unknown(at(10_000), 60) == ()
    assert hear((0, alert(HOT)), (10, alert(HOT, over=True))).unknown(at(10_000), 60) == (), "taken back, not unknown"
