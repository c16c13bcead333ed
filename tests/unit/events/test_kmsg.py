"""Kernel log lines: every shipper's prefix, the driver's words, and what is no evidence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.event import Kind
from medevac.events.kmsg import recognises
from medevac.events.parsing import ParseError
from tests.unit.events.payloads import UUID, parsed, payload

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 31 LTSSM Fault Up"


def events(text: str, **headers: str) -> list[dict[str, Any]]:
    from medevac.events.normal import normal_form

    return [normal_form(e) for e in parsed("kmsg", text, **headers).events]


def faults(text: str, **headers: str) -> list[dict[str, Any]]:
    return [e for e in events(text, **headers) if e["kind"] == "fault"]


def one(text: str, **headers: str) -> dict[str, Any]:
    (found,) = faults(text, **headers)
    return found


PREFIXES = [
    ("", None, None),
    ("[  411.201010] ", None, None),
    ("[16450077.000001] ", None, None),
    ("[  411.201010] [ T1234] ", None, None),
    ("[    2.201010][   C17] ", None, None),
    ("<3>[  411.201010] ", None, None),
    ("<4>", None, None),
    ("[...] ", None, None),
    ("[Sun Mar  1 08:00:00 2026] ", None, None),
    ("kernel: ", None, None),
    ("kern  :warn  : [  411.201010] ", None, None),
    ("kern  :err   : 2026-03-01T08:00:00,250000+00:00 ", None, "2026-03-01T08:00:00.250000Z"),
    ("3,1301,411201010,-;", None, None),
    ("4,1301,411201010,-,caller=T22;", None, None),
    ("Mar  1 08:00:00 worker-3 kernel: [  411.201010] ", "worker-3", None),
    ("Mar 11 08:00:00 worker-3 kernel: ", "worker-3", None),
    ("<3>Mar 11 08:00:00 worker-3 kernel: ", "worker-3", None),
    ("Mar  1 08:00:00 worker-3 kern.err kernel: [  411.201010] ", "worker-3", None),
    ("Mar  1 08:00:00 worker-3 kern.err<3> kernel: ", "worker-3", None),
    ("2026-03-01T08:00:00+00:00 worker-3 kern.warning kernel: ", "worker-3", "2026-03-01T08:00:00Z"),
    ("Sun Mar  1 08:00:00 2026 kern.err kernel: [  411.201010] ", None, None),
    ("[  411.201010] worker-3 kernel: ", "worker-3", None),
    ("2026-03-01T08:00:00.250000+00:00 worker-3 kernel: [  411.201010] ", "worker-3", "2026-03-01T08:00:00.250000Z"),
    ("2026-03-01T10:00:00+0200 worker-3 kernel: ", "worker-3", "2026-03-01T08:00:00Z"),
    ("<3>1 2026-03-01T08:00:00Z worker-3 kernel - - - ", "worker-3", "2026-03-01T08:00:00Z"),
    ('<3>1 2026-03-01T08:00:00Z worker-3 kernel - - [meta seq="1"] ', "worker-3", "2026-03-01T08:00:00Z"),
    ("Sun 2026-03-01 08:00:00 UTC worker-3 kernel: ", "worker-3", "2026-03-01T08:00:00Z"),
    ("Sun 2026-03-01 09:00:00.250000 CET worker-3 kernel: ", "worker-3", None),
    ("1772352000.250000 worker-3 kernel: ", "worker-3", "2026-03-01T08:00:00.250000Z"),
    ("[  411.201010 <    0.000100>] ", None, None),
    ("[<    0.000100>] ", None, None),
    ("[  +0.000100] ", None, None),
    ("[Mar 1 08:00] ", None, None),
    ("[So Mär  1 08:00:00 2026] ", None, None),
    ("Mär  1 08:00:00 worker-3 kernel: ", "worker-3", None),
    ("Mar  1 2026 08:00:00 worker-3 kernel: ", "worker-3", None),
    ("Mar  1 08:00:00 worker-3 kernel: message repeated 2 times: [ [  411.201010] ", "worker-3", None),
]


@pytest.mark.parametrize(("prefix", "host", "time"), PREFIXES, ids=[p[0] or "bare" for p in PREFIXES])
def test_every_shippers_prefix(prefix: str, host: str | None, time: str | None) -> None:
    found = one(prefix + XID + "\n")
    assert (found["fault"], found["subject"], found["starts_at"]) == ("xid/79", host, time)
    assert found["entities"] == ["pci:0000:3b:00"]
    assert (found["severity"], found["class"], found["statement"]) == ("critical", "critical", "edge")
    switch = one(prefix + SXID + "\n")
    assert (switch["fault"], switch["subject"]) == ("sxid/20034", host)


@pytest.mark.parametrize(
    "prefix",
    [
        "12,1301,411201010,-;",  # facility user
        "<12>[  411.201010] ",
        "<14>",
        "user  :warn  : [  411.201010] ",
        "daemon:err   : 2026-03-01T08:00:00,250000+00:00 ",
        "Mar  1 08:00:00 worker-3 trainer[77]: ",
        "trainer: ",
        "Mar 11 08:00:00 worker-3 ",  # what `logger -t NVRM` makes
        "<11>Mar 11 08:00:00 worker-3 kernel: ",
        "Mar 11 08:00:00 worker-3 user.notice kernel: ",
        "Mar 11 08:00:00 worker-3 kern.err trainer: ",
        "Mar 11 08:00:00 worker-3 kern.err kernel[77]: ",
        "Mar 11 08:00:00 worker-3 kern.err: kernel: ",  # what `logger -t kern.err` makes
        "<3>1 2026-03-01T08:00:00Z worker-3 trainer 77 - - ",
    ],
)
def test_what_a_process_wrote_is_no_evidence(prefix: str) -> None:
    found = events(prefix + XID)
    assert [e["kind"] for e in found] == ["info"]
    assert (found[0]["fault"], found[0]["actionable"]) == ("kmsg/not-kernel", False)


@pytest.mark.parametrize(
    "line",
    [
        "3,1,1,-;hello\n MESSAGE=NVRM: Xid (PCI:0000:3b:00): 79, x",
        f"[  1.000000] NVRM: loading {XID}",
        f"[  1.000000] audit: comm={XID}",
        f"Mar  1 08:00:00 worker-3 kernel: [  1.000000] python[7]: {XID}",
        "Xid (PCI:0000:3b:00): 79",
        "NVRM: GPU0 _kgspRpcGspEventPmuHalted: PMU has halted",
        "",
        "\x00\x01\x02",
    ],
)
def test_a_line_that_only_quotes_an_xid_is_none(line: str) -> None:
    assert faults(line) == []


def test_a_process_name_cannot_make_a_second_fault() -> None:
    text = f"NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name={XID}\u2028{XID}\x0b{XID}\n"
    assert [e["fault"] for e in faults(text)] == ["xid/13"]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): invalid",
        "NVRM: Xid (PCI:zz:3b:00): 79",
        "NVRM: Xid (PCI:0000:3b",
        "NVRM: Xid",
        "NVRM: Xid (PCI:0000:3b:00): 79x",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 2003",
        "NVRM: Xid (PCI:0000:3b:00): 0",
    ],
)
def test_what_can_not_be_read_is_counted_and_no_fault(line: str) -> None:
    found = events(f"[ 1.000000] {line}\n[ 2.000000] {line}\n")
    assert [(e["kind"], e["fault"], e["detail"]["lines"]) for e in found] == [("info", "kmsg/unreadable", 2)]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("PCI:0000:3b:00", ["pci:0000:3b:00"]),
        ("PCI:0000:3b:00.0", ["pci:0000:3b:00"]),
        ("0000:3b:00", ["pci:0000:3b:00"]),
        ("PCI:0018:01:00", ["pci:0018:01:00"]),
        ("PCI:0000:3B:1E", ["pci:0000:3b:1e"]),
        ("PCI:0000:3b:00 GPU-I:05", ["pci:0000:3b:00", "mig-gi:5"]),
        ("PCI:0000:3b:00 GPU-I:0a GPU-CI:01", ["pci:0000:3b:00", "mig-gi:10", "mig-ci:1"]),
    ],
)
def test_addresses(address: str, expected: list[str]) -> None:
    assert one(f"NVRM: Xid ({address}): 94, pid=1, Contained: SM (0x1)")["entities"] == expected


@pytest.mark.parametrize(
    "tail",
    [
        "",
        ",",
        ", pid=12",
        ", pid='<unknown>', name=<unknown>, text",
        ", pid=12, name=a:b[c], text — dash",
        ", Ch 1",
        ", pid=12, name=",
        " GPU has fallen off the bus",
        ", pid=" + "9" * 400,
    ],
)
def test_the_number_decides_whatever_follows(tail: str) -> None:
    assert one(f"NVRM: Xid (PCI:0000:3b:00): 48{tail}")["fault"] == "xid/48"


def test_lines_of_one_fault_are_one_event_with_all_that_they_tell() -> None:
    text = f"""[  411.201001] NVRM: GPU at PCI:0000:3b:00: {UUID}
