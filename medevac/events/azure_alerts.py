"""Azure Monitor's alerts: the common alert schema, and the Activity Log's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue

from medevac.events.alert_codes import alert_code
from medevac.events.azure_names import machine_of
from medevac.events.event import Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import ParseError
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    fault_code,
    gpu,
    gpu_uuid,
    instant,
    is_node_name,
    pci,
)
from medevac.model import digest

COMMON, ACTIVITY = "azureMonitorCommonAlertSchema", "Microsoft.Insights/activityLogs"
SCHEMAS = (COMMON, ACTIVITY)
_BAD = frozenset(("Unavailable", "Degraded"))
_NODE_DIMENSIONS = ("node", "nodename", "host", "hostname", "computer", "instance")


def read(reading: Reading, fields: Fields) -> None:
    data = fields.fields("data")
    if fields.text("schemaId") == ACTIVITY:
        log = data.fields("context").fields("activityLog")
        _activity(reading, fields.value, log, [log.text("resourceId", "")], data.text("status", ""))
        return
    essentials, context = data.fields("essentials"), data.fields("alertContext", {})
    service = essentials.text("monitoringService", "")
    targets = essentials.text_list("alertTargetIDs", ())
    if "eventSource" in context or service.startswith(("Activity Log", "Resource Health", "ServiceHealth")):
        fired = essentials.text("monitorCondition", "Fired")
        _activity(reading, fields.value, context, targets, "Resolved" if fired == "Resolved" else "", essentials)
    else:
        _metric(reading, fields.value, essentials, context, targets)


def health(
    reading: Reading, part: object, resource: str, state: str, *, since: datetime | None, cause: str, words: str,
    over: bool = False, id: str | None = None,
) -> None:  # fmt: skip
    """Resource Health: `Unavailable` by the platform is a fault; what a user did is the machine's life."""
    subject = machine_of(resource)
    bad = state in _BAD and not over
    by_user = cause.lower().replace(" ", "") in ("userinitiated", "customerinitiated")
    if subject is None or (bad and by_user):
        kind = Kind.INFO if subject is None else Kind.LIFECYCLE
    else:
        kind = Kind.FAULT if bad else Kind.RECOVERED if over or state == "Available" else Kind.INFO
    reading.add(
        kind,
        fault_code("azure", "resource-health", state),
        part=part,
        key=(resource.lower(), "resource-health"),
        id=id,
        subject=subject,
        actionable=subject is not None,
        statement=Statement.LEVEL,
        starts_at=since,
        summary=words or f"{subject}: {state}",
        detail={"resource": resource, "cause": cause or None, "state": state},
    )


def _activity(
    reading: Reading,
    part: Mapping[str, JsonValue],
    log: Fields,
    targets: Sequence[str],
    status: str,
    essentials: Fields | None = None,
) -> None:
    source = log.text("eventSource", "")
    properties = log.fields("properties", {})
    time = instant(log.get("eventTimestamp"))
    number = log.maybe_text("eventDataId") or (essentials.maybe_text("alertId") if essentials else None)
    over = "resolved" in (status.lower(), log.text("status", "").lower())
    if source.replace(" ", "") == "ResourceHealth" or "currentHealthStatus" in properties:
        seen = digest(part)
        for target in targets or [""]:
            health(
                reading, [seen, target], target, properties.text("currentHealthStatus"), since=time, over=over,
                cause=properties.text("cause", ""), words=properties.text("title", ""),
                id=number if len(targets) < 2 else None,
            )  # fmt: skip
        return
    if source.replace(" ", "") == "ServiceHealth":
        reading.add(
            Kind.INFO, fault_code("azure", "service-health", properties.text("incidentType", "unknown")), part=part,
            key=(properties.maybe_text("trackingId") or number,), id=number, actionable=False, starts_at=time,
            summary=properties.text("title", ""), detail={"tracking_id": properties.maybe_text("trackingId")},
        )  # fmt: skip
        return
    operation = log.scalar("operationName") or log.fields("authorization", {}).text("action")
    seen = digest(part)
    for target in targets or [""]:
        subject = machine_of(target)
        reading.add(
            Kind.LIFECYCLE if subject else Kind.INFO, fault_code("azure", operation), part=[seen, target],
            key=(target.lower(), operation, number), id=number if len(targets) < 2 else None, subject=subject,
            actionable=subject is not None, starts_at=time, summary=f"{operation} {log.text('status', '')}",
            detail={"caller": log.maybe_text("caller"), "status": log.maybe_text("status"), "resource": target},
        )  # fmt: skip


def _metric(
    reading: Reading, part: Mapping[str, JsonValue], essentials: Fields, context: Fields, targets: Sequence[str]
) -> None:
    """Metric and log alerts: an alert's name; a machine only where the target or a dimension names one."""
    rule = essentials.text("alertRule")
    condition = essentials.text("monitorCondition")
    if condition not in ("Fired", "Resolved"):
        raise ParseError(f"field monitorCondition is {condition[:40]!r}, expected Fired or Resolved")
    dimensions = _dimensions(context)
    words = essentials.text("description", "") or _said(context)
    code = alert_code(
        rule, dimensions, [essentials.text("description", "")], [_said(context)], rule=context.texts("labels")
    )
    named = next((dimensions[k] for k in _NODE_DIMENSIONS if is_node_name(dimensions.get(k))), None)
    seen = digest(part)
    for target in targets or [""]:
        subject = machine_of(target) or named
        reading.add(
            Kind.RECOVERED if condition == "Resolved" else Kind.FAULT,
            code,
            part=[seen, target],
            key=(essentials.maybe_text("alertId") or rule, target.lower()),
            subject=subject,
            actionable=subject is not None,
            severity=severity_of(code),
            statement=Statement.LEVEL,
            entities=entities(
                gpu(dimensions.get("gpu")), gpu_uuid(dimensions.get("uuid")), pci(dimensions.get("pci_bus_id"))
            ),
            starts_at=instant(essentials.get("firedDateTime")),
            ends_at=instant(essentials.get("resolvedDateTime")),
            summary=words or rule,
            detail={"rule": rule, "severity": essentials.maybe_text("severity"), "resource": target, **dimensions},
        )


def _said(context: Fields) -> str:
    notes = context.texts("annotations")
    return notes.get("summary", "") or notes.get("description", "")


def _dimensions(context: Fields) -> Mapping[str, str]:
    """A metric's dimensions, or the labels of a rule of managed Prometheus."""
    found = {k.lower()[:80]: v for k, v in context.texts("labels").items()}
    for item in context.fields("condition", {}).list("allOf", ()):
        for pair in Fields.of(item, "allOf").list("dimensions", ()):
            held: Mapping[str, JsonValue] = Fields.of(pair, "dimensions").value
            name, value = held.get("name"), held.get("value")
            if isinstance(name, str) and isinstance(value, str):
                found[name.lower()[:80]] = value
    return found
