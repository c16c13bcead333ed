"""Kubernetes objects as health statements: node conditions with their polarity, Events about nodes, watch frames.

Shared by the senders that speak through them (`k8s_node`, `npd`, `eks_nma`); it is no sender itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from medevac.events.envelopes import json_documents
from medevac.events.event import Kind, Severity, Statement
from medevac.events.freetext import MAX_TEXT, pci_in, severity_of, xid_codes
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    MAX_SUMMARY,
    Fields,
    Reading,
    entities,
    fault_code,
    instant,
    keyed,
    node_name,
    severity_word,
)
from medevac.faults.catalogue import lookup

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
_DCGM = re.compile(r"\bDCGM ?(health|field) ?(?:code|error) ?#?([0-9]{1,5})\b", re.IGNORECASE)
_DCGM_WORDS = {"health": "HealthCode", "field": "FieldError"}
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
    for where, document in json_documents(payload.body, reading):
        with reading.part(where):
            if isinstance(document, ParseError):
                raise document
            for place, item in _objects(reading, document, where):
                with reading.part(place):
                    _read(reading, Fields.of(item, place if place != "body" else ""), item)
    if reading.refused and not reading.events and len(reading.refused) == 1:
        raise ParseError(str(reading.refused[0]) if reading.refused[0].where != "body" else reading.refused[0].reason)
    return reading.parsed()


def _objects(reading: Reading, document: JsonValue, where: str) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        for i, item in enumerate(reading.first(Fields.of(document).parts("items")), 1):
            yield f"item {i}", _typed(item, document)
    elif isinstance(document, list):
        for i, item in enumerate(reading.first(document), 1):
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
    eks = kind in EKS_CONDITIONS
    speaks = eks or "NVRM" in message or "xid" in f"{kind} {reason}".lower()
    named = _codes(reason, message, speaks, eks) if bad else ()
    faults = named or (fault_code("condition", kind),)
    if kind in PLANNED:
        said, faults = (Kind.PLANNED if bad else Kind.RECOVERED), (PLANNED[kind],)
    elif kind in FACTS or own:
        said = Kind.INFO
    else:
        said = Kind.FAULT if bad else Kind.INFO if status == "Unknown" else Kind.RECOVERED
    for fault, key, series in keyed(faults, "condition", node, kind):
        severity = severity_of(fault) if fault in named else None
        if severity is None and fault.startswith("xid/") and reason.endswith("Warning"):
            severity = Severity.WARNING
        _add_condition(reading, fields, said, fault, node, boot_id, common, severity=severity, own=own,
                       key=key, series=series)  # fmt: skip


def _add_condition(
    reading: Reading, fields: Fields, said: Kind, fault: str, node: str, boot_id: str | None, common: dict[str, Any],
    *, severity: Severity | None, own: bool, key: str, series: str | None,
) -> None:  # fmt: skip
    kind, status = fields.text("type"), fields.text("status")
    reason, message = fields.text("reason", ""), fields.text("message", "")
    summary = f"{kind}={status} {reason}: {message}"
    reading.add(
        said,
        fault,
        part=fields.value,
        key=key,
        series=series,
        subject=node,
        statement=Statement.LEVEL,
        severity=severity,
        entities=entities(pci_in(message)) if said is Kind.FAULT else (),
        starts_at=instant(fields.get("lastTransitionTime")),
        boot_id=boot_id,
        marker="condition" if own else None,
        summary=summary,
        detail={
            **common,
            "condition": kind,
            "status": status,
            "reason": reason or None,
            "heartbeat_at": fields.maybe_text("lastHeartbeatTime"),
            # An agent appends what comes later: two messages may differ beyond what a summary holds.
            "whole": _digest(summary) if len(summary) > MAX_SUMMARY else None,
        },
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _codes(reason: str, message: str, speaks: bool, of_eks: bool) -> tuple[str, ...]:
    """What reason and message (where it `speaks` of codes) name more exactly than a condition's type: Xids, and an EKS
    agent's own reasons.

    A condition has one reason, of whichever fault raised or changed it last; its message lists the others, too. The
    gravest stands last."""
    found = dict.fromkeys((*xid_codes(reason), *(xid_codes(message, checked=True) if speaks else ())))
    if of_eks:
        agents = reason.startswith(("Nvidia", "DCGM", "FabricManager", "Neuron")) and not xid_codes(reason)
        told = [f"DCGM{_DCGM_WORDS[m[1].lower()]}{m[2]}" for m in _DCGM.finditer(message[:MAX_TEXT])]
        found |= dict.fromkeys(fault_code("eks", one) for one in ([reason] if agents else []) + told)
    return tuple(sorted(found, key=lambda code: -lookup(code).fault_class.rank))


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
    of_eks = _is_eks(component, reason)
    speaks = "NVRM" in message or any(word in reason.lower() for word in ("nvidia", "xid")) or of_eks
    named = _codes(reason, message, speaks, of_eks)
    faults: tuple[str, ...]
    if reason in LIFECYCLE_REASONS:
        kind, faults = Kind.LIFECYCLE, (fault_code("event", reason),)
    elif not warning:
        kind, faults = Kind.INFO, (fault_code("event", reason),)
    else:
        kind, faults = Kind.FAULT, named or (fault_code("eks" if of_eks else "event", reason),)
    boot = re.search(r"boot id: ([0-9a-f-]{36})", message) if reason == "Rebooted" else None
    count = fields.integer("count", 0) or series.integer("count", 0) or fields.integer("deprecatedCount", 1)
    uid = fields.fields("metadata", {}).maybe_text("uid")
    for fault in faults:
        severity = severity_word(fields.get("type"))
        if fault.startswith("xid/") and kind is Kind.FAULT and not reason.endswith("Warning"):
            severity = severity_of(fault) or severity
        several = (fault,) if len(faults) > 1 else ()
        reading.add(
            kind,
            fault,
            part=fields.value,
            key=("event", node, reason, *entities(pci_in(message)), *several),
            id="-".join(("k8s-event", uid, str(count), *several)) if uid else None,
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
