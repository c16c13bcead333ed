"""What stands before a kernel message: who wrote it, when, on which host, in which boot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import JsonValue

from medevac.events.parsing import ParseError
from medevac.events.reading import (
    MAX_PARTS,
    Fields,
    clean,
    epoch,
    gpu_uuid,
    instant,
    is_node_name,
    json_value,
    real,
    whole,
)

MAX_LINE = 4_096


@dataclass(frozen=True, slots=True)
class Record:
    text: str
    """The whole line, as delivered."""
    message: str
    """What the writer wrote."""
    kernel: bool
    """False where the line says that a process wrote it."""
    host: str | None = None
    time: datetime | None = None
    """Wall clock, only where the line gives one with its zone. Uptime is none."""
    uptime: float | None = None
    boot_id: str | None = None
    container: bool = False
    """Out of a container's output: whoever wrote it may be showing the kernel's log, or anything else."""
    device: str | None = None
    """The GPU that the line names before the kernel's words, as an entity."""

    @property
    def seconds(self) -> float | None:
        """On whichever clock the line has; good for distances within one payload."""
        return self.uptime if self.uptime is not None else self.time.timestamp() if self.time else None


_WORD = r"[^\W\d_]{1,6}\.?"
"""A weekday or month, in any language."""
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_CONTAINER = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,20}(?:Z|[+-][0-9]{2}:[0-9]{2}) std(?:out|err) [FP] "
    r"|\[pod/[^\]\s]{1,300}\] |[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{9}Z (?!\S{1,253} kernel)"
)
"""What stands before a line of a container's output: the runtime's own, `kubectl logs --prefix`, `--timestamps`."""
_WATCHED = re.compile(r"\[gpu-health\] \[[A-Z]{2,10}\] (?P<uuid>GPU-[0-9a-fA-F-]{8,40}): [A-Za-z0-9_ -]{1,40}: ")
"""A host's own watcher that repeats the kernel's line in the output of each container that has the GPU."""
_JSON = re.compile(r"\s{0,100}(?:\{|\[\s{0,100}\{)")
_FRAMED = re.compile(r"^(?:\x1e|data: )", re.MULTILINE)
"""What stands before each object of `journalctl -o json-seq` and `json-sse`."""
_PRETTY = re.compile(r"^(?=\{\s*$)", re.MULTILINE)
_NODE = re.compile(r"(\S{1,253}): (?=kern *: )")
"""Whose log it is, as `talosctl dmesg` shows several."""
_EXPORT = re.compile(r"\s{0,100}(?:__CURSOR|__REALTIME_TIMESTAMP)=")
_RAW = re.compile(r"([0-9]{1,5}),([0-9]{1,20}),([0-9]{1,20}),[^;]{1,40};")
_PRIORITY = re.compile(r"<([0-9]{1,3})>(?:1 )?")
_DECODED = re.compile(r"(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]) *: *[a-z]+ *: ?")
_UPTIME = re.compile(r"\[ {0,12}([0-9]{1,12}\.[0-9]{1,9})(?: <[ 0-9.]{1,24}>)?\][ \t]?")
_PLACEHOLDER = re.compile(
    rf"\[(?:\.{{3}}|…|(?: {{0,8}}{_WORD} {{1,2}}){{2}}[0-9]{{1,2}} [0-9:]{{8}} [0-9]{{4}}"
    rf"|{_WORD} ?[0-9]{{1,2}} [0-9]{{2}}:[0-9]{{2}}| {{0,12}}[+-][0-9.]{{1,20}}|<[ 0-9.]{{1,24}}>)\] ?"
)
"""Wall clock without a zone, or the distance from the line before."""
_CALLER = re.compile(r"\[ {0,8}[TC][0-9]{1,10}\] ?")
_ISO = re.compile(
    r"\[?([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]{1,9})?(?: ?(?:Z|[+-][0-9]{2}:?[0-9]{2}))?)\]?:? "
)
_FULL = re.compile(
    rf"{_WORD} ([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9:]{{8}}(?:\.[0-9]{{1,9}})?) (UTC|[A-Z]{{2,5}}|[+-][0-9:]{{2,6}}) "
)
_UNIX = re.compile(r"([0-9]{9,10}\.[0-9]{3,9}) (?=\S{1,253} kernel: )")
_CLASSIC = re.compile(
    rf"(?:[0-9]{{4}} )?{_WORD} [ 0-9]?[0-9] (?:[0-9]{{4}} )?[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,9}})? "
)
_REPEATED = re.compile(r"message repeated [0-9]{1,9} times: \[ ?(.*?)\]?$", re.DOTALL)
_TAGGED = re.compile(r"(?:(\S{0,252}[^\s:]) )?([A-Za-z0-9_./@-]{1,64})(?:\[[0-9]{1,10}\])?: ?")
_RFC5424 = re.compile(r"(\S{1,253}) (\S{1,48}) \S{1,128} \S{1,32} (?:-|\[[^\]]{0,2000}\]) ?")
_BOOT = re.compile(r"[0-9a-f]{32}")


def records(text: str) -> Iterator[Record | ParseError]:
    """Each record of a payload. One of JSON that can't be read stands as its error among the others."""
    text = _FRAMED.sub("", text) if text[:1] == "\x1e" or text.startswith("data: {") else text
    if _JSON.match(text):
        yield from _exported(text)
        return
    if _EXPORT.match(text):
        yield from _journal_export(text)
        return
    lines = text.split("\n")  # not at every character that Unicode calls a line's end: a process may write those
    if len(lines) > 50 * MAX_PARTS:
        raise ParseError(f"body has {len(lines)} lines, more than the {50 * MAX_PARTS} allowed")
    raw = False
    for line in lines:
        # Raw records go on with ` KEY=value` lines, which are properties, not messages.
        if line.strip() and not (raw and line[0] == " "):
            raw = _RAW.match(line) is not None
            yield of_line(clean(line[:MAX_LINE]))


