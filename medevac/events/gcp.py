"""Google Cloud: audit log entries, GKE notifications and Cloud Monitoring's incidents through Pub/Sub (push, wrapped or
not; pull), and the metadata server's maintenance answers.

The log's severity says nothing about the machine; the method name does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import JsonValue

from medevac.events import gcp_monitoring
from medevac.events.envelopes import pubsub_data
from medevac.events.event import Kind, Severity, Statement
from medevac.events.freetext import severity_of, speaks_of_xids
from medevac.events.kmsg_prefix import Record, of_line
from medevac.events.kmsg_records import MAX_LINE, of_fields
from medevac.events.kmsg_text import fault_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    clean,
    entities,
    fault_code,
    instant,
    is_node_name,
    json_value,
    looks_like_json,
    nvswitch,
    peek_json,
    quote,
    read_json,
    read_text,
)

SOURCE = "gcp"
CLOUDEVENT_TYPES = ("google.cloud.audit.log.", "google.cloud.pubsub.topic.")

FAULTS = frozenset(("hostError",))
PLANNED = frozenset(("terminateOnHostMaintenance", "preempted"))
"""Already under way when they are logged: the machine ends now."""
NOTICES = {
    "upcomingMaintenance": "maintenance/upcoming",
    "upcoming_maintenance": "maintenance/upcoming",
    "upcomingInfrastructureMaintenance": "maintenance/infrastructure",
    "upcomingInfraMaintenance": "maintenance/infrastructure",
}
METADATA_WORDS = {
    "NONE": None,
    "MIGRATE_ON_HOST_MAINTENANCE": (Kind.PLANNED, "maintenance/MIGRATE_ON_HOST_MAINTENANCE"),
    "TERMINATE_ON_HOST_MAINTENANCE": (Kind.PLANNED, "maintenance/TERMINATE_ON_HOST_MAINTENANCE"),
    "SHUTDOWN_ON_HOST_MAINTENANCE": (Kind.PLANNED, "maintenance/TERMINATE_ON_HOST_MAINTENANCE"),
    "TRUE": (Kind.PLANNED, "spot-interruption"),
    "FALSE": None,
}
"""Plain answers of `instance/maintenance-event` and `instance/preempted`."""
_MESSAGE = frozenset(("messageId", "message_id", "publishTime", "publish_time"))
"""Beside `data`: a message of Pub/Sub without what was wrapped around it."""
KERNEL_LOGS = frozenset(("kern", "kernel", "kern.log", "kmsg", "dmesg"))
"""Last part of a log's name, where it holds the kernel's lines alone."""
CONSOLE_LOG = "serialconsole.googleapis.com"
"""Beside the kernel's lines, which have their uptime before them, it holds what processes print."""
_NAME = re.compile(r"projects/[^/]{1,80}/zones/[^/]{1,60}/instances/([^/]{1,253})")


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if not looks_like_json(payload):
        word = read_text(payload.body).strip()
        if word not in METADATA_WORDS:
            read_json(payload.body)  # raises, and says where
            raise ParseError("neither a log entry, a Pub/Sub message nor a metadata answer")
        if (meant := METADATA_WORDS[word]) is not None:
            kind, code = meant
            reading.add(kind, code, part=word, key=("metadata", code), statement=Statement.LEVEL, summary=word)
        return reading.parsed()
    document = read_json(payload.body)
    if isinstance(document, dict) and "receivedMessages" in document:
        for i, item in enumerate(reading.first(Fields.of(document).parts("receivedMessages")), 1):
            with reading.part(f"receivedMessages {i}"):
                _message(reading, Fields.of(item, f"receivedMessages {i}").fields("message"))
    elif isinstance(document, dict) and isinstance(document.get("message"), dict):
        _message(reading, Fields.of(document).fields("message"))
    elif isinstance(document, dict) and "data" in document and not _MESSAGE.isdisjoint(document):
        _message(reading, Fields.of(document))
    elif payload.headers.get("type_url", "").startswith("type.googleapis.com/google.container."):
        _gke(reading, payload.headers, payload.headers.get("payload", ""), "")
    else:
        held = document.get("entries") if isinstance(document, dict) else document
        entries = reading.first(held) if isinstance(held, list) else [document]
        for i, item in enumerate(entries, 1):
            with reading.part(f"entry {i}"):
                _entry(reading, Fields.of(item))
        if len(reading.refused) == 1 and not reading.events and not isinstance(document, list):
            raise ParseError(reading.refused[0].reason)
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    document = peek_json(payload)
    if not isinstance(document, dict):
        return False
    message = document.get("message")
    log = document.get("logName")
    return (
        (isinstance(message, dict) and "subscription" in document and ("data" in message or "attributes" in message))
        or (isinstance(log, str) and log.startswith(("projects/", "organizations/", "folders/")))
        or "protoPayload" in document
        or "upcomingMaintenance" in document
        or ("maintenance_status" in document and "window_start_time" in document)
        or ("receivedMessages" in document)
        or gcp_monitoring.is_incident(document)
    )


