"""Slurm: `sinfo -R`, `scontrol show node` and slurmrestd (text and JSON), slurmctld's log, strigger's words.

Node lists are host lists, expanded within a limit. A node's state is a list of flags. A drain by a person is the
machine's life, no fault; one by a health check or by the daemon says what is wrong.
"""

from __future__ import annotations

import re
from itertools import product

from medevac.events.event import Kind, Severity, Statement
from medevac.events.freetext import severity_of, xid_codes
from medevac.events.hostlist import MAX_CLUSTER, expand, size
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    MAX_PARTS,
    Fields,
    Reading,
    epoch,
    instant,
    looks_like_json,
    one_line,
    peek_json,
    read_json,
    read_text,
)
from medevac.events.slurm_words import LOG_LINES, OWN, reason_code, state_code

SOURCE = "slurm"
MAX_FLAGS = 32
MAX_REFUSED = 50
MAX_LINES = 50_000
MAX_REASON = 1_000
MAX_NAMED = 10 * MAX_CLUSTER
"""Nodes that one payload may name, repeats counted: what names more was made to."""

_SINFO = re.compile(
    r" (?P<user>\S{1,64}) (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown)"
    r"(?: (?P<state>[a-z_]{2,20}[*~#!%$@^+-]?))? (?P<nodes>[A-Za-z0-9]\S{0,4000})$"
)
"""The end of a line of `sinfo -R`, with the state where it was asked for `-l`; the reason before may hold anything."""
_HEADER = re.compile(r"\s*REASON[ |]+USER[ |]+TIMESTAMP\b")
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]?[0-9] [0-9:]{8} [0-9]{4}")
"""What `sinfo -l` prints above its header."""
_FUNCTION = re.compile(r"[a-z_]{3,60}: ")
"""Which of slurmctld's functions speaks."""
_LOG_PREFIX = re.compile(
    r"(?:\[(?P<time>[0-9T:.+Z -]{19,40})\]\s*)?(?:(?:\S+\s+){0,6}slurmctld(?:\[\d+\])?:\s*)?"
    r"(?:(?:error|info|debug\d?|verbose|fatal):\s*)*"
)
_SCONTROL = re.compile(r"\bNodeName=(?P<name>\S{1,253})")
_FIELD = re.compile(r"(?<!\S)(State|Reason|BootTime|SlurmdStartTime)=")
_TRIGGER = re.compile(r"(down|drained|fail|up|idle)\s+([A-Za-z0-9]\S{0,4000})\s*")
_ARGV = re.compile(r"(?:\S{0,200}/\S{1,100}\s+)?([A-Za-z][A-Za-z0-9._-]{0,60}(?:[0-9]|\[[0-9,-]{1,2000}\])\S{0,4000})")
"""What strigger calls its program with: the nodes, and not why."""


def parse(payload: Payload) -> Parsed:
    try:
        return _parse(payload)
    except _TooMany as error:
        raise ParseError(str(error)) from None


def _parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if looks_like_json(payload) and not payload.body.lstrip().startswith(b"[20"):
        _json(reading, Fields.of(read_json(payload.body)))
    else:
        _text(reading, read_text(payload.body))
    if reading.refused and not reading.events and len(reading.refused) == 1:
        raise ParseError(str(reading.refused[0]))
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if looks_like_json(payload) and not payload.body.lstrip().startswith(b"[20"):
        document = peek_json(payload)
        if not isinstance(document, dict):
            return False
        nodes = document.get("nodes", document.get("sinfo"))
        first = nodes[0] if isinstance(nodes, list) and nodes else None
        return isinstance(first, dict) and ("state" in first or "node" in first) and "metadata" not in first
    text = payload.body[:20_000].decode("utf-8", "replace")
    if re.match(rf"(?:{_DATE.pattern}\s+)?{_HEADER.pattern}|\s*NodeName=", text) or "slurmctld" in text:
        return True
    lines = [line for line in text.splitlines() if line.strip()][:5]
    said = [any(_matches(p, _unprefixed(line)[0]) for p, _, _ in LOG_LINES) for line in lines]
    if any(said) and all(_unprefixed(line)[1] for line in lines):  # its log, among whose lines some say something
        return True
    return bool(lines) and all(told or _SINFO.search(_spaced(line)) for told, line in zip(said, lines, strict=True))


