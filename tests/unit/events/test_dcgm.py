"""DCGM health reports, diagnostics of every version, link counters, policy callbacks; exit codes beside bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.event import Kind
from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import detect, read
from tests.unit.events.payloads import forms, only, parsed, payload


def health(overall: str, **groups: Any) -> dict[str, Any]:
    return {"header": ["Health Monitor Report"], "body": {"Overall Health": {"value": overall}, **groups}}


def entity(value: str, **children: Any) -> dict[str, Any]:
    return {"value": value, "children": children}


def diag(
    *tests: dict[str, Any], category: str = "Hardware", key: str = "DCGM Diagnostic", **more: Any
) -> dict[str, Any]:
    return {key: {"test_categories": [{"category": category, "tests": list(tests)}]}, **more}


def with_exit(body: Any, code: int | None) -> list[Any]:
    return list(read("dcgm", Payload(payload(body).body, {}, code)).events)


def test_a_failing_system_is_found_in_either_nesting() -> None:
    text = "Detected 3 volatile double-bit ECC error(s) in GPU 2. Drain the GPU and reset it."
    flat = {"2": entity("Failure", **{"Memory system": {"value": "Failure"}, "Errors": {"value": text}})}
    deep = {"2": entity("Failure", Errors={"children": {"Memory system": {"value": "Failure", "overflow": [text]}}})}
    for children in (flat, deep):
        found = only("dcgm", health("Failure", GPU={"children": children}))
        assert found["fault"] == "dcgm/DCGM_FR_VOLATILE_DBE_DETECTED"
        assert (found["kind"], found["entities"], found["severity"]) == ("fault", ["gpu:2"], "critical")


def test_two_systems_are_two_faults_and_a_switch_is_a_switch() -> None:
    gpu = {"0": entity("Warning", **{"Thermal system": {"value": "Warning"}, "Power system": {"value": "Warning"}})}
    switch = {"3": entity("Failure", **{"NVLINK system": {"value": "Failure"}})}
    found = forms("dcgm", health("Failure", GPU={"children": gpu}, NvSwitch={"children": switch}))
    assert [e["entities"] for e in found] == [["gpu:0"], ["gpu:0"], ["nvswitch:3"]]
    assert {e["fault"].split("/")[0] for e in found} == {"dcgm-health"}


def test_a_healthy_report_takes_back_what_an_earlier_one_said() -> None:
    bad = parsed("dcgm", health("Warning", GPU={"children": {"0": entity("Warning")}})).events[0]
    good = parsed("dcgm", health("Healthy")).events[0]
    assert good.kind is Kind.RECOVERED
    assert bad.series == good.dedupe_key


def test_diag_2_names_gpus_in_a_list_and_warnings_in_prose() -> None:
    test = {"name": "PCIe", "results": [{"gpu_ids": "1,3", "status": "Fail", "warnings": "some prose"}]}
    found = only("dcgm", diag(test, category="Integration", key="DCGM GPU Diagnostic"))
    assert (found["fault"], found["entities"]) == ("diag/PCIe/fail", ["gpu:1", "gpu:3"])
    assert found["kind"] == "fault"


def test_diag_4_codes_and_configuration_that_is_no_hardware() -> None:
    warnings = [
        {"error_id": 85, "error_category": 10, "error_severity": 6, "warning": "row remap is pending"},
        {"error_id": 29, "error_category": 3, "error_severity": 5, "warning": "Persistence mode is off"},
    ]
    result = {"entity_group": "GPU", "entity_id": 5, "status": "Fail", "warnings": warnings}
    groups = [{"entity_group": "GPU", "entities": [{"entity_id": 5, "serial_num": "1650000000005"}]}]
    hard, soft = forms("dcgm", diag({"name": "software", "results": [result]}, entity_groups=groups))
    assert (hard["fault"], hard["kind"]) == ("dcgm/DCGM_FR_PENDING_ROW_REMAP", "fault")
    assert set(hard["entities"]) == {"gpu:5", "gpu-serial:1650000000005"}
    assert (soft["fault"], soft["kind"]) == ("dcgm/DCGM_FR_PERSISTENCE_MODE", "check")


def test_an_unknown_error_number_stays_a_number() -> None:
    result = {"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [{"error_id": 9999, "warning": "?"}]}
    assert only("dcgm", diag({"name": "memory", "results": [result]}))["fault"] == "dcgm/9999"


def test_an_xid_in_the_prose_is_the_xid() -> None:
    result = {"gpu_id": "0", "status": "FAIL", "warnings": [{"warning": "Detected XID 95 for GPU 0"}]}
    assert only("dcgm", diag({"name": "Targeted Stress", "results": [result]}))["fault"] == "xid/95"


@pytest.mark.parametrize(("code", "fault"), [(None, "diag/all/pass"), (0, "diag/all/pass"), (205, "diag/all/error")])
def test_a_pass_is_a_pass_only_with_its_exit_code(code: int | None, fault: str) -> None:
    body = diag({"name": "memory", "results": [{"status": "Pass"}, {"status": "Skip"}]})
    assert [(e.kind, e.fault) for e in with_exit(body, code)] == [(Kind.CHECK, fault)]


def test_what_did_not_run_says_nothing_about_the_gpus() -> None:
    for body, code in (("", 124), ({"DCGM GPU Diagnostic": {"runtime_error": "no hostengine"}}, 226)):
        (event,) = with_exit(body, code)
        assert event.kind is Kind.CHECK
        assert event.fault in ("check/timeout", "check/error")


TABLE = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.5                                          |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Fail - GPU: 6                                  |
| Warning                   | GPU 6 had uncorrectable memory errors and row  |
|                           | remapping failed. Run a field diagnostic.      |
+-----  Stress  ------------+------------------------------------------------+
| Targeted Power            | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""


def test_the_table_says_the_same() -> None:
    for source in ("dcgm", "active_checks"):
        (found,) = forms(source, TABLE)
        assert (found["fault"], found["entities"]) == ("dcgm/DCGM_FR_ROW_REMAP_FAILURE", ["gpu:6"])
        (ok,) = forms(source, TABLE.replace("Fail - GPU: 6", "Pass - All   "))
        assert ok["fault"] == "diag/all/pass"
    newer = TABLE.replace(
        "| GPU Memory                | Fail - GPU: 6 ", "| memory                    | Fail          "
    )
    newer = newer.replace("| Warning     ", "|             | Fail: GPU6 |\n| Warning     ", 1)
    assert forms("dcgm", newer)[0]["entities"] == ["gpu:6"]


def test_link_counters_above_zero() -> None:
    links = {
        f"Link {i}": {"children": {"Replay Error": {"value": str(i)}, "CRC FLIT Error": {"value": "N/A"}}}
        for i in range(2)
    }
    found = only("dcgm", {"header": ["NVLINK Error Counts", "GPU 3"], "body": links})
    assert (found["kind"], found["fault"], found["entities"]) == ("check", "nvlink/replay-error", ["gpu:3", "nvlink:1"])


@pytest.mark.parametrize(
    ("condition", "data", "fault"),
    [
        ("XID Error", {"ErrNum": 48}, "xid/48"),
        ("Double-bit ECC Error", {"Location": "L2", "NumErrors": 1}, "dcgm-policy/dbe"),
        ("PCI Error", {"ReplayCounter": 4}, "dcgm-policy/pcie"),
        ("Max Retired Pages Limit", {"SbePages": 0, "DbePages": 70}, "dcgm-policy/page-retirement"),
        ("Power Limit", {"PowerViolation": 900}, "dcgm-policy/power"),
        ("Thermal Limit", {"ThermalViolation": 99}, "dcgm-policy/thermal"),
    ],
)
def test_policy_callbacks(condition: str, data: dict[str, Any], fault: str) -> None:
    assert only("dcgm", {"condition": condition, "data": data})["fault"] == fault
    timed = only("dcgm", {"Condition": condition, "Timestamp": "2026-03-01T08:00:00Z", "Data": data})
    assert (timed["fault"], timed["starts_at"]) == (fault, "2026-03-01T08:00:00Z")


def test_a_policy_without_a_readable_xid_is_refused() -> None:
    with pytest.raises(ParseError, match="ErrNum"):
        parsed("dcgm", {"condition": "XID Error", "data": {"ErrNum": "many"}})


@pytest.mark.parametrize(
    "body", [health("Healthy"), diag({"name": "x", "results": []}), {"condition": "XID Error", "data": {"ErrNum": 79}}]
)
def test_recognised(body: Any) -> None:
    assert detect(payload(body)).SOURCE == "dcgm"


FAILED = diag({"name": "memory", "results": [{"gpu_ids": "1", "status": "Fail"}]})


@pytest.mark.parametrize("text", ["Warning: no data for link 4\n{}", "{}\ndone\n", "Error: half of it\n{}\nbye\n"])
def test_words_of_the_tool_around_its_json_hide_nothing(text: str) -> None:
    body = text.format(json.dumps(FAILED, indent=2))
    assert [(e.fault, e.entities) for e in with_exit(body, 226)] == [("diag/memory/fail", ("gpu:1",))]
    assert detect(payload(body)).SOURCE == "dcgm"


def test_a_warning_names_which_of_several_gpus_it_is_about() -> None:
    result = {"gpu_ids": "0,1,2", "status": "Fail", "warnings": ["A corrupt InfoROM has been detected in GPU 1."]}
    (found,) = with_exit(diag({"name": "Inforom", "results": [result]}), None)
    assert (found.fault, found.entities) == ("dcgm/DCGM_FR_CORRUPT_INFOROM", ("gpu:1",))


def test_a_counter_that_is_not_there_is_none() -> None:
    body = {
        "header": ["NVLINK Error Counts", "GPU 2"],
        "body": {"Link 0": {"children": {"Replay Error": {"value": 2**63 - 14}}}},
    }
    assert with_exit(body, None) == []


def rows(*cells: tuple[str, str]) -> str:
    return "".join(f"| {left:<25} | {right:<46} |\n" for left, right in [("Diagnostic", "Result"), *cells])


def test_the_table_of_4_names_gpus_in_rows_of_their_own() -> None:
    body = rows(
        ("memory", "Fail"), ("", "GPU0: Pass"), ("", "GPU1: Fail"),
        ("pcie", "Pass"), ("", "GPU0: Pass"), ("", "GPU1: Pass"),
        ("pulse_test", "Fail"), ("Warning", "The test broke off: "), ("", "x"), ("", "GPU0: Pass"),
    )  # fmt: skip
    assert [(e.kind.value, e.fault, e.entities) for e in with_exit(body, 226)] == [
        ("fault", "diag/memory/fail", ("gpu:1",)),
        ("check", "diag/pulse_test/fail", ()),
    ]


def test_a_warning_that_is_cut_within_a_word_is_read_whole() -> None:
    text = "GPU 2 had uncorrectable memory errors; its row remapping failed, replace it soon"
    body = rows(("GPU Memory", "Fail - GPUs: 1, 2"), ("Warning", text[:45]), ("", text[45:]))
    assert [(e.fault, e.entities) for e in with_exit(body, 226)] == [
        ("dcgm/DCGM_FR_ROW_REMAP_FAILURE", ("gpu:2",)),
        ("diag/GPU Memory/fail", ("gpu:1",)),
    ]


def test_the_table_of_a_health_check_says_what_its_json_says() -> None:
    table = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> Memory system    | Failure                                                  |
|                           | GPU 3 had uncorrectable memory errors and row remapping  |
|                           | failed.                                                  |
|       -> Thermal system   | Warning                                                  |
|                           | It was hot.                                              |
+---------------------------+----------------------------------------------------------+
"""
    assert [(e.fault, e.entities) for e in with_exit(table, None)] == [
        ("dcgm/DCGM_FR_ROW_REMAP_FAILURE", ("gpu:3",)),
        ("dcgm-health/Thermal system", ("gpu:3",)),
    ]
    assert detect(payload(table)).SOURCE == "dcgm"
    healthy = "| Health Monitor Report |\n| Overall Health            | Healthy    |\n"
    assert [e.kind.value for e in with_exit(healthy, None)] == ["recovered"]