def of_line(line: str) -> Record:
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if m := _CONTAINER.match(line):
        return replace(of_line(line[m.end() :]), text=line, container=True)
    if m := _WATCHED.match(line):
        return replace(of_line(line[m.end() :]), text=line, container=True, device=gpu_uuid(m["uuid"]))
    rest, kernel = line.strip(), True
    host: str | None = None
    time: datetime | None = None
    uptime: float | None = None
    if m := _RAW.match(rest):
        return Record(line, rest[m.end() :], int(m[1]) >> 3 == 0, uptime=int(m[3]) / 1e6)
    syslog5424 = False
    if m := _PRIORITY.match(rest):
        kernel, rest = int(m[1]) >> 3 == 0, rest[m.end() :]
        syslog5424 = m[0].endswith("1 ")
    if m := _NODE.match(rest):
        host, rest = m[1], rest[m.end() :]
    if m := _DECODED.match(rest):
        kernel, rest = kernel and m[1] == "kern", rest[m.end() :]
    if m := _ISO.match(rest):
        time, rest = instant(m[1].replace(" +", "+").replace(" -", "-")), rest[m.end() :]
    elif m := _FULL.match(rest):
        time, rest = instant(m[1] + m[2]) if m[2] == "UTC" or not m[2].isalpha() else None, rest[m.end() :]
    elif m := _UNIX.match(rest):
        time, rest = epoch(m[1]), rest[m.end() :]
    elif m := _CLASSIC.match(rest):
        rest = rest[m.end() :]
    written_by = _RFC5424 if syslog5424 else _TAGGED
    if not _is_message(rest) and (m := written_by.match(rest)):
        host = m[1] or host
        if _is_message(f"{m[2]}: "):
            # `logger -t NVRM …` looks like this; the kernel's own lines carry the kernel's name after the host's.
            kernel, rest = False, rest[m.start(2) :]
        else:
            kernel, rest = kernel and m[2] == "kernel", rest[m.end() :]
            if m := _REPEATED.match(rest):
                rest = m[1]
    if m := _UPTIME.match(rest):
        uptime, rest = float(m[1]), rest[m.end() :]
    elif m := _PLACEHOLDER.match(rest):
        rest = rest[m.end() :]
    if m := _CALLER.match(rest):
        rest = rest[m.end() :]
    if not _is_message(rest) and (m := _TAGGED.match(rest)) and m[2] == "kernel":
        host, rest = host or m[1], rest[m.end() :]
    return Record(line, rest, kernel, host if is_node_name(host) else None, time, uptime)


def _is_message(text: str) -> bool:
    return text.startswith(("NVRM:", "nvidia-", "[", "NVLink"))


def _journal_export(text: str) -> Iterator[Record]:
    """`journalctl -o export`: `KEY=value` lines, an empty line after each record."""
    for i, block in enumerate(re.split(r"\n[ \t\r]*\n", text.strip()), 1):
        if i > MAX_PARTS:
            raise ParseError(f"body has more than the {MAX_PARTS} records allowed")
        pairs = (line.partition("=") for line in block[: 64 * MAX_LINE].split("\n")[:200])
        held: dict[str, JsonValue] = {key: value for key, mark, value in pairs if mark}
        if "MESSAGE" in held:
            yield _journal(Fields(held, f"record {i}"))


def _exported(text: str) -> Iterator[Record | ParseError]:
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
        if len(parts) < 2 or len(parts) > MAX_PARTS:
            raise error from None
        found += [_document(part, f"line {i}") for i, part in enumerate(parts, 1)]
        if all(isinstance(item, ParseError) for item in found):
            raise error from None
    for i, item in enumerate(found, 1):
        try:
            yield item if isinstance(item, ParseError) else _journal(Fields.of(item, f"record {i}"))
        except ParseError as error:
            yield error


def _document(text: str, where: str) -> JsonValue | ParseError:
    try:
        return json_value(text, where)
    except ParseError as error:
        return error


def _journal(fields: Fields) -> Record:
    message = fields.get("MESSAGE")
    for key in ("message", "log", "msg"):
        message = message if message is not None else fields.get(key)
    if isinstance(message, list):  # journald writes what isn't UTF-8 as a list of bytes
        octets = [n for n in message if isinstance(n, int) and 0 <= n < 256]
        message = bytes(octets[:MAX_LINE]).decode("utf-8", "replace")
    if not isinstance(message, str):
        raise ParseError(f"{fields.where}: field MESSAGE is missing or no text")
    inner = of_line(clean(message[:MAX_LINE].split("\n")[0]))
    transport, name = fields.scalar("_TRANSPORT"), fields.scalar("SYSLOG_IDENTIFIER")
    facility = fields.scalar("SYSLOG_FACILITY")
    kernel = inner.kernel and transport in (None, "kernel") and name in (None, "kernel") and facility in (None, "0")
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
        f"{boot[:8]}-{boot[8:12]}-{boot[12:16]}-{boot[16:20]}-{boot[20:]}" if _BOOT.fullmatch(boot) else None,
        inner.container or fields.get("stream") in ("stdout", "stderr") or "kubernetes" in fields,
        inner.device,
    )


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
