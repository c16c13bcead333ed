"""DCGM: `dcgmi health -c -j`, `dcgmi diag -j` (2.x to 4.x), `dcgmi nvlink -e -j`, and policy callbacks.

The exit code of `diag` stands beside its body (205 and 226 still carry JSON). No output names its host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from medevac.events import dcgm_diag, dcgm_health_table
from medevac.events.dcgm_errors import by_prose
from medevac.events.envelopes import documents_of, json_within
from medevac.events.event import Kind, Severity, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    fault_code,
    gpu,
    instant,
    looks_like_json,
    nvlink,
    nvswitch,
    peek_json,
    read_text,
    whole,
)
from medevac.faults.catalogue import lookup

SOURCE = "dcgm"
MAX_SYSTEMS = 100
MAX_COUNT = 2**47
"""From here on a counter is one of DCGM's marks for a value that isn't there."""
HEALTH = "dcgm-health"
"""Series of what one health report says: a healthy report takes all of it back."""

_WORDS = {"warning": Severity.WARNING, "failure": Severity.CRITICAL, "fail": Severity.CRITICAL}
_POLICIES = (
    (re.compile(r"double.?bit|dbe|ecc", re.IGNORECASE), "dbe"),
    (re.compile(r"pci", re.IGNORECASE), "pcie"),
    (re.compile(r"retired|page", re.IGNORECASE), "page-retirement"),
    (re.compile(r"thermal|temp", re.IGNORECASE), "thermal"),
    (re.compile(r"power", re.IGNORECASE), "power"),
    (re.compile(r"nv.?link", re.IGNORECASE), "nvlink"),
)


_TELLING = ('"NVLINK Err', '"Health Monitor', *(f'"{key}"' for key in dcgm_diag.TOP_KEYS))


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if not payload.body.strip() and payload.exit_code is not None:
        dcgm_diag.not_run(reading, "", payload.exit_code)
        return reading.parsed()
    text = read_text(payload.body, "replace")
    printed = json_within(text)
    if not printed.lstrip().startswith(("{", "[")):
        if dcgm_health_table.is_one(text):
            _health(reading, dcgm_health_table.body(text))
        elif "Diagnostic" in text or "NVVS" in text:
            dcgm_diag.table(reading, payload)
        elif payload.exit_code not in (None, 0):
            dcgm_diag.not_run(reading, text[:400], payload.exit_code)
        else:
            raise ParseError("neither JSON nor a table of DCGM's")
        return reading.parsed()
    read_text(payload.body)  # JSON is strict UTF-8
    for where, document in documents_of(printed, reading):
        with reading.part(where):
            if isinstance(document, ParseError):
                raise document
            for item in document if isinstance(document, list) and document else [document]:
                _read(reading, Fields.of(item), payload.exit_code)
    if len(reading.refused) == 1 and not reading.events:
        raise ParseError(reading.refused[0].reason)
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    text = payload.body[:400_000].decode("utf-8", "replace")
    if not looks_like_json(payload) and dcgm_health_table.is_one(text):
        return True
    document = peek_json(payload)
    if document is None and any(key in text for key in _TELLING):
        document = peek_json(Payload(json_within(text).encode()))
    if not isinstance(document, dict):
        return False
    header = document.get("header")
    return (
        any(key in document for key in dcgm_diag.TOP_KEYS)
        or (isinstance(header, list) and bool(header) and str(header[0]).startswith(("Health Monitor", "NVLINK Err")))
        or {k.lower() for k in document} in ({"condition", "data"}, {"condition", "data", "timestamp"})
    )


def _read(reading: Reading, fields: Fields, exit_code: int | None) -> None:
    lowered = {k.lower(): v for k, v in fields.value.items()}
    if any(key in fields for key in dcgm_diag.TOP_KEYS):
        dcgm_diag.report(reading, fields, exit_code)
    elif "condition" in lowered:
        _policy(reading, Fields(lowered))
    elif "body" in fields:
        header = [str(line) for line in fields.list("header", ())]
        if any("NVLINK" in line.upper() for line in header):
            _nvlink(reading, fields.fields("body"), header)
        else:
            _health(reading, fields.fields("body"))
    else:
        raise ParseError("neither a health report, a diag report, link counters nor a policy violation of DCGM")


# --- health --------------------------------------------------------------------------------------------------


def _health(reading: Reading, body: Fields) -> None:
    overall = body.fields("Overall Health").text("value") if "Overall Health" in body else None
    before = len(reading.events)
    for group, held in body.value.items():
        if group == "Overall Health" or not isinstance(held, dict):
            continue
        for number, entity in Fields(held, group).fields("children", {}).value.items():
            _entity(reading, group, number, Fields.of(entity, f"{group} {number}"))
    if overall is None and before == len(reading.events):
        raise ParseError("body: field Overall Health is missing")
    if overall == "Healthy" and before == len(reading.events):
        reading.add(
            Kind.RECOVERED, "diag/health/pass", part=body.value, key=HEALTH, statement=Statement.LEVEL,
            summary="DCGM health: all watches healthy",
        )  # fmt: skip
    elif before == len(reading.events):
        word = (overall or "").lower()
        known = word in _WORDS
        reading.add(
            Kind.FAULT if known else Kind.CHECK,
            fault_code("diag", "health", "warn" if word == "warning" else "fail" if known else "error"),
            part=body.value, key=(HEALTH, "overall"), series=HEALTH, statement=Statement.LEVEL,
            severity=_WORDS.get(word), summary=f"DCGM health: {overall}, without saying what",
        )  # fmt: skip


def _entity(reading: Reading, group: str, number: str, entity: Fields) -> None:
    """Systems stand under the entity or under its `Errors`; the prose is `Errors`' own, or the system's."""
    name = gpu(number) if group.upper() == "GPU" else nvswitch(number) if "switch" in group.lower() else None
    systems: list[tuple[str, Fields]] = []
    prose: list[str] = []
    children = entity.fields("children", {}).value
    if len(children) > MAX_SYSTEMS:
        raise ParseError(f"{group} {number} has {len(children)} systems, more than the {MAX_SYSTEMS} allowed")
    for key, child in children.items():
        fields = Fields.of(child, key)
        if key == "Errors":
            prose += _texts({k: v for k, v in fields.value.items() if k != "children"})
            inner = list(fields.fields("children", {}).value.items())[:MAX_SYSTEMS]
            systems += [(k, Fields.of(v, k)) for k, v in inner]
        else:
            systems.append((key, fields))
    bad = [(k, f) for k, f in systems if str(f.get("value")).lower() in _WORDS]
    if not bad and str(entity.get("value")).lower() in _WORDS:
        bad = [(group, entity)]
    for system, fields in bad:
        own = [t for t in _texts(fields.value) if t.lower() not in _WORDS]
        prose = prose[:MAX_SYSTEMS]
        words = " ".join(own[:MAX_SYSTEMS] or (prose if len(bad) == 1 else [p for p in prose if _speaks_of(p, system)]))
        code = by_prose(words) or fault_code(HEALTH, system)
        reading.add(
            Kind.FAULT, code, part=fields.value, key=(HEALTH, group, number, system), series=HEALTH,
            statement=Statement.LEVEL, severity=_WORDS[str(fields.get("value")).lower()], entities=entities(name),
            summary=words or f"DCGM health: {system} {fields.get('value')}",
            detail={"system": system, "group": group, "entity": number},
        )  # fmt: skip


def _speaks_of(prose: str, system: str) -> bool:
    return system.split()[0].lower() in prose.lower()


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < 6 and isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item, depth + 1)


# --- links and policies --------------------------------------------------------------------------------------


def _nvlink(reading: Reading, body: Fields, header: list[str]) -> None:
    named = [m[1] for line in header if (m := re.fullmatch(r"\s*GPU (\d{1,4})\s*", line))]
    device = gpu(named[0]) if len(named) == 1 else None
    for link, held in body.value.items():
        if not (m := re.fullmatch(r"Link (\d{1,3})", link)):
            continue
        counters = Fields.of(held, link).fields("children", {}).value
        if len(counters) > MAX_SYSTEMS:
            raise ParseError(f"{link} has {len(counters)} counters, more than the {MAX_SYSTEMS} allowed")
        for counter, child in counters.items():
            count = whole(Fields.of(child, counter).get("value"))
            if count is None or not 0 < count < MAX_COUNT:
                continue
            reading.add(
                Kind.CHECK, fault_code("nvlink", counter.lower().replace(" ", "-")), part=[link, counter, child],
                key=("nvlink", device, link, counter), statement=Statement.LEVEL,
                entities=entities(device, nvlink(m[1])), summary=f"{link}: {counter} {count}",
                detail={"counter": counter, "count": count},
            )  # fmt: skip


def _policy(reading: Reading, fields: Fields) -> None:
    """A callback names neither GPU nor host; what it says holds for the host that it was read on."""
    condition = fields.text("condition")
    data = Fields({k.lower(): v for k, v in fields.fields("data", {}).value.items()}, "data")
    number = next((n for k in ("errnum", "xid") if (n := whole(data.get(k))) is not None), None)
    if "xid" in condition.lower():
        if number is None or not 0 < number < 1_000:
            raise ParseError("policy violation of XID without a readable number (field data.ErrNum)")
        code = fault_code("xid", number)
    else:
        code = fault_code("dcgm-policy", next((name for p, name in _POLICIES if p.search(condition)), condition))
    reading.add(
        Kind.FAULT, code, part=fields.value, key=("policy", code), severity=severity_of(code),
        entities=entities(gpu(data.get("gpuid")) or gpu(fields.get("gpuid"))),
        starts_at=instant(fields.get("timestamp")) if "timestamp" in fields else None,
        summary=f"DCGM policy: {condition} ({lookup(code).name})", detail={"condition": condition, **data.value},
    )  # fmt: skip
