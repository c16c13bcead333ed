"""`dcgmi diag`: its JSON of 2.x, 3.x and 4.x, and the table that it prints without `-j`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from medevac.events.dcgm_errors import CONFIG_SEVERITY, SEVERITY, SOFTWARE_CATEGORIES, by_number, by_prose
from medevac.events.event import Kind, Severity
from medevac.events.freetext import gpu_in
from medevac.events.parsing import ParseError, Payload
from medevac.events.reading import (
    MAX_PARTS,
    Fields,
    Reading,
    entities,
    fault_code,
    gpu,
    gpu_serial,
    nvswitch,
    one_line,
    read_text,
    whole,
)
from medevac.faults.catalogue import lookup
from medevac.model import digest

TOP_KEYS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
"""Of 2.x and 3.x; of 4.x."""
MAX_WARNINGS = 100
"""Read of one result."""
TIMED_OUT = frozenset((124, 137))
DEPLOYMENT = frozenset(("deployment", "software"))
"""Category, and 4.x's one test, of software and configuration: the host's set-up, no hardware."""


def not_run(reading: Reading, words: str, exit_code: int | None, part: object = None) -> None:
    """Neither passed nor failed: says nothing about the GPUs."""
    late = exit_code in TIMED_OUT
    reading.add(
        Kind.CHECK, "check/timeout" if late else "check/error", part=part or words, key=("diag", "not-run"),
        summary=one_line(words) or ("the diagnostic timed out" if late else "the diagnostic printed nothing"),
        detail={"exit_code": exit_code},
    )  # fmt: skip


def report(reading: Reading, fields: Fields, exit_code: int | None) -> None:
    key = next(k for k in TOP_KEYS if k in fields)
    diag = fields.fields(key)
    serials = _serials(fields)
    before, tests, ran = len(reading.events), 0, False
    for category in diag.list("test_categories", ()):
        found = Fields.of(category, "test_categories")
        for item in found.list("tests", ()):
            test = Fields.of(item, "tests")
            tests += 1
            with reading.part(f"test {test.text('name', '?')}"):
                ran |= _test(reading, found.text("category", ""), test, serials)
    error = diag.maybe_text("runtime_error") or fields.maybe_text("runtime_error")
    if error or not tests:
        not_run(reading, error or "the diagnostic ran no test", exit_code, diag.value)
    elif len(reading.events) == before:
        _unremarkable(reading, exit_code, diag.value, tests, ran)


def _unremarkable(reading: Reading, exit_code: int | None, part: object, tests: int, ran: bool) -> None:
    """No test complained. A run that skipped all is no pass, nor is one whose exit code says otherwise."""
    passed = exit_code in (None, 0)
    outcome = "error" if not passed else "pass" if ran else "skip"
    reading.add(
        Kind.CHECK, f"diag/all/{outcome}", part=part, key=("diag", "all"),
        summary=f"DCGM diagnostic: no complaint of {tests} tests" + ("" if passed else f", yet exit code {exit_code}"),
        detail={"exit_code": exit_code, "tests": tests},
    )  # fmt: skip


def _serials(fields: Fields) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for group in fields.list("entity_groups", ()):
        held = Fields.of(group, "entity_groups")
        for item in held.list("entities", ()):
            entity = Fields.of(item, "entities")
            number, serial = whole(entity.get("entity_id")), entity.scalar("serial_num")
            if number is not None and serial:
                found[held.text("entity_group", "GPU"), number] = serial
    return found


def _test(reading: Reading, category: str, test: Fields, serials: dict[tuple[str, int], str]) -> bool:
    """True where it ran at all."""
    name = test.text("name")
    results = [Fields.of(r, f"test {name}") for r in test.list("results", ())]
    outcomes = [(r, _status(r)) for r in results]
    summary = test.fields("test_summary", {})
    ran = any(status in ("pass", "warn", "fail") for _, status in [*outcomes, (summary, _status(summary))])
    if not any(s in ("fail", "warn") for _, s in outcomes):
        outcomes = [(summary, _status(summary))]
    for result, status in outcomes:
        if status in ("fail", "warn"):
            _outcome(reading, category, name, result, status, serials)
    return ran


def _status(result: Fields) -> str:
    word = result.text("status", "").strip().lower()
    return {"failed": "fail", "warning": "warn", "passed": "pass"}.get(word, word)


def _outcome(
    reading: Reading, category: str, name: str, result: Fields, status: str, serials: dict[tuple[str, int], str]
) -> None:
    group, number = result.text("entity_group", "GPU"), whole(result.get("entity_id"))
    found: list[str | None] = []
    if number is not None:
        found.append(gpu(number) if group == "GPU" else nvswitch(number) if "switch" in group.lower() else None)
        found.append(gpu_serial(serials.get((group, number))) if group == "GPU" else None)
    for key in ("gpu_ids", "gpu_id"):
        found += [gpu(n) for n in (result.scalar(key) or "").split(",")[:1_024]]
    seen = digest(dict(result.value))
    for warning in list(_warnings(result)) or [Fields({})]:
        add_outcome(
            reading, category, name, status, entities(*found), warning.text("warning", ""), [seen, dict(warning.value)],
            number=whole(warning.get("error_id")), severity=whole(warning.get("error_severity")),
            kind=whole(warning.get("error_category")),
        )  # fmt: skip


def _meant(found: tuple[str, ...], words: str) -> tuple[str, ...]:
    """Of several GPUs that one result is about, the one that its warning names: the others are well."""
    named = gpu_in(words)
    several = sum(name.startswith("gpu:") for name in found) > 1
    return (named,) if named is not None and named in found and several else found


def _warnings(result: Fields) -> Iterator[Fields]:
    held = result.get("warnings") or result.get("warning")
    for item in held[:MAX_WARNINGS] if isinstance(held, list) else [held]:
        if isinstance(item, str):
            yield Fields({"warning": item})
        elif item is not None:
            yield Fields.of(item, "warnings")


def add_outcome(
    reading: Reading, category: str, name: str, status: str, found: tuple[str, ...], words: str, part: object,
    *, number: int | None = None, severity: int | None = None, kind: int | None = None,
) -> None:  # fmt: skip
    """One failure or warning of one test on the entities that it names."""
    if number == 0:
        number = None
    found = _meant(found, words)
    code = by_number(number) if number is not None else by_prose(words)
    setup = category.lower() in DEPLOYMENT or name.lower() in DEPLOYMENT
    soft = kind in SOFTWARE_CATEGORIES or severity == CONFIG_SEVERITY
    known = code is not None and lookup(code).fault_class.repairable
    hardware = status == "fail" and not soft and (known or (bool(found) and not setup))
    fault = code or fault_code("diag", name, status)
    reading.add(
        Kind.FAULT if hardware or (known and not soft) else Kind.CHECK, fault, part=part,
        key=("diag", name, fault, *found), entities=found,
        severity=SEVERITY.get(severity) if severity is not None else Severity.WARNING if status == "warn" else None,
        summary=words or f"DCGM diagnostic: {name} {status}",
        detail={"test": name, "category": category or None, "status": status, "error_id": number,
                "error_severity": severity, "error_category": kind},
    )  # fmt: skip


# --- the table -----------------------------------------------------------------------------------------------

_CATEGORY = re.compile(r"[|+]-{2,20} {1,4}([A-Za-z][A-Za-z ]{0,40}) {1,4}-{2,}[+|]")
_RESULT = re.compile(r"(pass|fail|warn|skip|not run)[a-z]{0,3}\b(?: ?[-:] ?(.{0,300}))?", re.IGNORECASE)
_ENTITY = re.compile(r"([A-Za-z]{2,20}) ?([0-9]{1,4}): (pass|fail|warn|skip|not run)[a-z]{0,3}", re.IGNORECASE)
_NOTE = re.compile(r"(?:warning|error|info)s?(?:: ?(.{0,40}))?", re.IGNORECASE)
WIDTH = 45
"""Characters of a warning in one row; longer ones are cut there, in the middle of a word."""


@dataclass
class _Complaint:
    """A test that failed or warned, on which GPUs, and each of its warnings with the GPUs that it names."""

    category: str
    test: str
    status: str
    found: tuple[str, ...] = ()
    notes: list[tuple[tuple[str, ...], list[str]]] = field(default_factory=list)


def table(reading: Reading, payload: Payload) -> None:
    """`| Test | Fail - GPU: 1 |`, 4.x's `| | GPU1: Fail |` below the test's own row, and `| Warning | text |` rows
    that go on below."""
    category, test, results, ran = "", "", 0, False
    pending: list[_Complaint] = []
    open_note: list[str] | None = None
    rows = [line.strip() for line in read_text(payload.body).splitlines() if line.lstrip().startswith(("|", "+"))]
    if len(rows) > MAX_PARTS:
        raise ParseError(f"table has {len(rows)} rows, more than the {MAX_PARTS} allowed")
    for row in rows:
        if m := _CATEGORY.match(row):
            category, test = m[1].strip(), ""
            continue
        left, bar, cell = row.strip("|").partition("|")
        if not bar:
            continue
        left, right = left.strip()[:120], cell.strip()[:400]
        result, entity, note = _RESULT.fullmatch(right), _ENTITY.fullmatch(right), _NOTE.fullmatch(left)
        complains = bool(pending) and pending[-1].test == test
        if note and pending:
            open_note = [cell[1 : WIDTH + 1]]
            pending[-1].notes.append((_gpus(note[1] or ""), open_note))
        elif entity and not left and test:
            open_note, status = None, entity[3].lower()
            ran |= status in ("pass", "fail", "warn")
            if status in ("fail", "warn"):
                found = entities(gpu(entity[2])) if entity[1].upper() == "GPU" else ()
                if complains and (pending[-1].status == status or not pending[-1].found):
                    pending[-1].found = entities(*pending[-1].found, *found)
                else:
                    pending.append(_Complaint(category, test, status, found))
        elif result and category.lower() != "metadata":
            open_note, test = None, left or test
            status = result[1].lower()
            results += 1
            ran |= status in ("pass", "fail", "warn")
            found = _gpus(result[2] or "")
            if complains and not left and pending[-1].status == status and not pending[-1].found:
                pending[-1].found = found
            elif status in ("fail", "warn"):
                pending.append(_Complaint(category, test, status, found))
        elif not left and open_note is not None and right:
            open_note.append(cell[1 : WIDTH + 1])
    for complaint in pending:
        _complain(reading, complaint)
    if not results:
        not_run(reading, _first_words(payload), payload.exit_code)
    elif not pending:
        _unremarkable(reading, payload.exit_code, "table", results, ran)


def _complain(reading: Reading, complaint: _Complaint) -> None:
    """What several warnings say of the same GPUs is said once."""
    by_gpus: dict[tuple[str, ...], list[str]] = {}
    for named, lines in complaint.notes:
        spaced = " ".join(line.strip() for line in lines)
        text = spaced if by_prose(spaced) else "".join(lines[:-1]) + lines[-1].rstrip()
        by_gpus.setdefault(named or _meant(complaint.found or _gpus(text[:60]), text), []).append(one_line(text))
    unsaid = tuple(name for name in complaint.found if not any(name in named for named in by_gpus))
    if unsaid or not by_gpus:
        by_gpus[unsaid or complaint.found] = []
    for found, words in by_gpus.items():
        text = " ".join(words)
        add_outcome(
            reading, complaint.category, complaint.test, complaint.status, found, text,
            f"{complaint.test} {complaint.status} {text}",
        )  # fmt: skip


def _gpus(text: str) -> tuple[str, ...]:
    numbers = re.findall(r"GPUs?:? ?([0-9]{1,4}(?:, ?[0-9]{1,4})*)", text)
    return entities(*(gpu(n.strip()) for item in numbers for n in item.split(",")))


def _first_words(payload: Payload) -> str:
    return next((line for line in read_text(payload.body).splitlines() if line.strip(" +-=|")), "")
