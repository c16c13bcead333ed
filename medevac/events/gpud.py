"""gpud: `GET /v1/states` and `/v1/events`, nested per component (or flat, as plugins answer).

The outer times of an events answer are the query's window. A suggested repair is advice of a component or plugin
that may be broken itself. No answer names its host.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

from medevac.events.event import Kind, Statement
from medevac.events.freetext import gpu_in, pci_in, severity_of, xid_codes
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    fault_code,
    gpu_uuid,
    instant,
    keyed,
    looks_like_json,
    peek_json,
    read_json,
    severity_word,
)

SOURCE = "gpud"

_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
LIFECYCLE_NAMES = frozenset(("reboot",))


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    document = read_json(payload.body)
    held: list[JsonValue] = document if isinstance(document, list) else [document]
    for i, item in enumerate(reading.first(held), 1):
        with reading.part(f"item {i}"):
            _component(reading, Fields.of(item, f"item {i}"))
    if reading.refused and not reading.events and len(reading.refused) == len(held):
        raise ParseError(str(reading.refused[0]))
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if not looks_like_json(payload) or b'"component"' not in payload.body:
        return False
    document = peek_json(payload)
    first = document[0] if isinstance(document, list) and document else document
    return (
        isinstance(first, dict)
        and isinstance(first.get("component"), str)
        and any(key in first for key in ("events", "states", "health", "healthy"))
    )


def _component(reading: Reading, fields: Fields) -> None:
    name = fields.text("component")
    if not any(key in fields.value for key in ("events", "states", "health", "healthy")):
        raise ParseError("neither states nor events of a component")
    for i, item in enumerate(fields.list("events", ()), 1):
        with reading.part(f"component {name} event {i}"):
            _event(reading, name, Fields.of(item, f"event {i}"))
    for i, item in enumerate(fields.list("states", ()), 1):
        with reading.part(f"component {name} state {i}"):
            _state(reading, name, Fields.of(item, f"state {i}"))
    if "health" in fields or "healthy" in fields:
        _state(reading, name, fields)


def _named(*texts: str) -> tuple[str, ...]:
    uuids = {m[0] for text in texts for m in _UUID.finditer(text[:4_000])}
    uuid = gpu_uuid(uuids.pop()) if len(uuids) == 1 else None
    return entities(next((p for t in texts if (p := pci_in(t))), None), uuid)


def _event(reading: Reading, component: str, fields: Fields) -> None:
    name, message = fields.text("name"), fields.text("message", "")
    extra = _flat(fields.get("extra_info") or fields.get("extraInfo"))
    speaks = "xid" in f"{component} {name}".lower()
    codes = (
        xid_codes(message, checked=True) or tuple(dict.fromkeys(c for text in extra for c in xid_codes(text)))
        if speaks
        else ()
    )
    word = fields.text("type", "Unknown")
    if name in LIFECYCLE_NAMES or (component == "os" and "reboot" in name):
        kind = Kind.LIFECYCLE
    else:
        kind = Kind.FAULT if word.lower() in ("fatal", "critical", "warning") else Kind.INFO
    time = instant(fields.get("time"))
    for code in codes or (None,):
        reading.add(
            kind, code or fault_code("gpud", component, name), part=fields.value,
            key=(component, name, fields.text("time", ""), *((code,) if len(codes) > 1 else ()), message),
            severity=severity_word(word) or severity_of(code),
            entities=_named(message, *extra), starts_at=time, summary=f"{component}: {message or name}",
            detail={"component": component, "name": name, "type": word, **_advice(fields)},
        )  # fmt: skip


def _state(reading: Reading, component: str, fields: Fields) -> None:
    name = fields.text("name", component)
    reason = fields.text("reason", "") or fields.text("error", "")
    health = fields.text("health", "").capitalize()
    if not health:
        health = "Healthy" if fields.boolean("healthy") else "Unhealthy"
    extra = _flat(fields.get("extra_info") or fields.get("extraInfo"))
    codes = xid_codes(reason, checked=True) if "xid" in f"{component} {name}".lower() else ()
    kind = {"Unhealthy": Kind.FAULT, "Degraded": Kind.FAULT, "Healthy": Kind.RECOVERED}.get(health, Kind.INFO)
    told: tuple[str | None, ...] = (codes if kind is not Kind.RECOVERED or len(codes) == 1 else ()) or (None,)
    for code, key, series in keyed(told, "state", component, name):
        reading.add(
            kind, code or fault_code("gpud", component, *([name] if name != component else [])), part=fields.value,
            key=key, series=series, statement=Statement.LEVEL, severity=severity_of(code),
            entities=entities(*_named(reason, *extra), gpu_in(reason)) if kind is Kind.FAULT else (),
            starts_at=instant(fields.get("time")), summary=f"{component}: {health} {reason}",
            detail={"component": component, "name": name, "health": health, "error": fields.maybe_text("error"),
                    "run_mode": fields.maybe_text("run_mode"), **_advice(fields)},
        )  # fmt: skip


def _advice(fields: Fields) -> dict[str, JsonValue]:
    advice = fields.fields("suggested_actions", {})
    actions = [str(a)[:80] for a in advice.list("repair_actions", ())[:10]]
    return {"repair_actions": list(actions) or None, "advice": advice.maybe_text("description")}


def _flat(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [f"{k}: {v}" for k, v in value.items() if isinstance(v, str | int)] if isinstance(value, dict) else []
