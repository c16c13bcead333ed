"""PagerDuty: V3 webhooks about incidents, and Events API V2 bodies as monitors send them.

An incident names its machine only in its title or key. Acknowledging, assigning or annotating is neither a new
fault nor its end. `routing_key` is a secret and is never kept.
"""

from __future__ import annotations

from medevac.events.alert_codes import alert_code
from medevac.events.event import EvidenceRef, Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.paging import (
    MONITORS,
    firing_labels,
    gpu_of,
    machine_in_key,
    machine_in_title,
    machine_of,
    marker_of,
)
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    fault_code,
    gpu_uuid,
    instant,
    join_key,
    pci,
    peek_json,
    quote,
    read_json,
    severity_word,
)
from medevac.model import digest

SOURCE = "pagerduty"

INCIDENT = {
    "incident.triggered": Kind.FAULT,
    "incident.reopened": Kind.FAULT,
    "incident.resolved": Kind.RECOVERED,
}
ACTIONS = {"trigger": Kind.FAULT, "resolve": Kind.RECOVERED, "acknowledge": Kind.INFO}


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    fields = Fields.of(read_json(payload.body))
    if "event" in fields:
        _webhook(reading, fields.fields("event"))
    elif "event_action" in fields:
        _event(reading, fields)
    elif "routing_key" in fields and "payload" in fields:
        pass  # a change event: a deploy, not a fault
    elif "messages" in fields:
        raise ParseError("a V1 or V2 webhook (field messages), which names no signer; make a V3 webhook subscription")
    elif "service_key" in fields and "event_type" in fields:
        raise ParseError("an Events V1 body (field service_key); send Events V2, with routing_key and event_action")
    else:
        raise ParseError("neither a V3 webhook (field event) nor an Events V2 body (field event_action)")
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if "x-pagerduty-signature" in payload.headers:
        return True
    document = peek_json(payload)
    if not isinstance(document, dict):
        return False
    event, messages = document.get("event"), document.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[0], dict):  # to be refused with advice
        old = messages[0]
        return str(old.get("event") or old.get("type")).startswith("incident.")
    if {"service_key", "event_type"} <= document.keys():
        return True
    return ("event_action" in document and "routing_key" in document) or (
        isinstance(event, dict) and "event_type" in event and "occurred_at" in event
    )


def _webhook(reading: Reading, event: Fields) -> None:
    kind_of, number = event.text("event_type"), event.text("id")
    data = event.fields("data", {})
    at = instant(event.get("occurred_at"))
    if kind_of == "pagey.ping" or not kind_of.startswith("incident."):
        test = kind_of == "pagey.ping"
        reading.add(
            Kind.TEST if test else Kind.INFO, fault_code("pagerduty", kind_of), part=event.value, key=number, id=number,
            actionable=False, starts_at=at, summary=data.text("message", "") or kind_of,
        )  # fmt: skip
        return
    # Events about a part of an incident (a note, a responder) hold that part, and the incident by reference.
    incident = data if data.text("type", "incident") == "incident" else data.fields("incident", {})
    title = incident.text("title", "") or incident.text("summary", "")
    key = incident.text("incident_key", "")
    code = alert_code(title, None, [key]) if title or key else fault_code("pagerduty", kind_of)
    kind = INCIDENT.get(kind_of, Kind.INFO)
    url = incident.text("html_url", "")
    reading.add(
        kind,
        code,
        part=event.value,
        key=("incident", incident.maybe_text("id") or number),
        id=number,
        subject=(subject := machine_in_title(title) or machine_in_key(key)),
        actionable=kind is not Kind.INFO and subject is not None,
        statement=Statement.LEVEL,
        severity=severity_of(code),
        starts_at=instant(incident.get("created_at")) or at,
        ends_at=at if kind is Kind.RECOVERED else None,
        marker=marker_of(key, title),
        summary=title,
        evidence=(EvidenceRef(title="PagerDuty incident", url=url[:1_000]),) if url.startswith("https://") else (),
        detail={
            "event_type": kind_of,
            "incident_key": key or None,
            "urgency": incident.maybe_text("urgency"),
            "service": incident.fields("service", {}).maybe_text("summary"),
        },
    )


def _event(reading: Reading, fields: Fields) -> None:
    action = fields.text("event_action")
    if action not in ACTIONS:
        raise ParseError(f"field event_action is {quote(action)}, expected trigger, acknowledge or resolve")
    body = fields.fields("payload", {})
    if not body.value and action == "trigger":
        raise ParseError("field payload is missing")
    held = body.get("custom_details")
    details = held if isinstance(held, dict) else {}
    title, component = body.text("summary", ""), body.text("component", "")
    key = fields.text("dedup_key", "") or (digest([title, body.get("source")])[:16] if title else "")
    code = alert_code(title or key, details, [key, body.text("class", "")])
    kind = ACTIONS[action]
    named = details.get("pci") or details.get("pci_bus_id")
    reading.add(
        kind,
        code,
        part={k: v for k, v in fields.value.items() if k != "routing_key"},
        key=("event", key),
        id=join_key("event", key, action, str(body.get("timestamp") or "")) if "timestamp" in body else None,
        subject=(
            subject := machine_of({}, *(s for s in [body.get("source")] if str(s).lower() not in MONITORS))
            or machine_of(details)
            or machine_of(firing_labels(details.get("firing")))
            or machine_in_title(title)
            or machine_in_key(key)
        ),
        actionable=kind is not Kind.INFO and subject is not None,
        statement=Statement.LEVEL,
        severity=severity_word(body.get("severity")) or severity_of(code),
        entities=entities(gpu_of(details, component), gpu_uuid(details.get("uuid")), pci(named)),
        starts_at=instant(body.get("timestamp")),
        marker=marker_of(key, title),
        summary=title,
        detail={"component": component or None, "class": body.maybe_text("class"), "group": body.maybe_text("group")},
    )
