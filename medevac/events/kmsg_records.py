"""The records of a kernel log, however they were exported: one line each, or a journal's fields in any of its forms.

Where a journal says who wrote a record, that decides; a field whose name begins with `_` can't be set by a writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from medevac.events.kmsg_prefix import RAW, Record, of_line
from medevac.events.parsing import ParseError
from medevac.events.reading import (
    MAX_PARTS,
    Fields,
    clean,
    epoch,
    instant,
    is_node_name,
    json_value,
    read_text,
    real,
    whole,
)

MAX_LINE = 4_096
_JSON = re.compile(r"\s{0,100}(?:\{|\[\s{0,100}\{)")
_FRAMED = re.compile(r"^(?:\x1e|data: )", re.MULTILINE)
"""What stands before each object of `journalctl -o json-seq` and `json-sse`."""
_PRETTY = re.compile(r"^(?=\{\s*$)", re.MULTILINE)
_EXPORT = re.compile(rb"\s{0,100}(?:__CURSOR|__REALTIME_TIMESTAMP)=")
_NAME = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}")
_VERBOSE = re.compile(
    r"[^\s\[]{1,12} [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{8,15} \S{1,10} "
    r"\[s=[0-9a-f]{32};(?P<more>(?:[a-z]=[0-9a-f]{1,32};?){1,8})\]\s*"
)
_VERBOSE_FIELD = re.compile(r"    ([A-Z_][A-Z0-9_]{0,63})=(.*)", re.DOTALL)
"""By exactly four spaces: a value's further lines, which its writer may have chosen, stand deeper."""
_MANGLED = "neither NAME=value nor a value of known length: its bytes were changed on the way, the rest is not read"
_BOOT = re.compile(r"[0-9a-f]{32}")
_BOOT_LINE = re.compile(r"-- Boot ([0-9a-f]{32}) --\s*")
_HEADING = re.compile(r"(?![0-9]|.{0,200}[0-9]{2}:[0-9]{2})[^\[\]]{1,120}:\s*")
"""`gpu-1 log:` above indented lines; what journalctl shows of a process has a time before it."""
_JOURNAL = re.compile(
    r"(?:\[ {0,12}[0-9]{1,12}\.[0-9]{1,9}\]|[0-9]{9,10}\.[0-9]{1,9}"
    r"|.{0,30}?[0-9]{2}:[0-9]{2}:[0-9]{2}\S{0,20}(?: [A-Z]{2,5})?) \S{1,253} \S{1,80}: ?"
)
"""Time, host and writer: journalctl indents a message's further lines to where its first begins."""
_BY_PROCESS = ("_PID", "_UID", "_COMM", "_EXE", "SYSLOG_PID")
"""What journald knows of a process that writes; of the kernel it knows none of these."""
_PIDS = (
    *_BY_PROCESS, "PID", "UID", "COMM", "EXE", "pid", "procid", "process.pid", "log.syslog.procid", "journald.pid",
)  # fmt: skip
_WRITERS = (
    "SYSLOG_IDENTIFIER", "syslog_identifier", "appname", "app_name", "ident", "program", "programname", "syslogtag",
    "process", "process.name", "log.syslog.appname", "syslog.identifier",
)  # fmt: skip
_FACILITIES = (
    "SYSLOG_FACILITY", "syslog_facility", "facility", "syslogfacility", "syslogfacility-text", "syslog.facility",
    "log.syslog.facility.code", "log.syslog.facility.name",
)  # fmt: skip
_TRANSPORTS = ("_TRANSPORT", "TRANSPORT", "transport", "systemd.transport")
"""The same in the records of shippers: Vector, rsyslog, Fluentd, Fluent Bit, Filebeat."""
_KERN = {"0", "kern", "kernel"}
_READ = frozenset(
    ("MESSAGE", "_TRANSPORT", "SYSLOG_IDENTIFIER", "SYSLOG_FACILITY", "_HOSTNAME", "_BOOT_ID", "__REALTIME_TIMESTAMP")
).union(_BY_PROCESS)
"""Of a record no other field is kept: however many its writer adds, they push none of these out."""


