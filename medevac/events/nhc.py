"""LBNL Node Health Check, and the GPU checks that clouds add to it.

`[host | ]ERROR: nhc: Health check failed: <check>: <message>`; a passed run prints nothing and exits 0.
"""

from __future__ import annotations

import re

from medevac.events.event import Kind
from medevac.events.freetext import gpu_in, pci_in, severity_of, xid_codes
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import Reading, entities, fault_code, ib, node_name, read_text

SOURCE = "nhc"

_HOST = re.compile(
    r"(?P<host>[^\s|]{1,253})\s*\|\s*(?P<rest>.*)"
    r"|(?P<pdsh>[A-Za-z0-9][A-Za-z0-9._-]{0,252}):\s+(?P<said>(?:ERROR|WARNING)\s*:.*)"
    r"|(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}|[0-9]{4}-\S{5,40}) (?P<logged>\S{1,253}) "
    r"nhc(?:\[[0-9]{1,10}\])?: (?P<line>.*)"
)
"""Whose line it is: before a bar, as pdsh writes it, or in syslog."""
_REASON = re.compile(r"NHC\s*:\s+(?P<check>check_[a-z0-9_]{1,60})\s*:\s*(?P<words>.{0,4000})")
"""As NHC hands it to the scheduler for a reason."""
_LINE = re.compile(r"(?P<level>ERROR|WARNING|WARN|INFO|DEBUG|OK)\s*:?\s+(?:nhc\s*:\s*)?(?P<words>.{1,4000})", re.I)
_FAILED = re.compile(r"Health check failed:\s*(?P<check>[A-Za-z][A-Za-z0-9_-]{1,60})\s*:\s*(?P<words>.{0,4000})", re.I)
_CONFIG = re.compile(r"(?P<check>check_[a-z0-9_]{1,60})\s*:\s*(?P<words>.{0,4000})")
_IB = re.compile(r"\b((?:mlx|ib|hfi|bnxt|irdma)[a-z0-9_]{0,28}?[0-9])(?::([0-9]{1,3}))?\b")
_PASSED = re.compile(
    r"Node Health Check completed successfully|SUCCESS\s*:\s+nhc\s*:\s+Health check passed"
    r"|Health checks completed with exit code: 0\b"
)
_NOT_RUN = re.compile(r"no results reported|watchdog|timed? ?out|unable to|not found|already running", re.I)


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    text = read_text(payload.body)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        if payload.exit_code is None:
            raise ParseError("body is empty and no exit code stands beside it")
        _run(reading, None, payload.exit_code, "")
        return reading.parsed()
    known = 0
    for number, line in enumerate(reading.first(lines), 1):
        with reading.part(f"line {number}"):
            known += _line(reading, line.strip())
    passed = next((line.strip() for line in lines if _PASSED.search(line)), None)
    if passed and not reading.events and not reading.refused and payload.exit_code in (None, 0):
        host = _HOST.fullmatch(passed)
        subject = node_name(host["host"] or host["pdsh"] or host["logged"]) if host else None
        reading.add(Kind.CHECK, "diag/nhc/pass", part=passed, key=(subject, "run"), subject=subject, summary=passed)
    if not known and not reading.refused:
        raise ParseError("no line is one of NHC's: expected `ERROR: nhc: Health check failed: …`")
    if not reading.events and not reading.refused and payload.exit_code is not None:
        _run(reading, None, payload.exit_code, lines[-1])
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    head = payload.body[:20_000]
    return (
        re.search(
            rb"(?:nhc|NHC|nhc\[[0-9]+\])\s*:\s+(?:Health check (?:failed|passed):|check_)|\| ERROR: No results reported"
            rb"|terminating NHC|terminate hung NHC|Node Health Check",
            head,
        )
        is not None
    )


def _line(reading: Reading, line: str) -> bool:
    subject = None
    if m := _HOST.fullmatch(line):
        subject = node_name(m["host"] or m["pdsh"] or m["logged"])
        line = m["rest"] or m["said"] or m["line"] or ""
    if told := _REASON.match(line) or _FAILED.match(line):
        _failure(reading, subject, told["check"].lower(), told["words"].strip(), line)
        return True
    if "watchdog timer" in line.lower() and ("terminating NHC" in line or "terminate hung NHC" in line):
        _not_run(reading, subject, "nhc/timeout", line)
        return True
    if _PASSED.search(line):
        return True
    m = _LINE.search(line)
    if m is None:
        return False
    words = m["words"].strip()
    error = m["level"].upper() == "ERROR"
    if failed := _FAILED.search(words) or (_CONFIG.match(words) if error else None):
        _failure(reading, subject, failed["check"].lower(), failed["words"].strip(), words)
    elif "no results reported" in words.lower():
        _not_run(reading, subject, "nhc/no-results", words)
    elif error and _NOT_RUN.search(words):
        _not_run(reading, subject, "nhc/timeout" if "time" in words.lower() else "nhc/not-run", words)
    elif error:
        _not_run(reading, subject, "nhc/error", words)
    return True


def _failure(reading: Reading, subject: str | None, check: str, words: str, line: str) -> None:
    """A kernel line quoted in the message is the same fault as that line itself, said once."""
    codes = xid_codes(words, checked=True)
    devices = [ib(m[1], m[2]) for m in _IB.finditer(words)][:32] if not codes else []
    found = entities(*devices, pci_in(words), gpu_in(words) if not codes else None)
    for code in codes or (None,):
        reading.add(
            Kind.FAULT, code or fault_code("nhc", check), part=[subject, line],
            key=(subject, code or check, *found), subject=subject, severity=severity_of(code), entities=found,
            summary=f"{check}: {words}", detail={"check": check},
        )  # fmt: skip


def _not_run(reading: Reading, subject: str | None, code: str, words: str) -> None:
    """Neither healthy nor broken."""
    reading.add(Kind.CHECK, code, part=[subject, words], key=(subject, "run"), subject=subject, summary=words)


def _run(reading: Reading, subject: str | None, exit_code: int, words: str) -> None:
    if exit_code == 0:
        reading.add(Kind.CHECK, "diag/nhc/pass", part=words, key=(subject, "run"), summary="NHC passed")
    else:
        _not_run(reading, subject, "nhc/timeout" if exit_code in (124, 137) else "nhc/error",
                 words or f"NHC printed nothing and left with exit code {exit_code}")  # fmt: skip
