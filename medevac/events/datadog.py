"""Datadog monitor webhooks, with the body template of `deploy/senders/datadog/` or one with the same variables.

Every value is text. A variable that Datadog didn't replace is refused: no node is called `$HOSTNAME`.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

from medevac.events.alert_codes import alert_code
from medevac.events.event import EvidenceRef, Kind, Statement
from medevac.events.freetext import gpu_in, severity_of
from medevac.events.paging import gpu_of, machine_of, marker_of, tags_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    epoch,
    fault_code,
    gpu_uuid,
    instant,
    join_key,
    one_line,
    pci,
    peek_json,
    quote,
    read_json,
)

SOURCE = "datadog"

_VARIABLE = re.compile(r"\$[A-Z][A-Z0-9_]{1,40}(?:\[[^\]]{0,80}\])?")
_PREFIX = re.compile(r"(?:\s*+\[[^\]]{0,200}+\])++\s*+")
FIRING = frozenset(("triggered", "re-triggered", "renotify", "warn", "re-warn", "alert", "re-notified"))
OVER = frozenset(("recovered", "resolved", "ok"))
BLIND = frozenset(("no data", "re-no data"))
_DEFAULT = re.compile(r"(?:\[P[1-5]\] )?\[(?P<transition>[A-Za-z -]{2,20}?)(?: on \{(?P<scope>[^}]{0,400})\})?\] ")
"""Datadog's own body has no field for the transition nor the scope: its title begins with both."""
NEEDED = ("alert_transition", "monitor_id", "scopes", "tags", "title")


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    fields = Fields({k: _flat(v) for k, v in Fields.of(read_json(payload.body)).value.items()})
    for key in NEEDED:
        value = fields.get(key)
        if isinstance(value, str) and _VARIABLE.search(value[:4_000]):
            raise ParseError(f"template variables were not rendered ({key} is {quote(value)}); mend the webhook")
    title = fields.text("title", "")
    told = _DEFAULT.match(title) if "alert_transition" not in fields and "event_type" in fields else None
    transition = told["transition"] if told else fields.text("alert_transition")
    word = transition.strip().lower()
    name = title[m.end() :] if (m := _PREFIX.match(title)) else title
    name = one_line(name.strip(), 160) or one_line(title, 160) or "unnamed"
    scopes, tags = (told["scope"] or "") if told else fields.text("scopes", ""), fields.text("tags", "")
    scoped = tags_of(scopes)
    named = {**tags_of(tags), **scoped}
    body = fields.text("body", "").replace("%%%", " ")
    code = alert_code(name, named, [body])
    if word in BLIND:
        kind, code = Kind.INFO, fault_code("alert", name)
    elif word in FIRING:
        kind = Kind.FAULT
    elif word in OVER:
        kind = Kind.RECOVERED
    else:
        raise ParseError(f"field alert_transition is {quote(transition)}, which is no transition of a monitor")
    monitor = fields.scalar("monitor_id")
    began = epoch(fields.get("date")) or instant(fields.get("date"))
    updated = epoch(fields.get("last_updated"))
    subject = machine_of(scoped) or machine_of({}, fields.get("host")) or machine_of(named)
    url = fields.text("url", "")
    reading.add(
        kind,
        code,
        part=fields.value,
        key=("monitor", monitor or name, ",".join(sorted(s.strip() for s in scopes.split(","))) or subject),
        id=join_key("event", fields.scalar("id"), word) if fields.scalar("id") else None,
        subject=subject,
        actionable=kind is not Kind.INFO and subject is not None,
        statement=Statement.LEVEL,
        severity=severity_of(code),
        entities=entities(
            gpu_of(named) or (gpu_in(body) if kind is Kind.FAULT and subject else None),
            gpu_uuid(named.get("uuid") or named.get("gpu_uuid")),
            pci(named.get("pci_bus_id")),
        ),
        starts_at=began if kind is not Kind.RECOVERED else None,
        ends_at=(began or updated) if kind is Kind.RECOVERED else None,
        marker=marker_of(title),
        summary=title,
        evidence=(EvidenceRef(title="Datadog event", url=url[:1_000]),) if url.startswith("https://") else (),
        detail={
            "monitor_id": monitor,
            "transition": transition,
            "scopes": scopes or None,
            "priority": fields.maybe_text("severity"),
            "query": fields.maybe_text("alert_query"),
        },
    )
    return reading.parsed()


def _flat(value: JsonValue) -> JsonValue:
    """A list of tags, which one's own template may make of them, as Datadog itself writes it."""
    listed = isinstance(value, list) and all(isinstance(v, str) for v in value)
    return ",".join(map(str, value)) if listed and isinstance(value, list) else value


def recognises(payload: Payload) -> bool:
    document = peek_json(payload)
    if not isinstance(document, dict):
        return False
    title, monitor = document.get("title"), str(document.get("event_type")).endswith("_monitor")
    return {"alert_transition", "monitor_id"} <= document.keys() or (
        monitor and isinstance(title, str) and _DEFAULT.match(title) is not None
    )
