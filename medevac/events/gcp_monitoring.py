"""Incidents of Cloud Monitoring, as its webhooks and Pub/Sub channels send them (version 1.2).

An incident speaks of an alerting policy; the machine is the one that its resource's or metric's labels name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import JsonValue

from medevac.events.alert_codes import alert_code
from medevac.events.event import EvidenceRef, Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import ParseError
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    epoch,
    gpu,
    gpu_uuid,
    instant,
    is_node_name,
    pci,
    quote,
    severity_word,
)

KINDS = {"open": Kind.FAULT, "closed": Kind.RECOVERED, "acknowledged": Kind.INFO}
_NODE = ("node_name", "node", "instance_name", "name", "Hostname", "hostname", "host", "instance_id")
"""Labels that name the machine, the surest first; `name` stands among the system's own alone."""


def is_incident(document: Mapping[str, JsonValue]) -> bool:
    incident = document.get("incident")
    return isinstance(incident, dict) and "incident_id" in incident and "state" in incident


def read(reading: Reading, body: Fields) -> None:
    incident = body.fields("incident")
    number, state = incident.text("incident_id"), incident.text("state").lower()
    if state not in KINDS:
        raise ParseError(f"field state of the incident is {quote(state)}, expected open, acknowledged or closed")
    test = body.scalar("version") == "test"
    kind = Kind.TEST if test else KINDS[state]
    metric = incident.fields("metric", {}).texts("labels")
    resource = incident.fields("resource", {}).texts("labels")
    known = incident.fields("metadata", {})
    system = {k: v for k, v in _texts(known, "system_labels").items() if k in ("name", "node_name")}
    rule = _texts(incident, "policy_user_labels")
    labels = {**_texts(known, "user_labels"), **rule, **resource, **metric}
    named = {**{k: v for k, v in labels.items() if k != "name"}, **system}
    subject = None if test else next((named[k] for k in _NODE if is_node_name(named.get(k))), None)
    policy = incident.text("policy_name", "") or incident.text("condition_name", "")
    if policy.startswith("projects/"):  # the policy's address, beside its name for people
        policy = incident.text("policy_display_name", "") or incident.text("condition_name", "") or policy
    words = incident.text("summary", "")
    code = alert_code(policy or "unnamed", labels, [incident.text("condition_name", ""), words], rule=rule)
    url = incident.text("url", "")
    reading.add(
        kind,
        code,
        part=incident.value,
        key=("incident", number),
        id=f"incident-{number}-{state}",
        subject=subject,
        actionable=kind in (Kind.FAULT, Kind.RECOVERED) and subject is not None,
        severity=severity_word(incident.get("severity")) or severity_of(code),
        statement=Statement.LEVEL,
        entities=entities(
            gpu(labels.get("gpu") or labels.get("gpu_index")),
            gpu_uuid(labels.get("UUID") or labels.get("uuid")),
            pci(labels.get("pci_bus_id")),
        ),
        starts_at=_time(incident, "started_at"),
        ends_at=_time(incident, "ended_at") if kind is Kind.RECOVERED else None,
        summary=words or policy,
        evidence=(EvidenceRef(title="incident", url=url[:1_000]),) if url.startswith("https://") else (),
        detail={
            "policy": policy,
            "condition": incident.maybe_text("condition_name"),
            "state": state,
            "instance_id": resource.get("instance_id"),
            "zone": resource.get("zone"),
            "project": incident.scalar("scoping_project_id") or resource.get("project_id"),
        },
    )


def _texts(fields: Fields, key: str) -> dict[str, str]:
    return fields.texts(key) if isinstance(fields.get(key), dict) else {}


def _time(incident: Fields, key: str) -> datetime | None:
    return epoch(incident.get(key)) or instant(incident.get(key))
