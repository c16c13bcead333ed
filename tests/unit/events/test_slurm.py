"""Host lists, and Slurm's log, tables and JSON."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medevac.events.event import Kind, Statement
from medevac.events.hostlist import MAX_HOSTS, expand
from medevac.events.parsing import ParseError
from medevac.events.registry import detect
from tests.unit.events.payloads import forms, only, parsed, payload


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-07", ["gpu-07"]),
        ("gpu-[07-09]", ["gpu-07", "gpu-08", "gpu-09"]),
        ("gpu-[9-11]", ["gpu-9", "gpu-10", "gpu-11"]),
        ("a[1,3-4]b,c", ["a1b", "a3b", "a4b", "c"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a,a,a[1-1]", ["a", "a1"]),
    ],
)
def test_lists_expand(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "a[", "a]", "a[1-", "a[2-1]", "a[[1-2]]", "a[x-y]", "../a", "a b", "a[1-99999999999]", "a[0-99][0-99]",
     "a[0-9][0-9][0-9][0-9][0-9]", "," * 100_000, f"a[{'1,' * 9_000}1]", "a[1-2" * 50_000],
)  # fmt: skip
def test_lists_that_are_none_or_too_long_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        expand(text)


@given(st.integers(0, 99_999), st.integers(0, 3_000), st.integers(1, 6))
def test_a_range_has_its_length_and_keeps_its_zeros(low: int, more: int, width: int) -> None:
    found = expand(f"n[{str(low).zfill(width)}-{low + more}]")
    assert len(found) == more + 1 <= MAX_HOSTS
    assert found[0] == f"n{str(low).zfill(width)}"


@given(st.text(alphabet="a1-[],", max_size=60))
def test_any_list_expands_or_is_refused(text: str) -> None:
    with suppress(ParseError):
        assert 0 < len(expand(text)) <= MAX_HOSTS


def test_a_reason_with_several_xids_says_all_of_them() -> None:
    line = "[2026-03-01T08:00:00.123] update_node: node w1 reason set to: GPU trouble, Xid 13, 79"
    found = parsed("slurm", line).events
    assert {(e.kind, e.fault) for e in found} == {("fault", "xid/13"), ("fault", "xid/79")}
    assert len({e.dedupe_key for e in found}) == 2


# --- the log -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "fault", "nodes"),
    [
        ("error: Nodes w[1-2] not responding", "fault", "slurm/not-responding", ["w1", "w2"]),
        ("[2026-03-01T08:00:00.1] error: Nodes w1 not responding, setting DOWN", "fault", "slurm/not-responding",
         ["w1"]),
        ("Mar  1 08:00:00 head slurmctld[77]: Node w1 now responding", "recovered", "slurm/not-responding", ["w1"]),
        ("[2026-03-01T08:00:00.123] update_node: node w1 reason set to: NHC: check_hw_ib: port down", "fault",
         "nhc/check_hw_ib", ["w1"]),
        ("update_node: node w[3-4] state set to DRAINED", "lifecycle", "slurm/drain", ["w3", "w4"]),
        ("update_node: node w1 state set to IDLE", "recovered", "slurm/drain", ["w1"]),
        ("error: Setting node w1 state to INVAL with reason:gres/gpu count reported lower than configured (7 < 8)",
         "fault", "device-count/short", ["w1"]),
        ("down w[1-2]", "fault", "slurm/down", ["w1", "w2"]),
    ],
)  # fmt: skip
def test_log_lines(line: str, kind: str, fault: str, nodes: list[str]) -> None:
    found = forms("slurm", line + "\n")
    assert [e["subject"] for e in found] == nodes
    assert {(e["kind"], e["fault"]) for e in found} == {(kind, fault)}


def test_a_node_that_answers_again_takes_back_its_silence_only() -> None:
    silent, back = parsed("slurm", "error: Nodes w1 not responding\nNode w1 now responding\n").events
    assert silent.dedupe_key == back.dedupe_key
    assert silent.statement is Statement.EDGE


def test_other_lines_of_the_daemon_are_passed_over_and_foreign_text_is_refused() -> None:
    log = "[2026-03-01T08:00:00] sched: Allocate JobId=7\n[2026-03-01T08:00:01] error: Nodes w1 not responding\n"
    assert len(forms("slurm", log)) == 1
    with pytest.raises(ParseError, match="neither"):
        parsed("slurm", "hello world\n")


# --- sinfo -R and scontrol -----------------------------------------------------------------------------------

SINFO = """REASON               USER      TIMESTAMP           NODELIST
Not responding       slurm     2026-03-01T08:00:00 w[01-02]
NHC: check_gpu_count root      2026-03-01T07:00:00 w03
swap the fan         alice     2026-03-01T06:00:00 w04
Kill task failed     root      Unknown             w05
medevac:inc-1 reboot root      2026-03-01T06:00:00 w06
"""


def test_sinfo_rows() -> None:
    found = parsed("slurm", SINFO).events
    assert [(e.subject, e.kind.value, e.fault) for e in found] == [
        ("w01", "fault", "slurm/not-responding"),
        ("w02", "fault", "slurm/not-responding"),
        ("w03", "fault", "nhc/check_gpu_count"),
        ("w04", "lifecycle", "slurm/drain"),
        ("w05", "fault", "slurm/kill-task-failed"),
        ("w06", "lifecycle", "slurm/drain"),
    ]
    assert {e.statement for e in found} == {Statement.LEVEL}
    assert [bool(e.marker) for e in found] == [False] * 5 + [True]
    assert len(forms("slurm", "\n".join(SINFO.splitlines()[1:]))) == 6


def test_scontrol_text() -> None:
    text = (
        "NodeName=w01 Arch=x86_64 CoresPerSocket=64\n   State=DOWN+DRAIN+NOT_RESPONDING ThreadsPerCore=1\n"
        "   Reason=Not responding [slurm@2026-03-01T08:00:00]\n\n"
        "NodeName=w02 Arch=x86_64\n   State=IDLE ThreadsPerCore=1\n"
        "NodeName=w03 State=DOWN* Gres=gpu:8\n"
    )
    found = parsed("slurm", text).events
    assert [(e.subject, e.kind, e.fault) for e in found] == [
        ("w01", Kind.FAULT, "slurm/not-responding"),
        ("w02", Kind.RECOVERED, "slurm/drain"),
        ("w03", Kind.FAULT, "slurm/down"),
    ]


def node(state: Any, reason: str = "", user: str = "root", **more: Any) -> dict[str, Any]:
    return {"nodes": [{"name": "w01", "state": state, "reason": reason, "reason_set_by_user": user, **more}]}


@pytest.mark.parametrize(
    ("state", "reason", "user", "kind", "fault"),
    [
        (["IDLE"], "", "", "recovered", "slurm/drain"),
        ("idle", "", "", "recovered", "slurm/drain"),
        (["MIXED", "DRAIN"], "Xid 79 seen", "root", "fault", "xid/79"),
        (["IDLE", "DRAIN"], "kernel update", "bob", "lifecycle", "slurm/drain"),
        (["DOWN"], "", "", "fault", "slurm/down"),
        (["DOWN", "POWERED_DOWN"], "", "", "lifecycle", "slurm/down"),
        (["DOWN", "REBOOT_ISSUED"], "", "", "lifecycle", "slurm/down"),
        (["ALLOCATED", "NOT_RESPONDING"], "", "", "fault", "slurm/not-responding"),
        (["FAIL"], "", "", "fault", "slurm/fail"),
    ],
)
def test_states_are_sets_of_flags(state: Any, reason: str, user: str, kind: str, fault: str) -> None:
    found = only("slurm", node(state, reason, user))
    assert (found["kind"], found["fault"], found["subject"]) == (kind, fault, "w01")


def test_numbers_are_plain_or_objects_and_a_resumed_node_clears_its_drain() -> None:
    drained = node(["IDLE", "DRAIN"], "NHC: check_gpu_xid", reason_changed_at=1_772_352_000)
    plain = parsed("slurm", drained).events[0]
    drained["nodes"][0]["reason_changed_at"] = {"set": True, "infinite": False, "number": 1_772_352_000}
    held = parsed("slurm", drained).events[0]
    assert plain.starts_at == held.starts_at is not None
    unset = parsed("slurm", node(["DOWN"], reason_changed_at={"set": False, "infinite": False, "number": 0})).events[0]
    assert unset.starts_at is None
    assert parsed("slurm", node(["IDLE"])).events[0].dedupe_key == held.series


def test_sinfo_json_names_lists() -> None:
    group = {
        "nodes": {"nodes": ["w[1-2]"]},
        "node": {"state": ["DOWN"]},
        "reason": {"description": "Not responding", "user": "slurm"},
    }
    assert [e["subject"] for e in forms("slurm", {"sinfo": [group]})] == ["w1", "w2"]
    with pytest.raises(ParseError, match=r"nodes\[\] has the wrong type"):
        parsed("slurm", {"sinfo": [group | {"nodes": {"nodes": [None, "w3"]}}]})


def test_many_bombs_are_refused_together() -> None:
    with pytest.raises(ParseError):
        parsed("slurm", "error: Nodes w[0-99999999] not responding\n" * 2_000)
    with pytest.raises(ParseError):
        parsed("slurm", "error: Nodes w[0-4000] not responding\n" * 2_000)


@pytest.mark.parametrize("body", [SINFO, "error: Nodes w1 not responding\n", node(["IDLE"]), "NodeName=w State=IDLE\n"])
def test_recognised(body: Any) -> None:
    assert detect(payload(body)).SOURCE == "slurm"


LISTED = """Sun Mar  1 08:00:00 2026
REASON               USER         TIMESTAMP           STATE  NODELIST
Kill task failed     root(0)      2026-03-01T08:00:00 drain* w[1-2]
"""
PIPED = "REASON|USER|TIMESTAMP|NODELIST\nxid 79 on gpu4|root|2026-03-01T08:00:00|w1\n"


@pytest.mark.parametrize(
    ("text", "fault", "nodes"), [(LISTED, "slurm/kill-task-failed", ["w1", "w2"]), (PIPED, "xid/79", ["w1"])]
)
def test_other_columns_of_sinfo(text: str, fault: str, nodes: list[str]) -> None:
    said = forms("slurm", text)
    assert [(e["fault"], e["subject"]) for e in said] == [(fault, n) for n in nodes]
    assert detect(payload(text)).SOURCE == "slurm"


def test_a_row_that_is_none_is_named() -> None:
    found = parsed("slurm", LISTED + "half of a row\n")
    assert [str(r) for r in found.refused] == ["line 4: is no row of `sinfo -R`: reason, user, time, nodes"]
    assert len(found.events) == 2


def test_the_daemons_function_stands_before_its_words() -> None:
    line = "validate_node_specs: Node w1 unexpectedly rebooted boot_time=1772352000 last response=1772351000\n"
    (said,) = forms("slurm", f"[2026-03-01T08:00:00.123+00:00] {line}")
    assert (said["fault"], said["subject"], said["starts_at"]) == (
        "slurm/unexpected-reboot",
        "w1",
        "2026-03-01T08:00:00Z",
    )


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("Node unexpectedly re", "slurm/unexpected-reboot"),
        ("batch job complete f", "slurm/launch-failed"),
        ("gres/gpu count repor", "device-count/short"),
        ("Low socket*core*thre", "slurm/low-resources"),
        ("Kill task failed", "slurm/kill-task-failed"),
    ],
)
def test_a_reason_that_sinfo_cut_is_known(reason: str, fault: str) -> None:
    row = f"REASON               USER      TIMESTAMP           NODELIST\n{reason:20} (null)    2026-03-01T08:00:00 w1\n"
    assert [e["fault"] for e in forms("slurm", row)] == [fault]
