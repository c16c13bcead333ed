"""Grafana Alerting webhooks, version 1: Alertmanager's shape with `orgId`, `state` and values.

Alerts named Datasource… are Grafana's own: a query gave nothing or failed, the monitor is blind, no machine failed.
The title's count and the message's words are not trusted; each alert has its own status.
"""

from __future__ import annotations

from medevac.events import alertmanager
from medevac.events.event import Kind
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import Fields, Reading, peek_json, quote, read_json

SOURCE = "grafana"
VERSION = "1"
BLIND = frozenset(("DatasourceNoData", "DatasourceError"))


def parse(payload: Payload) -> Parsed:
    body = Fields.of(read_json(payload.body))
    version = body.scalar("version")
    if version not in (None, VERSION):
        raise ParseError(f"unsupported webhook payload version {quote(version)}, expected {quote(VERSION)}")
    reading = Reading(SOURCE)
    alerts = reading.first(body.parts("alerts"))
    common, notes = body.texts("commonLabels"), body.texts("commonAnnotations")
    for i, alert in enumerate(alerts, 1):
        with reading.part(f"alert {i}"):
            fields = Fields.of(alert, f"alert {i}")
            alertmanager.read_alert(reading, fields, common, notes)
            event = reading.events[-1]
            labels = fields.texts("labels")
            more = {"values": fields.get("values"), "folder": labels.get("grafana_folder"), "org": body.get("orgId")}
            if labels.get("alertname") in BLIND:
                more["rule"] = labels.get("rulename")
                event = event.model_copy(update={"kind": Kind.INFO, "actionable": False})
            kept = {k: v for k, v in more.items() if v is not None}
            reading.events[-1] = event.model_copy(update={"detail": {**event.detail, **kept}})
    reading.truncated = max(0, body.integer("truncatedAlerts", 0))
    if reading.left:
        alertmanager.held_back_by(reading, 0, body, payload)
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if "x-grafana-alerting-signature" in payload.headers:
        return True
    document = peek_json(payload)
    return isinstance(document, dict) and "alerts" in document and "orgId" in document
