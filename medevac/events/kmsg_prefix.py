"""What stands before a kernel message: who wrote it, when, on which host, in which boot."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from medevac.events.reading import epoch, gpu_uuid, instant, is_node_name


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
    attested: bool = False
    """What stands before the message says that the kernel wrote it; a bare line shows nobody as its writer."""

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
_NODE = re.compile(r"(\S{1,253}): (?=kern *: )")
"""Whose log it is, as `talosctl dmesg` shows several."""
RAW = re.compile(r"([0-9]{1,5}),([0-9]{1,20}),([0-9]{1,20}),[^;]{1,40};")
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
    rf"(?:{_WORD} (?={_WORD} ))?(?:[0-9]{{4}} )?{_WORD} [ 0-9]?[0-9] (?:[0-9]{{4}} )?"
    r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})? (?:[0-9]{4} )?"
)
_REPEATED = re.compile(r"message repeated [0-9]{1,9} times: \[ ?(.*?)\]?$", re.DOTALL)
_TAGGED = re.compile(r"(?:(\S{0,252}[^\s:]) )?([A-Za-z0-9_./@-]{1,64})(\[[0-9]{1,10}\])?: ?")
_PRI_TEXT = re.compile(
    r"(?:(\S{1,253}) )?(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])"
    r"\.(?:emerg|panic|alert|crit|err|error|warn|warning|notice|info|debug)(?:<[0-9]{1,3}>)? "
)
"""Host, and the facility with the level, as BusyBox' syslogd and rsyslog's `pri-text` write them before the tag."""
_RFC5424 = re.compile(r"(\S{1,253}) (\S{1,48}) (?:-|(\S{1,128})) \S{1,32} (?:-|\[[^\]]{0,2000}\]) ?")
"""Host, writer, and the process id, which the kernel has none of: `logger -t kernel` has one."""


def of_line(line: str) -> Record:
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if m := _CONTAINER.match(line):
        return replace(of_line(line[m.end() :]), text=line, container=True)
    if m := _WATCHED.match(line):
        return replace(of_line(line[m.end() :]), text=line, container=True, device=gpu_uuid(m["uuid"]))
    rest, kernel, attested = line.strip(), True, False
    host: str | None = None
    time: datetime | None = None
    uptime: float | None = None
    if m := RAW.match(rest):
        return Record(line, rest[m.end() :], int(m[1]) >> 3 == 0, uptime=int(m[3]) / 1e6)
    syslog5424 = False
    if m := _PRIORITY.match(rest):
        kernel, rest = int(m[1]) >> 3 == 0, rest[m.end() :]
        attested = kernel
        syslog5424 = m[0].endswith("1 ")
    if m := _NODE.match(rest):
        host, rest = m[1], rest[m.end() :]
    if m := _DECODED.match(rest):
        kernel, rest = kernel and m[1] == "kern", rest[m.end() :]
        attested = kernel
    if m := _ISO.match(rest):
        time, rest = instant(m[1].replace(" +", "+").replace(" -", "-")), rest[m.end() :]
    elif m := _FULL.match(rest):
        time, rest = instant(m[1] + m[2]) if m[2] == "UTC" or not m[2].isalpha() else None, rest[m.end() :]
    elif m := _UNIX.match(rest):
        time, rest = epoch(m[1]), rest[m.end() :]
    elif m := _CLASSIC.match(rest):
        rest = rest[m.end() :]
    if m := _PRI_TEXT.match(rest):
        host, kernel, rest = m[1] or host, kernel and m[2] == "kern", rest[m.end() :]
        attested = kernel
    written_by = _RFC5424 if syslog5424 else _TAGGED
    if not _is_message(rest) and (m := written_by.match(rest)):
        host = m[1] or host
        if _is_message(f"{m[2]}: "):
            # `logger -t NVRM …` looks like this; the kernel's own lines carry the kernel's name after the host's.
            kernel, rest = False, rest[m.start(2) :]
        else:
            kernel, rest = kernel and m[2] == "kernel" and m[3] is None, rest[m.end() :]
            attested = attested or host is not None
            if m := _REPEATED.match(rest):
                rest = m[1]
    if m := _UPTIME.match(rest):
        uptime, rest = float(m[1]), rest[m.end() :]
    elif m := _PLACEHOLDER.match(rest):
        rest = rest[m.end() :]
    if m := _CALLER.match(rest):
        rest = rest[m.end() :]
    if not _is_message(rest) and (m := _TAGGED.match(rest)) and m[2] == "kernel":
        host, kernel, rest = host or m[1], kernel and m[3] is None, rest[m.end() :]
    named = host if is_node_name(host) else None
    return Record(line, rest, kernel, named, time, uptime, attested=attested and kernel)


def _is_message(text: str) -> bool:
    return text.startswith(("NVRM:", "nvidia-", "[", "NVLink"))