def _message(reading: Reading, message: Fields) -> None:
    attributes = message.texts("attributes")
    data = pubsub_data(message)
    if attributes.get("type_url", "").startswith("type.googleapis.com/google.container."):
        _gke(reading, attributes, attributes.get("payload", ""), data or "")
    elif data is not None and data.lstrip().startswith(("{", "[")):
        _entry(reading, Fields.of(json_value(data, "message.data")))


def _gke(reading: Reading, attributes: Mapping[str, str], payload: str, words: str) -> None:
    """About a cluster or a node pool, never about one node."""
    kind = attributes["type_url"].rsplit(".", 1)[-1]
    fields = Fields.of(json_value(payload, "attributes.payload") if payload.strip() else {}, "payload")
    operation = fields.scalar("operation")
    reading.add(
        Kind.INFO,
        fault_code("gke", kind),
        part=[dict(fields.value), kind],
        key=("gke", operation or payload or words),
        actionable=False,
        starts_at=instant(fields.get("operationStartTime")),
        summary=words or f"{kind} of {attributes.get('cluster_name')}",
        detail={
            "gke_cluster": attributes.get("cluster_name"),
            "location": attributes.get("cluster_location"),
            "project": attributes.get("project_id"),
            "operation": operation,
            "resource_type": fields.scalar("resourceType"),
            "resource": fields.scalar("resource"),
        },
    )


# --- log entries and metadata --------------------------------------------------------------------------------


def _entry(reading: Reading, fields: Fields) -> None:
    if "specversion" in fields and "data" in fields:  # Eventarc's envelope around a log entry or a message
        fields = fields.fields("data")
        if isinstance(fields.get("message"), dict):
            _message(reading, fields.fields("message"))
            return
    if gcp_monitoring.is_incident(fields.value):
        gcp_monitoring.read(reading, fields)
    elif "protoPayload" in fields:
        _audit(reading, fields, fields.fields("protoPayload"))
    elif "upcomingMaintenance" in fields or "upcoming_maintenance" in fields or "resourceStatus" in fields:
        held = fields.fields("resourceStatus") if "resourceStatus" in fields else fields
        key = "upcomingMaintenance" if "upcomingMaintenance" in held else "upcoming_maintenance"
        name = fields.get("name")  # of an instance as Compute Engine shows it
        if key in held:
            _window(reading, held.fields(key), fields, str(name) if is_node_name(name) else None, key, {})
    elif "maintenance_status" in fields or "maintenanceStatus" in fields:
        _window(reading, fields, fields, None, "upcomingMaintenance", {})
    elif "textPayload" in fields or "jsonPayload" in fields:
        _line(reading, fields)
    elif "logName" in fields or "insertId" in fields:
        _other(reading, fields)
    else:
        raise ParseError("neither a log entry, a notification nor a metadata answer of Google Cloud")


def _other(reading: Reading, fields: Fields, words: str = "") -> None:
    """A log entry without anything that is read here: seen by people, acted on by nobody."""
    log = fields.scalar("logName") or "a log"
    reading.add(
        Kind.INFO, "gcp/log-entry", part=fields.value, key=("log-entry", log), id=fields.maybe_text("insertId"),
        actionable=False, starts_at=instant(fields.get("timestamp")),
        summary=words or f"an entry of {log} that isn't read", detail=_place(fields),
    )  # fmt: skip


def _place(fields: Fields) -> dict[str, JsonValue]:
    labels = fields.fields("resource", {}).texts("labels")
    found: dict[str, JsonValue] = {k: labels[k] for k in ("instance_id", "zone", "project_id") if k in labels}
    return {**found, "insert_id": fields.scalar("insertId")}


def _audit(reading: Reading, fields: Fields, proto: Fields) -> None:
    method = proto.text("methodName", "")
    m = _NAME.fullmatch(proto.text("resourceName", ""))
    if ".instances." not in f".{method}":
        return
    name = method.rsplit(".", 1)[-1]
    detail = {"method": method, **_place(fields)}
    subject = m[1] if m and is_node_name(m[1]) else None
    if subject is None:
        if m is not None:
            raise ParseError(f"instance name {quote(m[1])} is not a valid node name")
        return
    operation = fields.fields("operation", {})
    message = proto.fields("status", {}).text("message", "")
    if name in NOTICES:
        _window(reading, _noticed(proto, name), fields, subject, name, {**detail, "message": message})
        return
    kind = Kind.FAULT if name in FAULTS else Kind.PLANNED if name in PLANNED else Kind.LIFECYCLE
    reading.add(
        kind,
        fault_code("gcp", method.removeprefix("v1.").removeprefix("beta.")),
        part=fields.value,
        key=(subject, name, operation.maybe_text("id") or fields.maybe_text("insertId")),
        id=fields.maybe_text("insertId"),
        subject=subject,
        starts_at=instant(fields.get("timestamp")),
        summary=f"{subject}: {message or method}",
        detail=detail,
    )


