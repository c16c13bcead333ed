"""NVSentinel: what makes a repeat, what a clear takes back, and what forbids acting."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.faults.faultset import Change, FaultSet
from tests.unit.events.payloads import STRUCTURED, nvsentinel, only, parsed
from tests.unit.faults.said import at

NV = "nvsentinel"


def form(**health: Any) -> dict[str, Any]:
    return only(NV, nvsentinel(**health), **STRUCTURED)


def test_a_fatal_xid() -> None:
    said = form()
    assert (said["fault"], said["severity"], said["class"]) == ("xid/79", "critical", "critical")
    assert said["subject"] == "worker-3"
    assert said["cluster"] == "prod"
    assert said["entities"] == ["gpu:2"]
    assert said["actionable"] is True
    assert said["statement"] == "level"
    assert said["detail"]["recommended_action"] == "RESTART_BM"


@pytest.mark.parametrize(
    ("check", "code", "fault"),
    [
        ("SysLogsXIDError", "79", "xid/79"),
        ("SysLogsXIDError", "XID_79", "xid/79"),
        ("SysLogsXIDError", "xid-79", "xid/79"),
        ("SysLogsXIDError", "145.RLW_RXPIPE", "xid/145"),
        ("SysLogsSXIDError", "20034", "sxid/20034"),
        ("Anything", "SXID_20034", "sxid/20034"),
        ("GpuNvlinkWatch", "DCGM_FR_NVLINK_DOWN", "dcgm/DCGM_FR_NVLINK_DOWN"),
        ("GpuThermalWatch", "79", "nvsentinel/GpuThermalWatch"),
        ("GpuThermalWatch", "nonsense", "nvsentinel/GpuThermalWatch"),
        ("SysLogsXIDError", "0", "nvsentinel/SysLogsXIDError"),
    ],
)
def test_codes_in_all_their_spellings(check: str, code: str, fault: str) -> None:
    assert form(checkName=check, errorCode=[code])["fault"] == fault


def test_of_several_codes_the_worst_leads_and_all_are_kept() -> None:
    said = form(errorCode=["13", "48", "79", "45"])
    assert said["fault"] == "xid/79"
    assert said["detail"]["error_codes"] == ["13", "48", "79", "45"]


def test_the_cloudevents_id_tells_nothing() -> None:
    first = nvsentinel()
    again = nvsentinel() | {"id": "another", "time": "2026-03-01T09:00:00Z"}
    clear = nvsentinel(isHealthy=True, errorCode=[])
    one, two, three = (only(NV, e, **STRUCTURED) for e in (first, again, clear))
    assert one["id"] == two["id"]
    assert one["dedupe_key"] == two["dedupe_key"] == three["dedupe_key"]
    assert three["kind"] == "recovered"
    assert three["id"] != one["id"]


def test_a_clear_without_entities_takes_back_the_whole_check() -> None:
    clear = form(checkName="GpuThermalWatch", isHealthy=True, errorCode=[], entitiesImpacted=[])
    fault = form(checkName="GpuThermalWatch", errorCode=[])
    assert clear["dedupe_key"] == fault["series"]


def test_the_whole_way_into_a_fault_set() -> None:
    def heard(faults: FaultSet, seconds: float, **health: Any) -> tuple[FaultSet, Change]:
        (event,) = parsed(NV, nvsentinel(**health), **STRUCTURED).events
        observed = faults.observe(event, at(seconds))
        return observed.faults, observed.change

    hot = {"checkName": "GpuThermalWatch", "errorCode": [], "isFatal": False}
    faults, change = heard(FaultSet(), 0, **hot)
    assert change is Change.NEW
    faults, change = heard(faults, 10, **hot, isHealthy=True)
    assert change is Change.CLEARING
    faults, change = heard(FaultSet(), 0)
    faults, change = heard(faults, 10, isHealthy=True)
    assert (change, faults.codes) == (Change.IGNORED, ("xid/79",))


@pytest.mark.parametrize(
    "health",
    [
        {"processingStrategy": "STORE_ONLY"},
        {"processingStrategy": "SOMETHING_NEW"},
        {"processingStrategy": 2},
        {"quarantineOverrides": {"skip": True}},
        {"drainOverrides": {"skip": True}},
    ],
)
def test_what_forbids_acting(health: dict[str, Any]) -> None:
    said = form(**health)
    assert said["actionable"] is False
    assert said["kind"] == "fault"


def test_a_forbidden_drain_keeps_no_clear_from_counting() -> None:
    assert form(drainOverrides={"skip": False})["actionable"] is True
    assert form(isHealthy=True, drainOverrides={"skip": True})["actionable"] is True


def test_the_cluster_is_its_sources_where_the_metadata_names_none() -> None:
    event = nvsentinel()
    event["data"]["metadata"] = {}
    assert only(NV, event, **STRUCTURED)["cluster"] == "prod"
    event["source"] = "nvsentinel"
    assert only(NV, event, **STRUCTURED)["cluster"] is None


def test_two_clusters_in_one_event_are_refused() -> None:
    event = nvsentinel() | {"source": "nvsentinel://other/healthevents"}
    refused = parsed(NV, event, **STRUCTURED).refused
    assert "metadata names cluster 'prod', source names 'other'" in refused[0].reason.replace('"', "'")


def test_defaults_that_protobuf_leaves_out() -> None:
    event = nvsentinel()
    for key in ("isHealthy", "isFatal", "errorCode", "entitiesImpacted", "processingStrategy", "message"):
        del event["data"]["healthEvent"][key]
    said = only(NV, event, **STRUCTURED)
    assert (said["kind"], said["severity"], said["entities"]) == ("fault", "warning", [])
    assert said["actionable"] is True


@pytest.mark.parametrize(
    ("entity", "expected"),
    [
        (("GPU", "2"), ["gpu:2"]),
        (("GPU", 2), ["gpu:2"]),
        (
            ("GPU_UUID", "GPU-0a1b2c3d-1111-2222-3333-444455556666"),
            ["gpu-uuid:GPU-0a1b2c3d-1111-2222-3333-444455556666"],
        ),
        (("PCI", "0000:17:00.0"), ["pci:0000:17:00"]),
        (("NVLINK", "3"), ["nvlink:3"]),
        (("NVSWITCH", "0"), ["nvswitch:0"]),
        (("NIC", "mlx5_4"), ["ib:mlx5_4"]),
        (("FLUX_CAPACITOR", "1"), []),
    ],
)
def test_entities(entity: tuple[str, object], expected: list[str]) -> None:
    said = form(entitiesImpacted=[{"entityType": entity[0], "entityValue": entity[1]}])
    assert said["entities"] == expected


@pytest.mark.parametrize(
    ("health", "complaint"),
    [
        ({"nodeName": None}, "nodeName is missing"),
        ({"nodeName": "../x"}, "not a valid node name"),
        ({"checkName": None}, "checkName is missing"),
        ({"isHealthy": "maybe"}, "isHealthy has the wrong type"),
        ({"isHealthy": 0}, "isHealthy has the wrong type"),
        ({"errorCode": [{"a": 1}]}, "errorCode holds"),
        ({"entitiesImpacted": ["GPU"]}, "entitiesImpacted 1 is a string"),
        ({"entitiesImpacted": {"GPU": 1}}, "entitiesImpacted has the wrong type"),
    ],
)
def test_what_is_refused_names_its_field(health: dict[str, Any], complaint: str) -> None:
    read = parsed(NV, nvsentinel(**health), **STRUCTURED)
    assert read.events == ()
    assert complaint in str(read.refused[0])


def test_the_word_false_is_not_healthy() -> None:
    said = form(isHealthy="false", isFatal="true", errorCode="79", entitiesImpacted=None)
    assert (said["kind"], said["fault"], said["severity"]) == ("fault", "xid/79", "critical")
    assert form(isHealthy="true")["kind"] == "recovered"


def test_another_type_or_version_is_refused() -> None:
    read = parsed(NV, nvsentinel() | {"type": "com.nvidia.nvsentinel.health.v2"}, **STRUCTURED)
    assert "health.v2\" can't be read" in str(read.refused[0])
