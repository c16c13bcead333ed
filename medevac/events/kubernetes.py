"""Kubernetes objects as health statements: node conditions with their polarity, Events about nodes, watch frames.

Shared by the senders that speak through them (`k8s_node`, `npd`, `eks_nma`); it is no sender itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from medevac.events.envelopes import json_documents
from medevac.events.event import Kind, Severity, Statement
from medevac.events.freetext import pci_in, severity_of, xid_code
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import Fields, Reading, entities, fault_code, instant, node_name, severity_word

EKS_CONDITIONS = frozenset(
    ("AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady")
)
FACTS = frozenset(("EtcdIsVoter", "DrainInProgress", "Drained", "MaintenanceInProgress", "SchedulingDisabled"))
"""Conditions that say something without being good or bad."""
PLANNED = {"VMEventScheduled": "maintenance/VMEventScheduled", "MaintenancePlanned": "maintenance/planned"}
"""Conditions that announce the provider's work (AKS, Kubernetes node lifecycle)."""
_GOOD_WHEN_TRUE = re.compile(r"(?:Ready|(?<!Un)(?:Healthy|Available)|OK|Passed|Succeeded)$")
LONG_SERIES = timedelta(minutes=30)
"""An Event that has repeated for longer speaks of its latest occurrence: by its first it would look stale."""
OWN = re.compile(r"(?:^|[./-])medevac", re.IGNORECASE)
"""Our own conditions, and Events of our own component: echoes, never faults."""
LIFECYCLE_REASONS = frozenset(
    ("Rebooted", "Starting", "Shutdown", "NodeReady", "NodeSchedulable", "NodeNotSchedulable", "RemovingNode")
)


def bad_status(condition: str) -> str:
    """Which status means trouble: `False` for what ends in Ready, Healthy and the like, `True` for all else."""
    return "False" if _GOOD_WHEN_TRUE.search(condition) else "True"


def read_objects(source: str, payload: Payload) -> Parsed:
    """Nodes, Events, lists of them, and watch frames, one document or one on each line."""
    reading = Reading(source)
    for where, document in json_documents(payload.body):
        with reading.part(where):
            if isinstance(document, ParseError):
                raise document
            for place, item in _objects(document, where):
                with reading.part(place):
                    _read(reading, Fields.of(item, place if place != "body" else ""), item)
    if reading.refused and not reading.events and len(reading.refused) == 1:
        raise ParseError(str(reading.refused[0]) if reading.refused[0].where != "body" else reading.refused[0].reason)
    return reading.parsed()


def _objects(document: JsonValue, where: str) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        for i, item in enumerate(Fields.of(document).list("items"), 1):
            yield f"item {i}", _typed(item, document)
    elif isinstance(document, list):
        for i, item in enumerate(Fields({"items": document}).list("items"), 1):
            yield f"item {i}", item
    else:
        yield where, document


def _typed(item: JsonValue, parent: dict[str, JsonValue]) -> JsonValue:
    """Items of a typed list carry no kind of their own."""
    kind = parent.get("kind")
    if isinstance(item, dict) and "kind" not in item and kind in ("NodeList", "EventList"):
        return {"kind": str(kind).removesuffix("List"), **item}
    return item


def _read(reading: Reading, fields: Fields, part: JsonValue) -> None:
    if fields.get("type") in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR") and "object" in fields:
        frame = fields.text("type")
        if frame in ("BOOKMARK", "ERROR"):  # a version to remember, or the watch's own end (410): says nothing
            return
        fields = fields.fields("object")
        if frame == "DELETED" and fields.get("kind") == "Node":
            name = node_name(fields.fields("metadata").text("name"))
            reading.add(
                Kind.LIFECYCLE, "node/deleted", part=part, key=("node", name, "deleted"), subject=name,
                detail={"node_uid": fields.fields("metadata").maybe_text("uid")},
            )  # fmt: skip
            return
        if frame == "DELETED":
            return
    kind = fields.text("kind")
    if kind == "Node":
        _node(reading, fields)
    elif kind == "Event":
        _event(reading, fields)
    elif kind != "Status" and not kind.endswith("List"):
        raise ParseError(f"kind {kind} is neither Node nor Event")


# --- nodes ---------------------------------------------------------------------------------------------------


def _node(reading: Reading, fields: Fields) -> None:
    metadata = fields.fields("metadata", {})
    status = fields.fields("status", {})
    conditions = status.list("conditions", ())
    if not metadata.text("name", "") and not conditions:
        return
    name = node_name(metadata.text("name"))
    common: dict[str, Any] = {
        "node_uid": metadata.maybe_text("uid"),
        "provider_id": fields.fields("spec", {}).maybe_text("providerID"),
    }
    boot_id = status.fields("nodeInfo", {}).maybe_text("bootID")
    for i, item in enumerate(conditions, 1):
        with reading.part(f"node {name} condition {i}"):
            _condition(reading, Fields.of(item, f"condition {i}"), name, boot_id, common)


