"""Azure: IMDS scheduled events, Event Grid (either schema, with its handshake), and Monitor's two alert schemas.

Resources are VM names (`my_vm`, scale set `pool_0`), which the inventory maps to nodes. A log level is no fault's
severity. Resource ids are case-insensitive: keys are lower case.
"""

from __future__ import annotations

from datetime import datetime

from medevac.events import azure_alerts
from medevac.events.azure_names import machine_of
from medevac.events.event import Kind, Statement
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import Fields, Reading, fault_code, instant, node_name, peek_json, read_json, rfc1123
from medevac.model import digest

SOURCE = "azure"
CLOUDEVENT_TYPES = ("Microsoft.",)

OVER = frozenset(("Completed", "Canceled", "Cancelled"))
SCHEDULED = "ScheduledEventEmitted"
AVAILABILITY = ("AvailabilityStatusChanged", "ResourceAnnotated")


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    document = read_json(payload.body)
    if isinstance(document, list):
        items = reading.first(document)
        for i, item in enumerate(items, 1):
            with reading.part(f"event {i}"):
                _read(reading, Fields.of(item))
        if items and len(reading.refused) == len(items):
            raise ParseError(str(reading.refused[0]))
    else:
        _read(reading, Fields.of(document))
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if "aeg-event-type" in payload.headers:
        return True
    document = peek_json(payload)
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return False
    kind = first.get("eventType") or first.get("type")
    return (
        first.get("schemaId") in azure_alerts.SCHEMAS
        or "DocumentIncarnation" in first
        or (isinstance(kind, str) and kind.startswith("Microsoft."))
    )


def _read(reading: Reading, fields: Fields) -> None:
    if fields.get("schemaId") in azure_alerts.SCHEMAS:
        azure_alerts.read(reading, fields)
    elif "DocumentIncarnation" in fields or "Events" in fields:
        for i, item in enumerate(
            reading.first(fields.parts("Events", () if "DocumentIncarnation" in fields else None)), 1
        ):
            with reading.part(f"Events {i}"):
                scheduled(reading, Fields.of(item, f"Events {i}"), None)
    elif "eventType" in fields or ("type" in fields and "specversion" in fields):
        _grid(reading, fields)
    else:
        raise ParseError("neither scheduled events, an Event Grid event nor an alert of Azure Monitor")


def scheduled(reading: Reading, fields: Fields, whole: str | None) -> None:
    """One statement a machine. `NotBefore` is empty once it has begun; a freeze of seconds is no reboot."""
    kind, status = fields.text("EventType"), fields.text("EventStatus", "Scheduled")
    number = fields.text("EventId")
    names = fields.text_list("Resources", ()) or ((whole,) if whole else ())
    before, seen = fields.get("NotBefore"), digest(dict(fields.value))
    for name in names:
        subject = node_name(name)
        reading.add(
            Kind.RECOVERED if status in OVER else Kind.PLANNED,
            fault_code("maintenance", kind),
            part=[seen, name],
            key=(number.lower(), name.lower()),
            subject=subject,
            statement=Statement.LEVEL,
            not_before=rfc1123(before) or instant(before),
            summary=fields.text("Description", "") or f"{kind} of {name}",
            detail={
                "event_id": number,
                "status": status,
                "duration_s": fields.get("DurationInSeconds"),
                "initiated_by": fields.maybe_text("EventSource"),
            },
        )


# --- Event Grid ----------------------------------------------------------------------------------------------


def _grid(reading: Reading, fields: Fields) -> None:
    kind = fields.text("eventType", "") or fields.text("type", "")
    time = instant(fields.get("eventTime")) or instant(fields.get("time"))
    data = fields.fields("data", {})
    if kind == "Microsoft.EventGrid.SubscriptionValidationEvent":
        reading.add(
            Kind.HANDSHAKE, "eventgrid/subscription-validation", part=fields.value, key=fields.text("id"),
            id=fields.text("id"), actionable=False, starts_at=time, summary="Event Grid asks to confirm",
            detail={"validation_code": data.text("validationCode")},
        )  # fmt: skip
        return
    if kind.endswith(SCHEDULED):
        properties = data.fields("resourceInfo").fields("properties")
        scheduled(reading, properties, machine_of(fields.text("subject", "")))
    elif kind.endswith(AVAILABILITY):
        _availability(reading, fields, data, time)
    elif kind.startswith("Microsoft.Resources.") and "/virtualMachine" in fields.text("subject", ""):
        subject = machine_of(fields.text("subject"))
        operation = data.text("operationName", kind)
        reading.add(
            Kind.LIFECYCLE, fault_code("azure", operation), part=fields.value,
            key=(subject, operation, fields.get("id")),
            id=fields.maybe_text("id"), subject=subject, starts_at=time, summary=operation,
        )  # fmt: skip


def _availability(reading: Reading, fields: Fields, data: Fields, time: datetime | None) -> None:
    info = data.fields("resourceInfo", {})
    properties = info.fields("properties", {})
    target = properties.text("targetResourceId", "") or fields.text("subject", "")
    state = properties.text("availabilityState", "")
    if not state:  # an annotation explains a state; it is none itself
        subject, name = machine_of(target), properties.text("annotationName", "unnamed")
        reading.add(
            Kind.INFO, fault_code("azure", "annotation", name), part=fields.value, key=(target.lower(), name),
            id=fields.maybe_text("id"), subject=subject, actionable=False,
            starts_at=instant(properties.get("occurredTime")) or time, summary=properties.text("summary", "") or name,
            detail={"category": properties.maybe_text("category"), "context": properties.maybe_text("context")},
        )  # fmt: skip
        return
    azure_alerts.health(
        reading, fields.value, target, state, since=instant(properties.get("occurredTime")) or time,
        cause=properties.text("reasonType", "") or properties.text("context", ""),
        words=properties.text("summary", "") or properties.text("title", ""),
    )  # fmt: skip