[  411.201003] NVRM: GPU Board Serial Number: 1650000000001
[  411.201010] {XID}
[  411.301010] {XID}
[  411.401012] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
"""
    found = one(text)
    assert set(found["entities"]) == {"pci:0000:3b:00", f"gpu-uuid:{UUID}", "gpu-serial:1650000000001"}
    assert found["detail"]["lines"] == 2


def test_after_a_silence_it_is_said_anew_under_the_same_key() -> None:
    first, second = faults(f"[  100.000000] {XID}\n[  200.000000] {XID}\n[  900.000000] {XID}\n")
    assert first["dedupe_key"] == second["dedupe_key"]
    assert first["id"] != second["id"]


def test_two_gpus_and_two_hosts_are_told_apart() -> None:
    other = XID.replace("3b", "5d")
    text = (
        f"Mar  1 08:00:00 a-1 kernel: {XID}\nMar  1 08:00:00 a-2 kernel: {XID}\nMar  1 08:00:00 a-1 kernel: {other}\n"
    )
    found = faults(text)
    assert [(e["subject"], e["entities"]) for e in found] == [
        ("a-1", ["pci:0000:3b:00"]),
        ("a-2", ["pci:0000:3b:00"]),
        ("a-1", ["pci:0000:5d:00"]),
    ]
    assert len({e["dedupe_key"] for e in found}) == 3


# --- switches ------------------------------------------------------------------------------------------------


def test_a_switch_fault_of_three_lines() -> None:
    base = "[  1.000001] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034,"
    found = one(
        f"{base} Fatal, Link 31 LTSSM Fault Up\n{base} Data {{0x1, 0x0}}\n{base} Severity 1 Engine instance 9\n"
    )
    assert found["entities"] == ["pci:0000:c1:00", "nvlink:31", "nvswitch:3"]
    assert (found["severity"], found["class"]) == ("critical", "critical")
    assert found["detail"]["lines"] == 3


def test_a_switch_fault_on_three_links_is_three() -> None:
    lines = "".join(f"{SXID.replace('Link 31', f'Link {n}').replace('Fatal', 'Non-fatal')}\n" for n in (1, 2, 3))
    found = faults(lines)
    assert [e["entities"][1] for e in found] == ["nvlink:1", "nvlink:2", "nvlink:3"]
    assert {e["severity"] for e in found} == {"warning"}
    assert len({e["dedupe_key"] for e in found}) == 3


@pytest.mark.parametrize("cut", range(len("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034"), len(SXID)))
def test_a_cut_line_never_tells_more_than_it_holds(cut: int) -> None:
    found = one(SXID[:cut])
    assert found["fault"] == "sxid/20034"
    assert set(found["entities"]) <= {"pci:0000:c1:00", "nvswitch:3", "nvlink:31", "nvlink:3"}
    assert found["severity"] in (None, "critical")


# --- what the driver says of the fault -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "link", "severity", "entities"),
    [
        ("Nonfatal", "13", "warning", ["pci:0018:01:00", "nvlink:13"]),
        ("Fatal", "-1", "critical", ["pci:0018:01:00"]),
        ("Fatal", "0", "critical", ["pci:0018:01:00", "nvlink:0"]),
    ],
)
def test_nvlink_5(word: str, link: str, severity: str, entities: list[str]) -> None:
    words = f"RLW_REMAP {word} XC1 i0 Link {link} (0x04000082 0x00000040 0x0)"
    found = one(f"NVRM: Xid (PCI:0018:01:00): 145, pid=1, name=ray::X, {words}")
    assert (found["severity"], found["entities"]) == (severity, entities)
    assert found["detail"]["unit"] == "RLW_REMAP"
    assert (found["detail"]["intr_info"], found["detail"]["error_status"]) == ("0x04000082", "0x00000040")
    assert found["class"] == "degraded"
    assert found["advice"] == "reset_gpu"


def recovery(old: str, new: str) -> str:
    return f"NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from {old} to {new}\n"


def test_xid_154_wants_what_stands_after_to() -> None:
    found = one(recovery("0x4 (Drain and Reset)", "0x2 (Node Reboot Required)"))
    assert (found["detail"]["recovery_action"], found["detail"]["recovery_code"]) == ("Node Reboot Required", 2)
    assert (found["class"], found["advice"]) == ("degraded", "reboot")


@pytest.mark.parametrize(
    "line",
    [
        recovery("0x0 (None)", "0x2 (GPU Reset Required)"),  # label and number disagree
        recovery("0x0 (None)", "0x9 (Sing A Song)"),
        "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (Non",
        "NVRM: Xid (PCI:0018:01:00): 154",
    ],
)
def test_an_odd_154_recommends_nothing(line: str) -> None:
    found = one(line)
    assert "recovery_action" not in found["detail"]
    assert found["class"] == "record"


def test_a_recommendation_of_none_is_no_fault_and_takes_none_back() -> None:
    none = recovery("0x1 (GPU Reset Required)", "0x0 (None)")
    assert [e["kind"] for e in events(none)] == ["info"]
    both = events(recovery("0x0 (None)", "0x1 (GPU Reset Required)") + none)
    assert [(e["kind"], e["detail"]["recovery_action"]) for e in both] == [("fault", "GPU Reset Required")]


def test_xid_74_names_its_link_and_registers() -> None:
    words = "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    found = one(f"NVRM: Xid (PCI:0000:3b:00): 74, pid=1, name=x, {words}")
    assert found["entities"] == ["pci:0000:3b:00", "nvlink:4"]
    assert len(found["detail"]["registers"]) == 7


# --- records in JSON, and the request's headers --------------------------------------------------------------


def journal(**more: object) -> dict[str, object]:
    return {
        "MESSAGE": XID,
        "_HOSTNAME": "worker-3",
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "__REALTIME_TIMESTAMP": "1772352000250000",
        "_BOOT_ID": "0123456789abcdef0123456789abcdef",
        **more,
    }


@pytest.mark.parametrize("as_list", [True, False])
def test_journald_export(as_list: bool) -> None:
    records = [
        journal(),
        journal(MESSAGE="usb 1-1: new device"),
        journal(_HOSTNAME="worker-4", MESSAGE=list(SXID.encode())),
    ]
    text = json.dumps(records) if as_list else "\n".join(map(json.dumps, records))
    first, second = faults(text)
    assert (first["subject"], first["fault"]) == ("worker-3", "xid/79")
    assert first["boot_id"] == "01234567-89ab-cdef-0123-456789abcdef"
    assert first["starts_at"] == "2026-03-01T08:00:00.250000Z"
    assert (second["subject"], second["fault"]) == ("worker-4", "sxid/20034")


@pytest.mark.parametrize("more", [{"_TRANSPORT": "syslog"}, {"SYSLOG_IDENTIFIER": "logger"}, {"SYSLOG_FACILITY": "1"}])
def test_a_journal_record_of_a_process_is_no_evidence(more: dict[str, str]) -> None:
    assert faults(json.dumps(journal(**more))) == []


def test_broken_json_records_are_refused_with_their_place() -> None:
    found = parsed("kmsg", "\n".join([json.dumps(journal()), "{oops", '{"PRIORITY": "4"}', json.dumps(journal())]))
    assert [e.fault for e in found.events] == ["xid/79"]
    assert [r.where for r in found.refused] == ["line 2 is not valid JSON", "record 3"]
    with pytest.raises(ParseError, match="body is not valid JSON"):
        parsed("kmsg", "{oops\n{oops\n")
    with pytest.raises(ParseError, match="record 1: field MESSAGE is missing"):
        parsed("kmsg", '{"a": 1}')


def test_the_transport_may_name_the_machine() -> None:
    headers = {"x_medevac_node": "worker-3", "x_medevac_cluster": "prod", "x_medevac_boot_id": "b-17"}
    found = one(XID, **headers)
    assert (found["subject"], found["cluster"], found["boot_id"]) == ("worker-3", "prod", "b-17")
    assert one(f"Mar  1 08:00:00 worker-9 kernel: {XID}", **headers)["subject"] == "worker-9"
    with pytest.raises(ParseError, match=r'header X-Medevac-Node is "../x"'):
        one(XID, x_medevac_node="../x")


def test_odd_bytes_do_not_hide_a_fault_and_a_flood_is_bounded() -> None:
    raw = XID.encode() + b"\n\xff\xfe\x00garbage\n"
    assert [e.fault for e in parsed("kmsg", raw).events] == ["xid/79"]
    flood = "".join(f"NVRM: Xid (PCI:{i:04x}:3b:00): 79\n" for i in range(3_000))
    read = parsed("kmsg", flood)
    assert len([e for e in read.events if e.kind is Kind.FAULT]) == 2_000
    assert read.truncated == 1_000


def test_recognition() -> None:
    assert recognises(payload(f"[1.0] {XID}"))
    assert recognises(payload(SXID))
    assert not recognises(payload("Xid 79"))


@pytest.mark.parametrize(
    "prefix",
    [
        "[pod/dmesg-x7k2q/tail] ",
        "2026-03-01T08:00:00.123456789Z ",
        "2026-03-01T08:00:00.123456789Z [  411.201010] ",
        f"[gpu-health] [CRITICAL] {UUID}: XID: ",
    ],
)
def test_a_line_out_of_a_containers_output_is_never_acted_on(prefix: str) -> None:
    (found,) = faults(prefix + XID)
    assert (found["fault"], found["actionable"]) == ("xid/79", False)
    assert (f"gpu-uuid:{UUID}" in found["entities"]) is (UUID in prefix)


@pytest.mark.parametrize("line", [f"some shipper's own words | {XID}", f"==> {SXID}", f"worker-3: [ 1.5] {XID}"])
def test_a_line_whose_beginning_nobody_knows_is_told_and_no_fault(line: str) -> None:
    assert [e["kind"] for e in events(line)] == ["info"]


def test_a_number_may_end_a_sentence() -> None:
    assert one("[ 1.5] NVRM: Xid (PCI:0000:3b:00): 48.")["fault"] == "xid/48"


def test_shippers_objects_name_host_and_time() -> None:
    found = one(json.dumps({"message": XID, "host": {"name": "worker-3"}, "@timestamp": "2026-03-01T08:00:00.250Z"}))
    assert (found["subject"], found["starts_at"]) == ("worker-3", "2026-03-01T08:00:00.250000Z")
    assert one(json.dumps({"log": XID, "kubernetes": {"pod_name": "p"}}))["actionable"] is False


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"dmesg": [{"pri": 6, "time": 1.0, "msg": "hello"}, {"pri": 4, "time": 12.5, "msg": XID}]}),
        "\x1e" + json.dumps({"MESSAGE": XID, "_TRANSPORT": "kernel"}) + "\n",
        "data: " + json.dumps({"MESSAGE": XID, "_TRANSPORT": "kernel"}) + "\n\n",
        "".join(json.dumps({"MESSAGE": m, "_TRANSPORT": "kernel"}, indent=4) + "\n" for m in ("hello", XID)),
        json.dumps([{"date": 1772352000.5, "priority": 4, "msg": XID}]),
        f"10.0.0.7: kern: warning: [2026-03-01T08:00:00.123456789Z]: {XID}",
    ],
    ids=["dmesg", "seq", "sse", "pretty", "shipper", "several nodes"],
)
def test_every_way_in_which_records_are_exported(text: str) -> None:
    found = one(text)
    assert (found["fault"], found["actionable"]) == ("xid/79", True)
    assert found["subject"] == ("10.0.0.7" if "10.0.0.7" in text else None)
    assert recognises(payload(text))


def test_a_records_facility_counts_in_every_export() -> None:
    text = json.dumps({"dmesg": [{"pri": 12, "time": 12.5, "msg": XID}]})
    assert faults(text) == []


SHIPPED_BY_PROCESS: list[dict[str, Any]] = [
    {"appname": "alice", "facility": "user", "hostname": "gpu-1", "procid": 12},
    {"appname": "kernel", "facility": "user", "hostname": "gpu-1"},
    {"programname": "alice", "hostname": "gpu-1"},
    {"syslogtag": "alice[12]:", "hostname": "gpu-1"},
    {"ident": "kernel", "pid": "12"},
    {"process": {"name": "alice", "pid": 12}, "host": {"name": "gpu-1"}},
    {"process": {"pid": 12}},
    {"log": {"syslog": {"appname": "alice", "facility": {"code": 1}}}},
    {"TRANSPORT": "stdout", "PID": "12", "HOSTNAME": "gpu-1"},
    {"_TRANSPORT": "stdout", "TRANSPORT": "kernel"},
    {"SYSLOG_IDENTIFIER": "kernel", "SYSLOG_PID": "12"},
]
SHIPPED_OF_CONTAINER: list[dict[str, Any]] = [
    {"source_type": "docker_logs", "container_name": "x", "host": "gpu-1"},
    {"source_type": "kubernetes_logs", "file": "/var/log/pods/x"},
    {"container": {"id": "abc"}},
]
SHIPPED_BY_KERNEL: list[dict[str, Any]] = [
    {"ident": "kernel", "host": "gpu-1"},
    {"SYSLOG_IDENTIFIER": "kernel"},
    {"SYSLOG_IDENTIFIER": "kernel", "SYSLOG_PID": "", "_TRANSPORT": "kernel"},
    {"appname": "kernel", "facility": "kern", "procid": "-", "source_type": "syslog"},
    {"programname": "kernel", "syslogtag": "kernel:", "syslogfacility": "0", "procid": "-"},
    {"process": {"name": "kernel"}, "log": {"syslog": {"facility": {"code": 0, "name": "kernel"}}}},
    {"TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"},
]


def in_gcp(body: dict[str, Any]) -> list[Any]:
    labels = {"node_name": "gpu-1"}
    entry = {"logName": "projects/p/logs/syslog", "insertId": "i", "jsonPayload": body, "labels": labels}
    return [e.actionable for e in parsed("gcp", entry).events if e.kind is Kind.FAULT]


@pytest.mark.parametrize("fields", SHIPPED_BY_PROCESS, ids=str)
def test_what_a_process_wrote_is_no_fault_whatever_its_shipper_calls_it(fields: dict[str, Any]) -> None:
    for message in (XID, f"[    1.200000] {XID}", f"Nov 30 10:00:00 gpu-1 kernel: {XID}"):
        (told,) = events(json.dumps({**fields, "message": message}))
        assert (told["kind"], told["fault"]) == ("info", "kmsg/not-kernel")
        assert in_gcp({**fields, "message": message}) == []


@pytest.mark.parametrize("fields", SHIPPED_OF_CONTAINER, ids=str)
def test_what_a_shipper_read_off_a_container_is_never_acted_on(fields: dict[str, Any]) -> None:
    assert one(json.dumps({**fields, "message": XID}))["actionable"] is False
    assert in_gcp({**fields, "message": XID}) == [False]


@pytest.mark.parametrize("fields", SHIPPED_BY_KERNEL, ids=str)
def test_what_a_shipper_says_the_kernel_wrote_is_acted_on(fields: dict[str, Any]) -> None:
    message = f"[    1.200000] {XID}"
    found = one(json.dumps({**fields, "message": message}))
    assert (found["fault"], found["actionable"]) == ("xid/79", True)
    assert in_gcp({**fields, "message": message}) == [True]


@pytest.mark.parametrize(
    "text",
    [
        f"Node gpu-1 log:\n   [    1.200000] {XID}",
        f"log:\n   [Mon Oct  6 12:00:00 2025] {XID}",
        f" [    1.200000] {XID}\n[    1.300000] foo",
        f"see below\n  Mar  1 08:00:00 gpu-1 kernel: {XID}",
    ],
)
def test_an_indented_line_with_the_kernels_own_prefix_is_its_word(text: str) -> None:
    assert one(text)["fault"] == "xid/79"


@pytest.mark.parametrize(
    "text",
    [
        f"Mar 01 08:00:00 gpu-1 logger[7]: hi\n          [    1.200000] {XID}",
        f"Mar 01 08:00:00 gpu-1 logger[7]: \n          [    1.200000] {XID}",
        f"Mar 01 08:00:00 gpu-1 logger:\n          kernel: {XID}",
        f"[  411.201010] gpu-1 logger: hi\n                               [    1.200000] {XID}",
        f"trainer: hi\n  more\n  [    1.200000] {XID}",
        f"hi\n   {XID}",
    ],
)
def test_an_indented_line_below_a_process_or_without_prefix_is_not_the_kernels(text: str) -> None:
    assert [e["fault"] for e in events(text)] == ["kmsg/not-kernel"]
