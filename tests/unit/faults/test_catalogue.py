"""Every published code has a row with a source, a class and a first rung; the classes are the shipped defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medevac.events.event import Kind, Severity
from medevac.faults.catalogue import classify, lookup, rows
from medevac.faults.classes import Covers, FaultClass
from medevac.policy.plan import Rung
from tests.unit.faults.said import said

KNOWN: dict[str, list[list[int]]] = json.loads(Path(__file__).with_name("known_codes.json").read_text())


def numbers(name: str) -> list[int]:
    return [n for low, high in KNOWN[name] for n in range(low, high + 1)]


@pytest.mark.parametrize("space", ["xid", "sxid"])
def test_no_published_code_is_without_its_row(space: str) -> None:
    missing = [n for n in numbers(space) if f"{space}/{n}" not in rows()]
    assert missing == []


def test_every_dcgm_number_finds_the_row_of_its_name() -> None:
    missing = [n for n in numbers("dcgm") if not lookup(f"dcgm/{n}").code.startswith("dcgm/DCGM_FR_")]
    assert missing == []
    assert lookup("dcgm/80").code == "dcgm/DCGM_FR_ROW_REMAP_FAILURE"


def test_every_row_says_where_it_is_from_what_it_means_and_what_comes_first() -> None:
    rungs = {r.value for r in Rung}
    for code, row in rows().items():
        assert row.source, code
        assert row.name, code
        assert row.first_rung in rungs, code
        if row.fault_class.latched:
            assert row.covers, f"{code} is latched, and no check could ever prove it gone"


@pytest.mark.parametrize(
    ("fault_class", "codes"),
    [
        (FaultClass.CRITICAL, ["xid/48", "xid/64", "xid/79", "xid/95", "row-remap/failure", "ecc/uncontained"]),
        (FaultClass.CRITICAL, ["device-count/short", "dcgm/DCGM_FR_FALLEN_OFF_BUS", "gpu-lost"]),
        (FaultClass.DEGRADED, [f"xid/{n}" for n in (46, 62, 74, 109, 119, 120, 140, 143)]),
        (FaultClass.DEGRADED, ["nvlink/down", "row-remap/pending"]),
        (FaultClass.TRANSIENT, ["thermal/gpu-temp", "throttle/hw-slowdown", "throttle/hw-power-brake", "ib/down"]),
        (FaultClass.PLANNED, ["maintenance/instance-retirement", "spot-interruption"]),
        (FaultClass.APPLICATION, [f"xid/{n}" for n in (13, 31, 43, 45, 94)]),
        (FaultClass.APPLICATION, ["application/nccl-timeout"]),
        (FaultClass.RECORD, ["xid/63", "xid/92", "ecc/corrected"]),
        (FaultClass.MONITOR, ["monitor/exporter-silent", "monitor/dcgm-unreachable", "alertmanager/truncated"]),
        (FaultClass.UNKNOWN, ["alert/Anything", "xid/999", "sxid/99999", "dcgm/9999", "", "no-namespace", "a/b/c"]),
    ],
)
def test_the_shipped_default_table(fault_class: FaultClass, codes: list[str]) -> None:
    assert {c: lookup(c).fault_class for c in codes} == dict.fromkeys(codes, fault_class)


def test_switch_faults_follow_the_guide_and_the_drivers_word() -> None:
    assert {lookup(f"sxid/{n}").fault_class for n in numbers("sxid_always_fatal")} == {FaultClass.CRITICAL}
    assert {lookup(f"sxid/{n}").fault_class for n in numbers("sxid_potentially_fatal")} == {FaultClass.DEGRADED}
    assert FaultClass.CRITICAL not in {lookup(f"sxid/{n}").fault_class for n in numbers("sxid_non_fatal")}

    def with_word(code: str, word: str) -> FaultClass | None:
        return said(code, detail={"driver_word": word}).fault_class

    assert with_word("sxid/20034", "fatal") is FaultClass.CRITICAL
    assert with_word("sxid/20034", "nonfatal") is FaultClass.DEGRADED
    assert with_word("sxid/30000", "fatal") is FaultClass.CRITICAL  # the guide doesn't know it
    assert with_word("sxid/22013", "fatal") is FaultClass.RECORD  # the guide does, and says ignore


def test_a_senders_severity_never_makes_a_class() -> None:
    loud = said("alert/DiskAlmostFull", severity=Severity.CRITICAL)
    assert loud.fault_class is FaultClass.UNKNOWN
    assert said("xid/13", severity=Severity.CRITICAL).fault_class is FaultClass.APPLICATION


def test_hardware_by_all_tables_is_critical_and_what_they_dispute_is_not() -> None:
    assert {c for c, r in rows().items() if r.severity is Severity.CRITICAL} >= {
        "xid/48",
        "xid/64",
        "xid/74",
        "xid/79",
        "xid/95",
    }
    assert {lookup(f"xid/{n}").severity for n in (13, 31, 45, 63, 92, 94, 109, 119, 154)} == {None}


@pytest.mark.parametrize(
    ("label", "fault_class", "rung"),
    [
        ("GPU Reset Required", FaultClass.DEGRADED, "reset_gpu"),
        ("Node Reboot Required", FaultClass.DEGRADED, "reboot"),
        ("Drain and Reset", FaultClass.DEGRADED, "reset_gpu"),
        ("Drain P2P", FaultClass.DEGRADED, "escalate"),
        ("PF FLR", FaultClass.DEGRADED, "reset_gpu"),
        ("OS Reboot", FaultClass.DEGRADED, "reboot"),
        ("None", FaultClass.RECORD, "wait"),
        ("Replace The Moon", FaultClass.RECORD, "wait"),
        (7, FaultClass.RECORD, "wait"),
    ],
)
def test_xid_154_is_worth_what_its_label_says(label: object, fault_class: FaultClass, rung: str) -> None:
    event = said("xid/154", detail={"recovery_action": label})
    assert (event.fault_class, event.advice) == (fault_class, rung)


def test_classifying_twice_changes_nothing_and_a_worse_class_of_the_policy_is_kept() -> None:
    event = said("xid/154", detail={"recovery_action": "Drain and Reset"})
    assert classify(event) == event
    raised = said("xid/94").model_copy(update={"fault_class": FaultClass.DEGRADED})
    assert classify(raised).fault_class is FaultClass.DEGRADED


def test_a_providers_notice_is_planned_whatever_its_code() -> None:
    notice = said("aws/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", kind=Kind.PLANNED, source="aws")
    assert notice.fault_class is FaultClass.PLANNED
    assert notice.covers == (Covers.MAINTENANCE,)