def _noticed(proto: Fields, name: str) -> Fields:
    """The window of a notice, under its own name or bare, in whichever part the log holds it."""
    for key in ("metadata", "request", "response"):
        part = proto.fields(key, {})
        for inner in (name, "upcomingMaintenance"):
            if inner in part:
                return part.fields(inner)
        if "windowStartTime" in part or "maintenanceStatus" in part:
            return Fields({k: v for k, v in part.value.items() if k != "@type"}, f"protoPayload.{key}")
    return Fields({}, "protoPayload.metadata")


def _window(
    reading: Reading, window: Fields, fields: Fields, subject: str | None, name: str, detail: Mapping[str, JsonValue]
) -> None:
    """`upcomingMaintenance`, with camel or snake case keys, booleans as such or as words."""
    held = {re.sub(r"_([a-z])", lambda m: m[1].upper(), k): v for k, v in window.value.items()}
    window = Fields(held, "upcomingMaintenance")
    status, message = window.text("maintenanceStatus", ""), str(detail.get("message") or "")
    over = status.upper() in ("COMPLETE", "COMPLETED", "CANCELED", "CANCELLED") or "has completed" in message.lower()
    start = instant(window.get("windowStartTime"))
    kind = window.text("type", "")
    if not held and not over and not message:
        raise ParseError(f"{name} without a maintenance window")
    reading.add(
        Kind.RECOVERED if over else Kind.PLANNED,
        fault_code("maintenance", kind) if kind and kind != "UNKNOWN_TYPE" else NOTICES[name],
        part=fields.value,
        key=(subject, "upcoming-maintenance"),
        id=fields.maybe_text("insertId"),
        subject=subject,
        statement=Statement.LEVEL,
        not_before=start,
        ends_at=instant(window.get("windowEndTime")),
        summary=message or f"Maintenance {status or kind}",
        detail={
            **detail,
            "status": status or None,
            "can_reschedule": window.boolean("canReschedule", False) if "canReschedule" in window else None,
            "latest_start": window.scalar("latestWindowStartTime"),
        },
    )


def _of_container(fields: Fields) -> bool:
    """Whoever wrote it may be showing the kernel's log, or anything else."""
    kind = fields.fields("resource", {}).text("type", "")
    return kind in ("k8s_container", "k8s_pod") or fields.text("logName", "").endswith(("/stdout", "/stderr"))


def _kernels_own(fields: Fields, record: Record) -> bool:
    """The log or the line says that the kernel wrote it. A bare line of another log may be anybody's."""
    log = fields.text("logName", "").rsplit("/", 1)[-1].lower()
    by_log = log in KERNEL_LOGS or (log.startswith(CONSOLE_LOG) and record.uptime is not None)
    return (by_log or record.attested) and not record.container and not _of_container(fields)


def _line(reading: Reading, fields: Fields) -> None:
    """A log line of a machine: a fault only where it is the kernel's own. What else speaks of an Xid informs."""
    held = fields.fields("jsonPayload", {})
    if text := fields.text("textPayload", ""):
        record = of_line(clean(text[:MAX_LINE].split("\n")[0]))
    elif any(isinstance(held.get(key), str | list) for key in ("MESSAGE", "message", "log", "msg")):
        record = of_fields(held)
        text = record.text
    else:
        return
    fault = fault_of(record.message)
    if fault is None or not record.kernel:
        if speaks_of_xids(text):
            _other(reading, fields, f"not the kernel's word: {text}")
        return
    code = fault_code("sxid" if fault.is_switch else "xid", fault.code)
    labels = {**fields.fields("resource", {}).texts("labels"), **fields.texts("labels")}
    subject = labels.get("node_name") or labels.get("compute.googleapis.com/resource_name") or labels.get("instance_id")
    if subject is not None and not is_node_name(subject):
        raise ParseError(f"node name {quote(subject)} is not a valid node name")
    none_wanted = fault.detail.get("recovery_code") == 0
    reading.add(
        Kind.INFO if none_wanted else Kind.FAULT, code, part=fields.value, key=(subject, code, fault.pci),
        id=fields.maybe_text("insertId"), subject=subject,
        actionable=not none_wanted and _kernels_own(fields, record),
        severity=Severity.WARNING if fault.word == "nonfatal" else severity_of(code), boot_id=record.boot_id,
        entities=entities(fault.pci, *fault.entities, nvswitch(fault.switch)),
        starts_at=instant(fields.get("timestamp")), summary=text, detail={**fault.detail, **_place(fields)},
    )  # fmt: skip