def _condition(reading: Reading, fields: Fields, node: str, boot_id: str | None, common: dict[str, Any]) -> None:
    kind, status = fields.text("type"), fields.text("status")
    reason, message = fields.text("reason", ""), fields.text("message", "")
    if status not in ("True", "False", "Unknown"):
        raise ParseError(f"status of {kind} is {status[:40]!r}, expected True, False or Unknown")
    own = OWN.search(kind) is not None
    if status == "Unknown" and kind != "Ready" and reason == "NodeStatusUnknown":
        return  # said once, by Ready
    bad = status == bad_status(kind) or (kind == "Ready" and status != "True")
    fault, severity = fault_code("condition", kind), None
    if bad and (code := _code(kind, reason, message)):
        fault = code
        severity = severity_of(code)
        if severity is None and code.startswith("xid/") and reason.endswith("Warning"):
            severity = Severity.WARNING
    if kind in PLANNED:
        said, fault = (Kind.PLANNED if bad else Kind.RECOVERED), PLANNED[kind]
    elif kind in FACTS or own:
        said = Kind.INFO
    else:
        said = Kind.FAULT if bad else Kind.INFO if status == "Unknown" else Kind.RECOVERED
    reading.add(
        said,
        fault,
        part=fields.value,
        key=("condition", node, kind),
        subject=node,
        statement=Statement.LEVEL,
        severity=severity,
        entities=entities(pci_in(message)) if said is Kind.FAULT else (),
        starts_at=instant(fields.get("lastTransitionTime")),
        boot_id=boot_id,
        marker="condition" if own else None,
        summary=f"{kind}={status} {reason}: {message}",
        detail={
            **common,
            "condition": kind,
            "status": status,
            "reason": reason or None,
            "heartbeat_at": fields.maybe_text("lastHeartbeatTime"),
        },
    )


def _code(kind: str, reason: str, message: str) -> str | None:
    """What the reason names more exactly than the condition: an Xid, or an EKS agent's own reason."""
    speaks = "NVRM" in message or "xid" in f"{kind} {reason}".lower()
    if code := xid_code(reason) or (xid_code(message) if speaks else None):
        return code
    if kind in EKS_CONDITIONS and reason.startswith(("Nvidia", "DCGM", "FabricManager", "Neuron")):
        return fault_code("eks", reason)
    return None


# --- Events --------------------------------------------------------------------------------------------------


def _event(reading: Reading, fields: Fields) -> None:
    """`v1` and `events.k8s.io/v1`. Only Events about nodes say anything here."""
    about = fields.fields("regarding", {}) if "regarding" in fields else fields.fields("involvedObject", {})
    if about.text("kind", "") != "Node":
        return
    node = node_name(about.text("name"))
    reason = fields.text("reason")
    message = fields.text("note", "") or fields.text("message", "")
    component = (
        fields.fields("source", {}).text("component", "")
        or fields.fields("deprecatedSource", {}).text("component", "")
        or fields.text("reportingComponent", "")
        or fields.text("reportingController", "")
    )
    series = fields.fields("series", {})
    first = (
        instant(fields.get("firstTimestamp"))
        or instant(fields.get("deprecatedFirstTimestamp"))
        or instant(fields.get("eventTime"))
    )
    last = (
        instant(fields.get("lastTimestamp"))
        or instant(fields.get("deprecatedLastTimestamp"))
        or instant(series.get("lastObservedTime"))
    )
    warning = fields.text("type", "Normal") == "Warning"
    speaks = "NVRM" in message or "nvidia" in reason.lower() or "xid" in reason.lower()
    code = xid_code(reason) or (xid_code(message) if speaks else None)
    if reason in LIFECYCLE_REASONS:
        kind, fault = Kind.LIFECYCLE, fault_code("event", reason)
    elif not warning:
        kind, fault = Kind.INFO, fault_code("event", reason)
    else:
        fault = code or fault_code("eks" if _is_eks(component, reason) else "event", reason)
        kind = Kind.FAULT
    severity = severity_word(fields.get("type"))
    if code and kind is Kind.FAULT and not reason.endswith("Warning"):
        severity = severity_of(code) or severity
    boot = re.search(r"boot id: ([0-9a-f-]{36})", message) if reason == "Rebooted" else None
    count = fields.integer("count", 0) or series.integer("count", 0) or fields.integer("deprecatedCount", 1)
    uid = fields.fields("metadata", {}).maybe_text("uid")
    reading.add(
        kind,
        fault,
        part=fields.value,
        key=("event", node, reason, *entities(pci_in(message))),
        id=f"k8s-event-{uid}-{count}" if uid else None,
        subject=node,
        severity=severity,
        entities=entities(pci_in(message)) if kind is Kind.FAULT else (),
        starts_at=last if first and last and last - first > LONG_SERIES else first or last,
        boot_id=boot[1] if boot else None,
        marker="event" if OWN.search(component) else None,
        summary=f"{reason}: {message}",
        detail={"reason": reason, "component": component or None, "count": count, "last_at": last},
    )


def _is_eks(component: str, reason: str) -> bool:
    return "eks-node-monitoring" in component or reason.startswith(("DCGMHealthCode", "DCGMFieldError", "Neuron"))
