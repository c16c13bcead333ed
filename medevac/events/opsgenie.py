"""Opsgenie webhooks: an alert's actions. Its alias may talk of something else; its id is what a close shares."""

from __future__ import annotations

from medevac.events.alert_codes import alert_code
from medevac.events.event import Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.paging import gpu_of, machine_in_title, machine_of, marker_of, tags_of
from medevac.events.parsing import Parsed, Payload
from medevac.events.reading import Fields, Reading, entities, epoch, instant, join_key, peek_json, read_json

SOURCE = "opsgenie"

OVER = frozenset(("Close", "Delete"))


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    fields = Fields.of(read_json(payload.body))
    action = fields.text("action")
    alert = fields.fields("alert")
    number = alert.text("alertId")
    details = dict(alert.texts("details"))
    tags = [t for t in alert.list("tags", ()) if isinstance(t, str)][:100]
    tagged = tags_of(",".join(tags))
    title = alert.text("message", "")
    alias = alert.text("alias", "")
    description = alert.text("description", "")
    code = alert_code(title or alias, {**tagged, **details}, [description])
    kind = Kind.FAULT if action == "Create" else Kind.RECOVERED if action in OVER else Kind.INFO
    updated = epoch(alert.get("updatedAt")) or instant(alert.get("updatedAt"))
    reading.add(
        kind,
        code,
        part=fields.value,
        key=("alert", number),
        id=join_key("alert", number, action, alert.scalar("updatedAt")),
        subject=(subject := machine_of(details) or machine_of(tagged, alert.get("entity")) or machine_in_title(title)),
        actionable=kind is not Kind.INFO and subject is not None,
        statement=Statement.LEVEL,
        severity=severity_of(code),
        entities=entities(gpu_of({**tagged, **details})),
        starts_at=epoch(alert.get("createdAt")) or instant(alert.get("createdAt")),
        ends_at=updated if kind is Kind.RECOVERED else None,
        marker=marker_of(alias, title),
        summary=title,
        detail={
            "action": action,
            "alias": alias or None,
            "priority": alert.maybe_text("priority"),
            "origin": alert.maybe_text("source"),
            "description": description or None,
        },
    )
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    document = peek_json(payload)
    if not isinstance(document, dict):
        return False
    alert = document.get("alert")
    return isinstance(alert, dict) and "alertId" in alert and "action" in document
