"""Our own plain form, for anything that can post JSON: one object, a list of them, or `{"events": [...]}`.

    {"node": "gpu-node-07", "kind": "fault", "fault": "xid/79", "entities": ["gpu:4"], "time": "2026-08-20T10:15:03Z"}

Fields (only those marked * are needed):
- `node` (or `subject`): node name, address or instance id
- `kind` *: fault (default when `fault` is given), recovered, planned, lifecycle, check, info, test, measurement
- `fault` *: code with its namespace, `xid/79`, `thermal/gpu-temp`; not for info, test, measurement
- `key`: what makes a repeat; a `recovered` carries that of the fault. Default: node, fault and entities
- `id`: of this statement; two deliveries share it. Default: made of the content
- `statement`: `edge` (it happened) or `level` (it holds until recovered). Default: edge for xid and sxid, else level
- `severity`: critical, warning, info · `entities`: canonical, `gpu:4` · `cluster` · `boot_id` · `summary`
- `actionable`: false forbids to act on it
- `time` (or `starts_at`), `ends_at`, `not_before`: ISO 8601 with zone
- `measurement` (kind measurement): {"name": "gpu_temp", "value": 78.1, "unit": "C", "window_s": 60}
- `evidence`: [{"title": …, "url": …}] · `detail`: object · `medevac`: set it to mark what medevac itself made

Also the data of CloudEvents whose type begins with `dev.medevac.`. Unknown fields are refused, so that a typo
never becomes silence.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TypeVar

from pydantic import JsonValue

from medevac.events import cloudevents
from medevac.events.event import GPU_IDS, EvidenceRef, Kind, Measurement, Severity, Statement
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    MAX_KEY,
    Fields,
    Reading,
    fault_code,
    instant,
    join_key,
    node_name,
    one_line,
    peek_json,
    quote,
    read_json,
)
from medevac.faults.catalogue import lookup

SOURCE = "generic"
CLOUDEVENT_TYPES = ("dev.medevac.",)
KNOWN = frozenset(
    {
        "node",
        "subject",
        "kind",
        "fault",
        "key",
        "id",
        "statement",
        "severity",
        "entities",
        "cluster",
        "boot_id",
        "summary",
        "actionable",
        "time",
        "starts_at",
        "ends_at",
        "not_before",
        "measurement",
        "evidence",
        "detail",
        "medevac",
    }
)
Word = TypeVar("Word", Kind, Statement, Severity)
NO_FAULT = frozenset({Kind.INFO, Kind.TEST, Kind.MEASUREMENT})
_FAULT = re.compile(r"[a-z][a-z0-9-]{1,30}(?:/[^\x00-\x1f/]{1,120}){0,4}")
_ENTITY = re.compile(r"[a-z][a-z0-9-]{0,20}:[A-Za-z0-9_.:/-]{1,100}")
MAX_ENTITIES = 64


def recognises(payload: Payload) -> bool:
    body = peek_json(payload)
    items = body.get("events") if isinstance(body, dict) and "events" in body else body
    listed = items if isinstance(items, list) else [items]
    return bool(listed) and all(
        isinstance(e, dict) and ("kind" in e or "fault" in e) and KNOWN.issuperset(e) for e in listed
    )


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if payload.headers.get("content-type", "").lower().startswith(cloudevents.STRUCTURED):
        for where, found in reading.first(cloudevents.envelopes(payload)):
            with reading.part(where):
                envelope = cloudevents.opened(found, where)
                data = dict(Fields.of(envelope.data, "data").value)
                data.setdefault("id", envelope["id"])
                _event(reading, Fields(data, where))
        return reading.parsed()
    body = read_json(payload.body)
    if isinstance(body, list):
        items: list[JsonValue] = list(reading.first(body))
    elif isinstance(body, dict) and "events" in body:
        items = list(reading.first(Fields(body).parts("events")))
        if len(body) > 1:
            raise ParseError(f"unknown fields beside events: {', '.join(sorted(set(body) - {'events'}))[:200]}")
    else:
        items = [body]
    for i, item in enumerate(items, 1):
        with reading.part(f"event {i}"):
            _event(reading, Fields.of(item, f"event {i}"))
    return reading.parsed()


def _event(reading: Reading, fields: Fields) -> None:
    if unknown := sorted(set(fields.value) - KNOWN):
        raise ParseError(f"unknown field {quote(unknown[0])}; known: {', '.join(sorted(KNOWN))}")
    kind = _word(fields, "kind", Kind, Kind.FAULT if "fault" in fields else None)
    if kind is Kind.HANDSHAKE:
        raise ParseError("kind handshake is not for senders")
    fault = fields.maybe_text("fault")
    if fault is None and kind not in NO_FAULT:
        raise ParseError(f"field fault is missing: a {kind.value} needs one")
    if fault is not None and not _FAULT.fullmatch(fault):
        raise ParseError(f"field fault is {quote(fault)}, expected a code with its namespace, e.g. xid/79")
    fault = fault_code(fault) if fault else None
    named = fields.maybe_text("node") or fields.maybe_text("subject")
    subject = node_name(named) if named else None
    entities = _entities(fields)
    placed = subject is not None or any(e.startswith(GPU_IDS) for e in entities)
    made_by_driver = fault is not None and fault.startswith(("xid/", "sxid/"))
    default = Statement.EDGE if made_by_driver or kind is not Kind.FAULT else Statement.LEVEL
    statement = _word(fields, "statement", Statement, default)
    severity = _word(fields, "severity", Severity, None) if "severity" in fields else None
    measurement = _measurement(fields) if kind is Kind.MEASUREMENT else None
    key = fields.maybe_text("key") or join_key(subject, fault or kind, ",".join(sorted(entities)))
    if len(key) > MAX_KEY:
        raise ParseError(f"field key is longer than {MAX_KEY} characters")
    starts_at = _time(fields, "starts_at") or _time(fields, "time")
    mark = fields.scalar("medevac")
    reading.add(
        kind,
        fault,
        part=fields.value,
        id=fields.maybe_text("id"),
        key=one_line(key, MAX_KEY),
        subject=subject,
        cluster=node_name(fields.text("cluster")) if "cluster" in fields else None,
        boot_id=one_line(fields.text("boot_id"), 64) if "boot_id" in fields else None,
        actionable=fields.boolean("actionable", True) and placed and kind is not Kind.TEST,
        severity=severity or (lookup(fault).severity if fault and kind is Kind.FAULT else None),
        statement=statement,
        entities=entities,
        starts_at=starts_at,
        ends_at=_time(fields, "ends_at"),
        not_before=_time(fields, "not_before"),
        summary=fields.text("summary", ""),
        marker=one_line(mark, 120) if mark else None,
        evidence=_evidence(fields),
        measurement=measurement,
        detail=fields.fields("detail", {}).value,
    )


def _word(fields: Fields, key: str, of: type[Word], default: Word | None) -> Word:
    text = fields.maybe_text(key)
    if text is None and default is not None:
        return default
    if text is None:
        raise ParseError(f"field {key} is missing")
    try:
        return of(text)
    except ValueError:
        raise ParseError(f"field {key} is {quote(text)}, expected one of {', '.join(of)}") from None


def _time(fields: Fields, key: str) -> datetime | None:
    if key not in fields:
        return None
    when = instant(fields.get(key))
    if when is None:
        raise ParseError(f"field {key} is {quote(fields.get(key))}, expected ISO 8601 with a zone")
    return when


def _entities(fields: Fields) -> tuple[str, ...]:
    listed = fields.list("entities", [])
    if len(listed) > MAX_ENTITIES:
        raise ParseError(f"field entities has {len(listed)} entries, more than the {MAX_ENTITIES} allowed")
    for item in listed:
        if not isinstance(item, str) or not _ENTITY.fullmatch(item):
            raise ParseError(f"field entities holds {quote(item)}, expected e.g. gpu:4 or pci:0000:9b:00")
    return tuple(dict.fromkeys(str(item) for item in listed))


def _measurement(fields: Fields) -> Measurement:
    given = fields.fields("measurement")
    window = given.number("window_s", 0.0)
    if window < 0:
        raise ParseError("field measurement.window_s is negative")
    return Measurement(
        name=one_line(given.text("name"), 120),
        value=given.number("value"),
        unit=one_line(given.text("unit", ""), 20),
        window_s=window,
    )


def _evidence(fields: Fields) -> tuple[EvidenceRef, ...]:
    found: list[EvidenceRef] = []
    for i, item in enumerate(fields.list("evidence", [])[:20], 1):
        ref = Fields.of(item, f"evidence {i}")
        url = ref.text("url")
        if not url.startswith(("http://", "https://", "s3://", "gs://")):
            raise ParseError(f"evidence {i}: url {quote(url)} is none")
        found.append(EvidenceRef(title=one_line(ref.text("title", url), 200), url=one_line(url, 1_000)))
    return tuple(found)
