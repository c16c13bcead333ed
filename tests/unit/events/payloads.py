"""Payloads in the senders' formats, with the parts that a test is about as arguments."""

from __future__ import annotations

import json
from typing import Any

from medevac.events.normal import normal_form, read
from medevac.events.parsing import Parsed, Payload

UUID = "GPU-0a1b2c3d-1111-2222-3333-444455556666"


def payload(body: Any, **headers: str) -> Payload:
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Payload(raw, {k.replace("_", "-"): v for k, v in headers.items()})


def parsed(source: str, body: Any, **headers: str) -> Parsed:
    return read(source, payload(body, **headers))


def forms(source: str, body: Any, **headers: str) -> list[dict[str, Any]]:
    """The normal forms, without the bookkeeping events that say what couldn't be read."""
    return [normal_form(e) for e in parsed(source, body, **headers).events]


def only(source: str, body: Any, **headers: str) -> dict[str, Any]:
    found = forms(source, body, **headers)
    assert len(found) == 1, found
    return found[0]


def an_alert(status: str = "firing", **more: Any) -> dict[str, Any]:
    labels = {
        "alertname": "NodeGpuXid",
        "severity": "critical",
        "node": "worker-3",
        "Hostname": "dcgm-exporter-abc12",
        "pod": "dcgm-exporter-abc12",
        "gpu": "2",
        "UUID": UUID,
        "pci_bus_id": "00000000:3B:00.0",
        "err_code": "79",
    }
    labels |= more.pop("labels", {})
    return {
        "status": status,
        "labels": {k: v for k, v in labels.items() if v is not None},
        "annotations": {"summary": "GPU trouble"},
        "startsAt": "2026-03-01T08:00:00.5Z",
        "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else "2026-03-01T09:00:00Z",
        "generatorURL": "http://prom.example/graph",
        "fingerprint": "00ff00ff00ff00ff",
        **more,
    }


def webhook(*alerts: Any, **more: Any) -> dict[str, Any]:
    return {
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "medevac",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://am.example",
        "alerts": list(alerts),
        **more,
    }


def cloud_event(data: Any = None, **more: Any) -> dict[str, Any]:
    event = {
        "specversion": "1.0",
        "type": "com.acme.gpu.health",
        "source": "/acme/prod",
        "id": "e-1",
        "time": "2026-03-01T08:00:00Z",
        "datacontenttype": "application/json",
        "data": {"node": "worker-3", "xid": 79} if data is None else data,
    }
    return {k: v for k, v in (event | more).items() if v is not None}


def nvsentinel(**health: Any) -> dict[str, Any]:
    event = {
        "version": 1,
        "agent": "syslog-health-monitor",
        "componentClass": "GPU",
        "checkName": "SysLogsXIDError",
        "isFatal": True,
        "isHealthy": False,
        "message": "it broke",
        "recommendedAction": "RESTART_BM",
        "errorCode": ["79"],
        "entitiesImpacted": [{"entityType": "GPU", "entityValue": "2"}],
        "generatedTimestamp": "2026-03-01T08:00:00.123456789Z",
        "nodeName": "worker-3",
        "processingStrategy": "EXECUTE_REMEDIATION",
    }
    return {
        "specversion": "1.0",
        "type": "com.nvidia.nvsentinel.health.v1",
        "source": "nvsentinel://prod/healthevents",
        "id": "fresh-each-time",
        "time": "2026-03-01T08:00:01Z",
        "data": {"metadata": {"cluster": "prod"}, "healthEvent": event | health},
    }


STRUCTURED = {"content_type": "application/cloudevents+json"}
BATCH = {"content_type": "application/cloudevents-batch+json; charset=utf-8"}