def _spaced(line: str) -> str:
    return " ".join(line.replace("|", " ").split() if line.count("|") in (3, 4) else line.split())


def _matches(pattern: re.Pattern[str], message: str) -> re.Match[str] | None:
    m = _FUNCTION.match(message)
    return pattern.fullmatch(message) or (pattern.fullmatch(message, m.end()) if m else None)


def _unprefixed(line: str) -> tuple[str, str | None]:
    m = _LOG_PREFIX.match(line)
    return (line[m.end() :].strip(), m["time"]) if m else (line.strip(), None)


class _TooMany(Exception):
    """The payload is refused, not the line."""


def _nodes(reading: Reading, listed: str, more: int = 0) -> tuple[str, ...]:
    """The nodes of a host list, as many as are read of one payload, of which `more` are still to be said."""
    room = MAX_PARTS - len(reading.events) - more
    if room <= 0:  # not even expanded: many long lists would take long
        reading.left += size(listed)
        if reading.left > MAX_NAMED:
            raise _TooMany(f"payload names more than {MAX_NAMED} nodes, more than any cluster has")
        return ()
    return tuple(reading.first(expand(listed, MAX_CLUSTER), room))


def _say(
    reading: Reading, nodes: tuple[str, ...], first: str, kind: Kind, part: str, statement: Statement,
    *, when: object = None, reason: str = "", user: str | None = None, boot: object = None, state: str | None = None,
) -> None:  # fmt: skip
    all_of_it = kind is Kind.RECOVERED and statement is Statement.LEVEL
    starts_at = epoch(when) or instant(when, naive_is_utc=statement is Statement.LEVEL)
    named = xid_codes(reason, checked=True) if kind is Kind.FAULT else ()
    for node, code in product(nodes, named if first in named else (first,)):
        reading.add(
            kind, code, part=[part, node], key=f"{node}|slurm" if all_of_it else f"{node}|{code}",
            series=f"{node}|slurm" if kind is Kind.FAULT else None,
            subject=node, statement=statement, starts_at=starts_at,
            severity=Severity.CRITICAL if code.endswith("/fail") else severity_of(code),
            marker="drain" if OWN.search(reason) else None, summary=one_line(reason or part),
            detail={"reason": reason or None, "set_by": user, "state": state, "boot_time": epoch(boot)},
        )  # fmt: skip


# --- text ----------------------------------------------------------------------------------------------------


def _text(reading: Reading, text: str) -> None:
    if not text.strip():
        raise ParseError("body is empty")
    if "NodeName=" in text:
        _scontrol(reading, text)
        return
    known, table = 0, False
    lines = text.splitlines()
    for number, line in enumerate(reading.first(lines, MAX_LINES), 1):
        if not line.strip():
            continue
        if _HEADER.match(line):
            known, table = known + 1, True
            continue
        if _DATE.fullmatch(line.strip()):
            continue
        with reading.part(f"line {number}"):
            if len(line) > 8_000:
                raise ParseError("is longer than 8000 characters")
            said = _line(reading, line)
            if table and not said:
                raise ParseError("is no row of `sinfo -R`: reason, user, time, nodes")
            known += said
        if len(reading.refused) > MAX_REFUSED:
            raise ParseError(f"more than {MAX_REFUSED} lines can't be read; is this Slurm's?")
    if not known and not reading.refused and (m := _ARGV.fullmatch(text.strip()[:MAX_REASON])):
        _say(reading, _nodes(reading, m[1]), "slurm/trigger", Kind.FAULT, text.strip(), Statement.EDGE)
    elif not known and not reading.refused:
        raise ParseError("neither `sinfo -R`, `scontrol show node` nor a line of slurmctld's that says something")


