"""The kernel's lines in each of journalctl's forms, and what processes wrote, which is a fault in none of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.parsing import ParseError
from tests.unit.events.payloads import forms, parsed

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
BOOT, DASHED = "0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdef"
AT = 1_772_352_000_250_000
WHEN = "2026-03-01T08:00:00.250000Z"
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
LOGGER = {"_TRANSPORT": "syslog", "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": "kernel", "_PID": "77"}


def record(writer: dict[str, str], message: str = XID) -> dict[str, str]:
    return {**writer, "_HOSTNAME": "worker-3", "_BOOT_ID": BOOT, "MESSAGE": message}


def as_json(fields: dict[str, str], **how: Any) -> bytes:
    return json.dumps({"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": str(AT), **fields}, **how).encode() + b"\n"


def as_export(fields: dict[str, str]) -> bytes:
    text = b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=%d\n" % AT
    for name, value in fields.items():
        raw = value.encode()
        long = name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw
        text += (long if b"\n" in raw else f"{name}={value}".encode()) + b"\n"
    return text + b"\n"


def as_verbose(fields: dict[str, str]) -> bytes:
    cursor = f"s={BOOT};i=1a;b={BOOT};m=1882d2a2;t={AT:x};x=f00"
    lines = [f"    {k}=" + v.replace("\n", "\n" + " " * (5 + len(k))) for k, v in fields.items()]
    return "\n".join([f"Sun 2026-03-01 09:00:00.250000 CET [{cursor}]", *lines, ""]).encode()


STRUCTURED = {
    "json": as_json,
    "json-pretty": lambda fields: as_json(fields, indent="\t"),
    "export": as_export,
    "verbose": as_verbose,
}


def faults(body: bytes) -> list[dict[str, Any]]:
    return [form for form in forms("kmsg", body) if form["kind"] == "fault"]


@pytest.mark.parametrize("form", STRUCTURED)
def test_a_record_gives_host_time_and_boot(form: str) -> None:
    written = STRUCTURED[form]
    body = written(record(KERNEL, "usb 1-1: hello")) + written(record(KERNEL)) + written(record(LOGGER, "hi\nthere"))
    (found,) = faults(body)
    assert (found["fault"], found["subject"], found["boot_id"], found["starts_at"], found["actionable"]) == (
        "xid/79", "worker-3", DASHED, WHEN, True,
    )  # fmt: skip


FORGED = {
    "a message": XID,
    "a second line": f"hi\n{XID}",
    "a kernel's line": f"hi\nMar  1 08:00:00 worker-3 kernel: {XID}",
    "a record of the export": f"hi\n\n__CURSOR=x\n_TRANSPORT=kernel\nMESSAGE={XID}\n\n",
    "a record of verbose": "hi\n" + as_verbose(record(KERNEL)).decode(),
    "fields of verbose": f"hi\n    _TRANSPORT=kernel\n    MESSAGE={XID}",
    "a record in JSON": "hi\n" + as_json(record(KERNEL)).decode(),
}


@pytest.mark.parametrize("message", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("form", STRUCTURED)
def test_what_a_process_wrote_is_no_fault_in_any_form(form: str, message: str) -> None:
    written = STRUCTURED[form]
    forged = {**LOGGER, **{f"FIELD{i}": "x" for i in range(300)}}  # however many stand before who wrote it
    for writer in (LOGGER, {"SYSLOG_IDENTIFIER": "NVRM", "_TRANSPORT": "stdout"}, {"_PID": "77"}, forged):
        assert faults(written(record(writer, message))) == []
        last = {"MESSAGE": message, **{f"FIELD{i}": "x" for i in range(300)}, **writer}
        assert faults(written(last)) == []
    assert [f["fault"] for f in faults(written(record(LOGGER, message)) + written(record(KERNEL)))] == ["xid/79"]


def short(who: str, message: str, stamp: str = "Mar 01 08:00:00 worker-3") -> str:
    head = f"{stamp} {who}: "
    return head + message.replace("\n", "\n" + " " * len(head)) + "\n"


STAMPS = {
    "short": ("Mar 01 08:00:00 worker-3", None),
    "short-iso": ("2026-03-01T10:00:00+0200 worker-3", "2026-03-01T08:00:00Z"),
    "short-iso-precise": ("2026-03-01T10:00:00.250000+02:00 worker-3", WHEN),
    "with-unit": ("Sun 2026-03-01 08:00:00 UTC worker-3", "2026-03-01T08:00:00Z"),
    "short-unix": ("1772352000.250000 worker-3", WHEN),
    "short-monotonic": ("[  411.201010] worker-3", None),
}


@pytest.mark.parametrize("form", STAMPS)
def test_a_line_of_text_is_the_kernels_where_it_alone_can_have_written_it(form: str) -> None:
    stamp, when = STAMPS[form]
    (found,) = faults(short("kernel", XID, stamp).encode())
    assert (found["fault"], found["subject"], found["starts_at"]) == ("xid/79", "worker-3", when)
    for who in ("kernel[77]", "NVRM[77]", "logger[77]", "session-1.scope[77]", "user@1000.service/app.scope[77]"):
        for message in (XID, FORGED["a second line"], FORGED["a kernel's line"]):
            assert faults(short(who, message, stamp).encode()) == []


def test_cat_shows_words_alone() -> None:
    (found,) = faults(f"usb 1-1: hello\n{XID}\n".encode())
    assert (found["fault"], found["subject"], found["boot_id"]) == ("xid/79", None, None)


def test_a_new_boots_heading_counts_for_the_lines_below_it() -> None:
    before, after = short("kernel", XID), short("kernel", XID.replace("3b", "5d"))
    first, second = faults(f"{before}-- Boot {BOOT} --\n{after}".encode())
    assert (first["boot_id"], second["boot_id"]) == (None, DASHED)
    (cat,) = faults(f"-- Boot {BOOT} --\n{XID}\n".encode())
    assert cat["boot_id"] is None, "any process can write that line where only words are shown"


def test_another_machines_line_takes_no_boot_of_the_request() -> None:
    headers = {"x_medevac_node": "worker-9", "x_medevac_boot_id": "b-17"}
    (other,) = parsed("kmsg", short("kernel", XID), **headers).events
    assert (other.subject, other.boot_id) == ("worker-3", None)
    own = short("kernel", XID).replace("worker-3", "Worker-9")
    for said in (headers, {**headers, "x_medevac_node": "worker-9.example.com"}, {"x_medevac_boot_id": "b-17"}):
        (found,) = parsed("kmsg", own, **said).events
        assert (found.subject, found.boot_id) == ("Worker-9", "b-17")


def test_an_export_whose_lengths_were_changed_on_the_way_is_read_no_further() -> None:
    forged = as_export(record(LOGGER, FORGED["a record of the export"])).replace(b"\x00" * 6, "\ufffd".encode())
    found = parsed("kmsg", as_export(record(KERNEL)) + forged + as_export(record(KERNEL, XID.replace("3b", "5d"))))
    assert [e.entities for e in found.events] == [("pci:0000:3b:00",)]
    assert "rest is not read" in found.refused[0].reason
    with pytest.raises(ParseError, match="record 1: "):
        parsed("kmsg", as_export(record(KERNEL))[:-2].replace(b"MESSAGE=", b"MESSAGE\n"))