def records(body: bytes) -> Iterator[Record | ParseError]:
    """Each record of a payload. One that can't be read stands as its error among the others."""
    text = read_text(body, "replace")
    text = _FRAMED.sub("", text) if text[:1] == "\x1e" or text.startswith("data: {") else text
    if _JSON.match(text):
        yield from _json(text)
        return
    if _EXPORT.match(body):
        yield from _export(body)
        return
    lines = text.split("\n")  # not at every character that Unicode calls a line's end: a process may write those
    if len(lines) > 50 * MAX_PARTS:
        raise ParseError(f"body has {len(lines)} lines, more than the {50 * MAX_PARTS} allowed")
    begins = (line for line in lines[:50] if line.strip() and not line.startswith("-- "))
    yield from _verbose(lines) if _VERBOSE.fullmatch(next(begins, "")[:1_000]) else _lines(lines)


def _lines(lines: list[str]) -> Iterator[Record]:
    raw = False
    boot: str | None = None
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    by_process, column = False, MAX_LINE
    for line in lines:
        # Raw records go on with ` KEY=value` lines, which are properties, not messages.
        if line.strip() and not (raw and line[0] == " "):
            if m := _BOOT_LINE.fullmatch(line[:60]):
                boot = _dashed(m[1])
                continue
            raw = line[0].isdigit() and RAW.match(line) is not None
            record = of_line(clean(line[:MAX_LINE]))
            if _indent(line) <= margin:
                by_process = not record.kernel and not _HEADING.fullmatch(line[:200])
                column = m.end() if (m := _JOURNAL.match(line[:600])) else MAX_LINE
            elif by_process or _indent(line) >= column or not _prefixed(record):
                # The message before may go on here; whoever wrote that one chose these words.
                record = replace(record, kernel=False)
            # Only beside the names that journalctl itself writes: alone, a process could write such a line, too.
            yield replace(record, boot_id=boot) if boot and record.host else record


def _prefixed(record: Record) -> bool:
    """The kernel's own words stand before the message: uptime or time in brackets, facility, name."""
    before = record.text.strip().removesuffix(record.message)
    return record.attested or record.uptime is not None or before.startswith("[") or "kernel:" in before


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _verbose(lines: list[str]) -> Iterator[Record | ParseError]:
    """`journalctl -o verbose`: time and cursor, then a line for each field."""
    held: dict[str, JsonValue] = {}
    number = 0
    for line in lines:
        if line[:1] not in ("", " ") and (m := _VERBOSE.fullmatch(line[:1_000])):
            yield from _held(held, number)
            number += 1
            cursor = dict(part.split("=") for part in m["more"].rstrip(";").split(";"))
            # The time before it is in the reader's own zone; the cursor holds the same in microseconds.
            held = {"_BOOT_ID": cursor.get("b"), "__REALTIME_TIMESTAMP": int(cursor.get("t", "0"), 16)}
        elif (m := _VERBOSE_FIELD.fullmatch(line)) and m[1] in _READ:
            held[m[1]] = m[2].rstrip("\r")
    yield from _held(held, number)


def _export(body: bytes) -> Iterator[Record | ParseError]:
    """`journalctl -o export`: `NAME=value` lines, an empty line after each record. A value with line ends in it stands
    after its length: what is in it is its writer's, also where it looks like another record."""
    held: dict[str, JsonValue] = {}
    at, number = 0, 1
    while at < len(body):
        end = body.find(b"\n", at)
        end = len(body) if end < 0 else end
        line, at = body[at:end].strip(b"\r"), end + 1
        name, mark, value = line.partition(b"=")
        if not line.strip():
            if held:
                yield from _held(held, number)
                held, number = {}, number + 1
            continue
        if not mark:
            size = int.from_bytes(body[at : at + 8], "little")
            value, at = body[at + 8 : at + 8 + size], at + 8 + size
            if not _NAME.fullmatch(name) or at >= len(body) or body[at : at + 1] != b"\n":
                yield ParseError(f"record {number}: {_MANGLED}")
                return
            at += 1
        if (key := name[:64].decode("ascii", "replace")) in _READ:
            held[key] = value[:MAX_LINE].decode("utf-8", "replace")
    yield from _held(held, number)


def _held(held: dict[str, JsonValue], number: int) -> Iterator[Record | ParseError]:
    """A record of named fields; one without a message says nothing."""
    if "MESSAGE" in held:
        try:
            yield of_fields(Fields(held, f"record {number}"))
        except ParseError as error:
            yield error