def _line(reading: Reading, line: str) -> bool:
    message, time = _unprefixed(line)
    for pattern, code, kind in LOG_LINES:
        if m := _matches(pattern, message):
            named = m.groupdict()
            reason = named.get("reason") or ""
            found, said = reason_code(reason, None) if code is None else (code, kind)
            kind = said if said is Kind.LIFECYCLE else kind
            when = named.get("boot") or time
            _say(reading, _nodes(reading, m["nodes"]), found, kind, message, Statement.EDGE, when=when, reason=reason,
                 boot=named.get("boot"))  # fmt: skip
            return True
    if m := _SINFO.search(spaced := _spaced(line)):
        reason = spaced[: m.start()]
        code, kind = reason_code(reason, m["user"])
        _say(reading, _nodes(reading, m["nodes"]), code, kind, line.strip(), Statement.LEVEL, when=m["time"],
             reason=reason, user=m["user"])  # fmt: skip
        return True
    if m := _TRIGGER.fullmatch(message):
        over = m[1] in ("up", "idle")
        _say(reading, _nodes(reading, m[2]), f"slurm/{'down' if over else m[1]}",
             Kind.RECOVERED if over else Kind.FAULT, message, Statement.EDGE)  # fmt: skip
        return True
    return bool(time) or "slurmctld" in line


def _scontrol(reading: Reading, text: str) -> None:
    starts = [m.start() for m in _SCONTROL.finditer(text)]
    ends = [*starts[1:], len(text)]
    for start, end in zip(reading.first(starts), ends, strict=False):
        block = text[start : min(end, start + 20_000)]
        name = block.split("=", 1)[1].split()[0]
        with reading.part(f"node {one_line(name, 60)}"):
            held = {m[1]: block[m.end() :] for m in _FIELD.finditer(block)}
            flags = (held.get("State", "").split() or [""])[0].upper()
            reason = held.get("Reason", "").split("\n", 1)[0].strip()
            by = re.search(r"\s*\[([^@\]]{1,64})@([0-9T:-]{10,25})\]$", reason)
            _node(reading, name, re.split(r"[+*~#!%$@^-]+", flags), reason[: by.start()] if by else reason,
                  by[1] if by else None, by[2] if by else None, None)  # fmt: skip


# --- JSON ----------------------------------------------------------------------------------------------------


def _json(reading: Reading, fields: Fields) -> None:
    if "nodes" not in fields and "sinfo" not in fields:
        raise ParseError("field nodes is missing: neither scontrol's nor slurmrestd's answer")
    for i, item in enumerate(reading.first(fields.parts("nodes", ())), 1):
        with reading.part(f"nodes {i}"):
            node = Fields.of(item, f"nodes {i}")
            states = _flags(node, "state") + _flags(node, "state_flags")
            _node(reading, node.text("name"), states, node.text("reason", ""), node.maybe_text("reason_set_by_user"),
                  _number(node, "reason_changed_at"), _number(node, "boot_time"))  # fmt: skip
    for i, item in enumerate(reading.first(fields.parts("sinfo", ())), 1):
        with reading.part(f"sinfo {i}"):
            group = Fields.of(item, f"sinfo {i}")
            reason = group.fields("reason", {})
            states = _flags(group.fields("node", {}), "state")
            names: list[str] = []
            for name in group.fields("nodes", {}).text_list("nodes", ()):
                names += _nodes(reading, name, len(names))
            for name in names:
                _node(reading, name, states, reason.text("description", ""), reason.maybe_text("user"),
                      _number(reason, "time"), None)  # fmt: skip
        if len(reading.refused) > MAX_REFUSED:
            raise ParseError(f"more than {MAX_REFUSED} entries can't be read")


def _flags(fields: Fields, key: str) -> list[str]:
    value = fields.get(key)
    held = value if isinstance(value, list) else str(value or "").split("+")
    return [re.sub(r"[^A-Z_].*", "", str(flag).upper()) for flag in held[:MAX_FLAGS]]


def _number(fields: Fields, key: str) -> object:
    """A number, or slurmrestd's object of set, infinite and number."""
    value = fields.get(key)
    if isinstance(value, dict):
        return value.get("number") if value.get("set") is True and value.get("infinite") is not True else None
    return value


def _node(
    reading: Reading, name: str, flags: list[str], reason: str, user: str | None, when: object, boot: object
) -> None:
    reason = reason[:MAX_REASON]
    code, kind = state_code([f for f in flags if f], reason, user)
    _say(reading, expand(name, 1), code, kind, f"{name} {'+'.join(flags)} {reason}", Statement.LEVEL,
         when=when, reason=reason, user=user, boot=boot, state="+".join(f for f in flags if f) or None)  # fmt: skip
