"""Kernel log lines: Xid and SXid, in every form in which shippers deliver them.

One line of text per record (raw `/dev/kmsg`, `dmesg` with any of its prefixes, syslog, journalctl) or one JSON
object per record (journald's export). A record counts only where it is the kernel's own: what a process wrote
into the log under that name is no evidence, and a line out of a container's output is never acted on. Lines of one
fault become one event; its host comes from the line, else from the request's headers, else it is left to the
transport.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from medevac.events.event import Kind, Severity, Statement
from medevac.events.freetext import severity_of
from medevac.events.kmsg_prefix import Record
from medevac.events.kmsg_records import records
from medevac.events.kmsg_text import Fault, fault_of, is_foul, serial_line, uuid_line
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Reading,
    entities,
    fault_code,
    join_key,
    nvlink,
    nvswitch,
)
from medevac.events.transport import BOOT_HEADER, CLUSTER_HEADER, NODE_HEADER, header

SOURCE = "kmsg"
BURST_S = 180.0
"""Silence after which the same fault on the same device is said anew."""
MAX_REFUSED = 100
MAX_FAULTS = 2_000
"""Different faults in one payload; more is a flood, and is counted as held back."""


def recognises(payload: Payload) -> bool:
    head = payload.body[:65_536]
    return b"NVRM: Xid (" in head or b": SXid (" in head


@dataclass(slots=True)
class _Burst:
    """One fault on one device, as one or many lines."""

    fault: Fault
    record: Record
    lines: list[str] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    word: str | None = None
    parts: list[str] = field(default_factory=list)
    """MIG instances, and a GPU that its line names beside the kernel's words."""
    detail: dict[str, Any] = field(default_factory=dict)
    last_s: float | None = None

    def take(self, fault: Fault, record: Record) -> None:
        self.lines.append(record.text)
        self.last_s = record.seconds if record.seconds is not None else self.last_s
        if fault.link is not None and fault.link not in self.links:
            self.links.append(fault.link)
        self.parts += [*fault.entities, *((record.device,) if record.device else ())]
        if fault.word and self.word != "fatal":
            self.word = fault.word
        for key, value in fault.detail.items():
            self.detail.setdefault(key, value)
        if fault.detail.get("recovery_code", 0) != 0:  # the newest recommendation holds; "None" takes none back
            self.detail.update(fault.detail)


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    names: dict[str, list[str]] = {}
    named = ""
    open_bursts: dict[tuple[object, ...], _Burst] = {}
    bursts: list[_Burst] = []
    unreadable, foreign, read = 0, 0, 0
    refused: list[ParseError] = []
    for record in records(payload.body):
        if isinstance(record, ParseError):
            refused.append(record)
            continue
        read += 1
        fault = fault_of(record.message)
        if fault is None:
            if is_foul(record.message):
                unreadable, foreign = unreadable + record.kernel, foreign + (not record.kernel)
            if record.kernel and (uuid := uuid_line(record.message)):
                named = uuid[0]
                names[named] = [uuid[1]]
            elif record.kernel and named and (serial := serial_line(record.message)):
                names[named].append(serial)
            continue
        if not record.kernel:
            foreign += 1
            continue
        link = fault.link if fault.is_switch else None
        key = (record.host, record.boot_id, fault.is_switch, fault.code, fault.pci, link)
        burst = open_bursts.get(key)
        if burst is None and fault.is_switch and link is None:
            # A switch's Data and Severity lines name no link: they belong to the fault that was just printed.
            burst = next((b for b in reversed(bursts[-64:]) if _same_device(b, fault, record)), None)
        if burst is not None and not _silent(burst, record):
            burst.take(fault, record)
            continue
        if len(bursts) >= MAX_FAULTS:
            reading.truncated += 1
            continue
        burst = _Burst(fault, record)
        burst.take(fault, record)
        open_bursts[key] = burst
        bursts.append(burst)
    if refused and not read:
        raise refused[0]
    for error in refused[:MAX_REFUSED]:
        where, _, why = str(error).partition(": ")
        reading.refuse(where, why or "can't be read")
    for burst in bursts:
        _add(reading, burst, payload, names.get(burst.fault.pci, []))
    if unreadable:
        _note(reading, "unreadable", unreadable, "lines speak of an Xid that can't be read")
    if foreign:
        _note(reading, "not-kernel", foreign, "lines claim an Xid but weren't written by the kernel")
    return reading.parsed()


def _same_device(burst: _Burst, fault: Fault, record: Record) -> bool:
    return (
        burst.fault.is_switch
        and fault.is_switch
        and burst.fault.code == fault.code
        and burst.fault.pci == fault.pci
        and burst.record.host == record.host
        and burst.record.boot_id == record.boot_id
    )


def _silent(burst: _Burst, record: Record) -> bool:
    return burst.last_s is not None and record.seconds is not None and abs(record.seconds - burst.last_s) > BURST_S


def _add(reading: Reading, burst: _Burst, payload: Payload, names: list[str]) -> None:
    fault, record = burst.fault, burst.record
    code = fault_code("sxid" if fault.is_switch else "xid", fault.code)
    host = record.host or header(payload.headers, NODE_HEADER)
    boot_id = record.boot_id or _boot_of_request(host, payload)
    severity = {"fatal": Severity.CRITICAL, "nonfatal": Severity.WARNING}.get(burst.word or "")
    none_wanted = burst.detail.get("recovery_code") == 0
    link = burst.links[0] if fault.is_switch and burst.links else None
    reading.add(
        Kind.INFO if none_wanted else Kind.FAULT,
        code,
        part="\n".join(burst.lines[:50]),
        key=("kmsg", boot_id, host, code, fault.pci, *([f"link {link}"] if link is not None else [])),
        subject=host,
        cluster=header(payload.headers, CLUSTER_HEADER),
        boot_id=boot_id,
        actionable=not none_wanted and not record.container,
        severity=severity or severity_of(code),
        statement=Statement.EDGE,
        entities=entities(
            fault.pci,
            *burst.parts,
            *(nvlink(n) for n in burst.links),
            nvswitch(fault.switch),
            *names,
        ),
        starts_at=record.time,
        summary=burst.lines[0],
        detail={**burst.detail, "driver_word": burst.word, "lines": len(burst.lines), "uptime_s": record.uptime},
    )


def _boot_of_request(host: str | None, payload: Payload) -> str | None:
    """None where the request speaks for another machine than the line: by that boot the line would be an old one."""
    sender = header(payload.headers, NODE_HEADER)
    same = host is None or sender is None or _short(host) == _short(sender)
    return header(payload.headers, BOOT_HEADER) if same else None


def _short(name: str) -> str:
    """A host's own name lacks the domain that its node's name may have; an address has none."""
    return name.lower() if name.replace(".", "").isdigit() else name.lower().split(".")[0]


def _note(reading: Reading, what: str, count: int, words: str) -> None:
    reading.add(
        Kind.INFO,
        fault_code("kmsg", what),
        part=[what, count],
        key=join_key("kmsg", what),
        actionable=False,
        summary=f"{count} {words}",
        detail={"lines": count},
    )