def _json(text: str) -> Iterator[Record | ParseError]:
    """journald's JSON, one object a line, one after another, or a list of them; `dmesg --json`, which holds them under
    its name."""
    found: list[JsonValue | ParseError] = []
    try:
        document = json_value(text)
        if isinstance(document, dict) and isinstance(document.get("dmesg"), list):
            document = document["dmesg"]
        found += document if isinstance(document, list) else [document]
    except ParseError as error:
        pretty = _PRETTY.split(text) if text.lstrip().startswith("{\n") else text.split("\n")
        parts = [part for part in pretty if part.strip()]
        if len(parts) < 2 or len(parts) > 20 * MAX_PARTS:
            raise error from None
        found += [_document(part, f"line {i}") for i, part in enumerate(parts, 1)]
        if all(isinstance(item, ParseError) for item in found):
            raise error from None
    for i, item in enumerate(found, 1):
        try:
            yield item if isinstance(item, ParseError) else of_fields(Fields.of(item, f"record {i}"))
        except ParseError as error:
            yield error


def _document(text: str, where: str) -> JsonValue | ParseError:
    try:
        return json_value(text, where)
    except ParseError as error:
        return error


def of_fields(fields: Fields) -> Record:
    """A record as a journal or a shipper holds it. Raises `ParseError` where it has no message."""
    message = fields.get("MESSAGE")
    for key in ("message", "log", "msg"):
        message = message if message is not None else fields.get(key)
    if isinstance(message, list):  # journald writes what isn't UTF-8 as a list of bytes
        octets = [n for n in message if isinstance(n, int) and 0 <= n < 256]
        message = bytes(octets[:MAX_LINE]).decode("utf-8", "replace")
    if not isinstance(message, str):
        raise ParseError(f"{fields.where}: field MESSAGE is missing or no text")
    inner = of_line(clean(message[:MAX_LINE].split("\n")[0]))
    transport, name, facility, process = (_said(fields, keys) for keys in (_TRANSPORTS, _WRITERS, _FACILITIES, _PIDS))
    kernel = inner.kernel and transport <= {"kernel"} and name <= {"kernel"} and facility <= _KERN and not process
    host = fields.scalar("_HOSTNAME") or _host(fields.get("hostname")) or _host(fields.get("host")) or inner.host
    boot = (fields.scalar("_BOOT_ID") or "").replace("-", "").lower()
    level, uptime = whole(fields.get("pri")), real(fields.get("time"))
    since_boot = uptime if level is not None and uptime is not None and uptime < 1e9 else None
    return Record(
        message[:MAX_LINE],
        inner.message,
        kernel and (level is None or level >> 3 == 0),
        host if is_node_name(host) else None,
        epoch(fields.get("__REALTIME_TIMESTAMP")) or inner.time or (None if since_boot else _shipped(fields)),
        inner.uptime if inner.uptime is not None else since_boot,
        _dashed(boot) if _BOOT.fullmatch(boot) else None,
        inner.container or _of_container(fields),
        inner.device,
        kernel and bool(fields.get("_TRANSPORT") or name or facility or inner.attested),
    )


def _said(fields: Fields, keys: Iterable[str]) -> set[str]:
    """All that a record says under these keys: where two differ, a writer may have added one."""
    found: set[str] = set()
    for key in keys:
        value = fields.get(key)
        if value is None and "." in key:
            first, *more = key.split(".")
            value = fields.get(first)
            for part in more:
                value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, dict) and key == "process":  # its parts have keys of their own
            continue
        if value not in (None, "", "-"):
            found.add(f"{value:g}" if isinstance(value, float) else str(value)[:100].rstrip(":"))
    return found


def _of_container(fields: Fields) -> bool:
    return (
        fields.get("stream") in ("stdout", "stderr")
        or fields.get("source_type") in ("docker_logs", "kubernetes_logs")
        or any(key in fields for key in ("kubernetes", "container", "container_name", "container_id"))
    )


def _dashed(boot: str) -> str:
    """As `/proc/sys/kernel/random/boot_id` writes it."""
    return f"{boot[:8]}-{boot[8:12]}-{boot[12:16]}-{boot[16:20]}-{boot[20:]}"


def _host(value: JsonValue) -> str | None:
    """A name, or a shipper's object that holds one."""
    if isinstance(value, dict):
        value = value.get("name") or value.get("hostname")
    return value if isinstance(value, str) else None


def _shipped(fields: Fields) -> datetime | None:
    """The time that a shipper read off the record."""
    for key in ("@timestamp", "timestamp", "time", "date"):
        if when := instant(fields.get(key)) or epoch(fields.get(key)):
            return when
    return None
