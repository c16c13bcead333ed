"""CloudEvents over HTTP: structured, binary and batched, and the handshake that asks whether we want them.

The mode is decided by the content type; without one (a file) by the body. Events of a type that another parser
claims (`CLOUDEVENT_TYPES`) are handed to it. Of the others, `data` with a node and an `xid` or `sxid` is a
fault; anything else is taken, recorded and never acted on.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from medevac.events.event import Kind
from medevac.events.freetext import severity_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    clean,
    entities,
    fault_code,
    gpu,
    gpu_uuid,
    instant,
    is_node_name,
    join_key,
    json_value,
    looks_like_json,
    node_name,
    one_line,
    pci,
    peek_json,
    quote,
    read_json,
    read_text,
    severity_word,
    whole,
)
from medevac.events.registry import claimant

SOURCE = "cloudevents"
STRUCTURED = "application/cloudevents"
BATCH = "application/cloudevents-batch"
VERSIONS = ("1.0", "0.3")
OLD_KEYS = {
    "cloudEventsVersion": "specversion",
    "eventType": "type",
    "eventID": "id",
    "eventTime": "time",
    "contentType": "datacontenttype",
}
"""CloudEvents 0.1, which OCI still sends."""
NODE_KEYS = ("node", "nodeName", "node_name", "hostname", "host", "instance_id", "instanceId")
OVER = frozenset({"healthy", "resolved", "recovered", "ok", "cleared"})
_WRITTEN = re.compile(r"s?xid[ _:-]?([0-9]{1,5})", re.IGNORECASE)
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True, slots=True)
class Envelope:
    """One CloudEvent, however it came: its attributes, and `data` as JSON or text."""

    attributes: dict[str, str]
    data: JsonValue
    raw: JsonValue

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    def get(self, name: str) -> str | None:
        return self.attributes.get(name) or None


def recognises(payload: Payload) -> bool:
    kind = payload.headers.get("content-type", "").lower()
    if kind.startswith(STRUCTURED) or "ce-specversion" in payload.headers or is_handshake(payload):
        return True
    if not looks_like_json(payload) or b"specversion" not in payload.body:
        return False
    body = peek_json(payload)
    first = body[0] if isinstance(body, list) and body else body
    return isinstance(first, dict) and "specversion" in first and "type" in first


def is_handshake(payload: Payload) -> bool:
    method = payload.headers.get(":method", "").upper()
    origin = "webhook-request-origin" in payload.headers
    return origin and (method == "OPTIONS" or (not method and not payload.body.strip()))


def handshake_answer(payload: Payload) -> dict[str, str]:
    """Response headers by which a sender is told that it may deliver here."""
    rate = payload.headers.get("webhook-request-rate", "")
    return {
        "WebHook-Allowed-Origin": one_line(payload.headers.get("webhook-request-origin", "*"), 200),
        "WebHook-Allowed-Rate": rate if rate.isascii() and rate.isdigit() and len(rate) < 10 else "*",
    }


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if is_handshake(payload):
        answer = handshake_answer(payload)
        reading.add(
            Kind.HANDSHAKE,
            "cloudevents/webhook-validation",
            part=answer,
            key=("handshake", answer["WebHook-Allowed-Origin"]),
            actionable=False,
            summary=f"{answer['WebHook-Allowed-Origin']} asks to deliver here",
            detail={"response": {"status": 200, "headers": answer}},
        )
        return reading.parsed()
    for where, found in reading.first(envelopes(payload)):
        with reading.part(where):
            _event(reading, opened(found, where), where)
    return reading.parsed()


# --- envelopes -----------------------------------------------------------------------------------------------


def envelopes(payload: Payload) -> list[tuple[str, JsonValue | Envelope]]:
    """Each event of the payload and where it stands; a bad one only fails when it is `opened`."""
    kind = payload.headers.get("content-type", "").lower().split(";")[0].strip()
    if kind.startswith(BATCH):
        return _batch(read_json(payload.body))
    if kind.startswith(STRUCTURED):
        if kind not in (STRUCTURED, f"{STRUCTURED}+json"):
            raise ParseError(f"content type {quote(kind)} can't be read, only JSON can")
        body = read_json(payload.body)
        if not isinstance(body, dict):
            raise ParseError("body is not one event; a batch needs the content type of a batch")
        return [("event", body)]
    if any(name.startswith("ce-") for name in payload.headers):
        return [("event", binary(payload, kind))]
    body = read_json(payload.body)
    return _batch(body) if isinstance(body, list) else [("event", body)]


def _batch(body: JsonValue) -> list[tuple[str, JsonValue | Envelope]]:
    if not isinstance(body, list):
        raise ParseError("body is not a batch (a JSON list of events)")
    return [(f"event {i}", event) for i, event in enumerate(body, 1)]


def opened(found: JsonValue | Envelope, where: str) -> Envelope:
    return found if isinstance(found, Envelope) else structured(found, where)


def structured(value: JsonValue, where: str = "event") -> Envelope:
    """From its JSON form. Raises `ParseError` that names the attribute."""
    fields = Fields.of(value, where if where != "event" else "")
    if "specversion" not in fields and "cloudEventsVersion" in fields:
        fields = Fields({OLD_KEYS.get(k, k): v for k, v in fields.value.items()}, fields.where)
        versions: tuple[str, ...] = ("0.1",)
    else:
        versions = VERSIONS
    attributes: dict[str, str] = {}
    for name, given in fields.value.items():
        if name in ("data", "data_base64", "extensions") or given is None:
            continue
        if isinstance(given, dict | list):
            raise ParseError(f"{where}: attribute {quote(name)} is no string")
        attributes[name] = given if isinstance(given, str) else json.dumps(given)
    _check(attributes, versions, where)
    if "data" in fields and "data_base64" in fields:
        raise ParseError(f"{where}: has both data and data_base64")
    data = fields.get("data")
    media = attributes.get("datacontenttype", "application/json").lower()
    if (text := fields.maybe_text("data_base64")) is not None:
        try:
            raw = base64.b64decode(text.encode(), validate=True)
        except (binascii.Error, ValueError):
            raise ParseError(f"{where}: data_base64 is not valid base64") from None
        data = _data(raw, media)
    elif isinstance(data, str) and "json" in media and data.lstrip()[:1] in ("{", "["):
        data = json_value(data, f"{where}: data")
    return Envelope(attributes, data, value)


def binary(payload: Payload, media: str) -> Envelope:
    """Attributes from `ce-` headers (percent-encoded), the body is the data alone."""
    attributes = {
        name[3:]: clean(_unquoted(value)) for name, value in payload.headers.items() if name.startswith("ce-")
    }
    _check(attributes, VERSIONS, "event")
    if media:
        attributes["datacontenttype"] = media
    data = _data(payload.body, media or "application/json")
    return Envelope(attributes, data, {**attributes, "data": data})


def _data(raw: bytes, media: str) -> JsonValue:
    if not raw.strip():
        return None
    return read_json(raw, "data") if "json" in media else clean(read_text(raw))


def _unquoted(value: str) -> str:
    return _PERCENT.sub(
        lambda m: bytes.fromhex(m[0].replace("%", "")).decode("utf-8", "replace"), value.strip().strip('"')
    )


def _check(attributes: Mapping[str, str], versions: tuple[str, ...], where: str) -> None:
    for name in ("specversion", "id", "source", "type"):
        if not attributes.get(name):
            raise ParseError(f"{where}: attribute {name} is missing: this is no CloudEvent")
    if attributes["specversion"] not in versions:
        raise ParseError(
            f"{where}: specversion {quote(attributes['specversion'])} can't be read, expected {versions[0]}"
        )


# --- what it says --------------------------------------------------------------------------------------------


def _event(reading: Reading, envelope: Envelope, where: str) -> None:
    owner = claimant(envelope["type"])
    if owner is not None and owner.SOURCE != SOURCE:
        inner = Payload(json.dumps(envelope.raw).encode(), {"content-type": f"{STRUCTURED}+json"})
        parsed = owner.parse(inner)
        reading.events.extend(parsed.events)
        reading.truncated += parsed.truncated
        for refusal in parsed.refused:
            reading.refuse(f"{where}, {refusal.where}" if refusal.where != "event" else where, refusal.reason)
        return
    data = envelope.data if isinstance(envelope.data, dict) else {}
    fields = Fields(data, "data")
    path = [p for p in (envelope.get("subject") or "").split("/") if p]
    subject, contradiction = _subject(fields, path)
    index = gpu(path[path.index("gpu") + 1]) if "gpu" in path[:-1] else None
    code = _code(fields)
    over = fields.get("healthy") is True or str(fields.get("status")).lower() in OVER
    kind = Kind.INFO if code is None else Kind.RECOVERED if over else Kind.FAULT
    device = gpu_uuid(fields.get("gpu_uuid") or fields.get("uuid"))
    reading.add(
        kind,
        code or fault_code("cloudevent", envelope["type"]),
        part=envelope.raw,
        id=join_key("cloudevent", envelope["source"], envelope["id"]),
        key=(envelope["source"], envelope["id"]) if not over else (envelope["source"], code, subject),
        series=join_key(envelope["source"], code, subject) if code else None,
        subject=subject,
        cluster=_cluster(fields),
        actionable=code is not None and (subject is not None or device is not None),
        severity=(severity_word(fields.get("severity")) or severity_of(code)) if code else None,
        entities=entities(
            index or gpu(fields.get("gpu")),
            pci(fields.get("pci") or fields.get("pci_bus_id")),
            device,
        ),
        starts_at=instant(envelope.get("time")),
        summary=str(fields.get("message") or fields.get("summary") or envelope["type"]),
        marker=_marker(envelope, fields),
        detail={
            "type": envelope["type"],
            "event_source": envelope["source"],
            "event_id": envelope["id"],
            "event_subject": envelope.get("subject"),
            "contradiction": contradiction,
            "data": envelope.data,
        },
    )


def _cluster(fields: Fields) -> str | None:
    value = fields.get("cluster")
    return clean(value) if isinstance(value, str) and is_node_name(value) else None


def _marker(envelope: Envelope, fields: Fields) -> str | None:
    own = envelope.get("medevac") or fields.get("medevac")
    return one_line(str(own), 120) if own else None


def _subject(fields: Fields, path: list[str]) -> tuple[str | None, str | None]:
    """The node by `data`, else by the first step of the subject's path. Where the two name different machines
    nobody knows which one is meant, so none is."""
    named = next((fields.text(key) for key in NODE_KEYS if fields.get(key)), None)
    if named is not None:
        named = node_name(named)
    told = path[0] if path and len(path) in (1, 3) and is_node_name(path[0]) else None
    if named and told and len(path) == 3 and told.split(".")[0] != named.split(".")[0]:
        return None, f"subject names {told}, data names {named}"
    return named or told, None


def _code(fields: Fields) -> str | None:
    for space in ("xid", "sxid"):
        value = fields.get(space)
        if value is None:
            continue
        found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 20 else None
        number = whole(value) if found is None else int(found[1])
        if number is None or not 0 < number < 100_000:
            raise ParseError(f"field {space} of data is {quote(value)}, which is no code")
        return fault_code(space, number)
    return None
