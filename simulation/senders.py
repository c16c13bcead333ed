"""What real senders would deliver about a node of the simulated fleet: payloads in their own formats."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pydantic import JsonValue

from medevac.fleet.node import Node

JSON = {"Content-Type": "application/json"}

TEXTS = {
    13: "Graphics Exception: ESR 0x504730=0x1a000e",
    31: "Ch 00000012, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Failed to persist the new row",
    74: "NVLink: fatal error detected on link 3",
    79: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    119: "Timeout after 6s of waiting for RPC response from GPU GSP! Expected function 76 (GSP_RM_CONTROL)",
    120: "GSP task exception: instruction page fault",
}
"""The driver's words after an Xid, as far as the simulation uses them."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One POST to the gateway."""

    source: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/v1/events/{self.source}"


class XidSender(Protocol):
    def __call__(self, node: Node, xid: int, at: datetime, *, gpu: int = 4) -> Delivery: ...


def pci(gpu: int) -> str:
    """Bus address of the n-th GPU of our nodes, without function."""
    return f"0000:{(0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)[gpu % 8]:02x}:00"


def gpu_uuid(node: Node, gpu: int) -> str:
    h = hashlib.sha256(f"{node.machine.id}/{gpu}".encode()).hexdigest()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:32]}"


def alertmanager_xid(
    node: Node, xid: int, at: datetime, *, gpu: int = 4, resolved_at: datetime | None = None
) -> Delivery:
    """Webhook v4 with the alert that a DCGM exporter's last-Xid gauge fires; resolved when `resolved_at` is given."""
    labels = {
        "alertname": "GPUXidError",
        "severity": "critical",
        "err_code": str(xid),
        "err_msg": TEXTS.get(xid, ""),
        "gpu": str(gpu),
        "UUID": gpu_uuid(node, gpu),
        "device": f"nvidia{gpu}",
        "pci_bus_id": f"0000{pci(gpu).upper()}.0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": node.name,
        "node": node.name,
        "instance": f"{node.name}:9400",
        "job": "dcgm-exporter",
    }
    return alertmanager([_alert(labels, f"Xid {xid} on GPU {gpu} of {node.name}", at, resolved_at)])


def node_not_ready(node: Node, at: datetime, *, resolved_at: datetime | None = None) -> Delivery:
    """The alert that a reboot makes by itself: an echo of our own step, or a node that went silent."""
    labels = {
        "alertname": "KubeNodeNotReady",
        "severity": "warning",
        "condition": "Ready",
        "status": "true",
        "node": node.name,
        "job": "kube-state-metrics",
        "namespace": "monitoring",
    }
    return alertmanager([_alert(labels, f"{node.name} has not been ready", at, resolved_at)])


def alertmanager(alerts: list[dict[str, JsonValue]]) -> Delivery:
    """A webhook v4 body around alerts of one group."""
    names = {str(alert["labels"]["alertname"]) for alert in alerts if isinstance(alert["labels"], dict)}
    group: dict[str, JsonValue] = {"alertname": names.pop()} if len(names) == 1 else {}
    body: dict[str, JsonValue] = {
        "version": "4",
        "groupKey": f"{{}}:{json.dumps(group)}",
        "truncatedAlerts": 0,
        "status": "firing" if any(alert["status"] == "firing" for alert in alerts) else "resolved",
        "receiver": "medevac",
        "groupLabels": group,
        "commonLabels": group,
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.sim.example:9093",
        "alerts": list(alerts),
    }
    return Delivery("alertmanager", json.dumps(body).encode(), JSON)


def _alert(labels: dict[str, str], summary: str, at: datetime, resolved_at: datetime | None) -> dict[str, JsonValue]:
    return {
        "status": "resolved" if resolved_at else "firing",
        "labels": {**labels},
        "annotations": {"summary": summary},
        "startsAt": _time(at),
        "endsAt": _time(resolved_at) if resolved_at else "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.sim.example:9090/graph",
        "fingerprint": hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16],
    }


def nvsentinel_xid(node: Node, xid: int, at: datetime, *, gpu: int = 4, healthy: bool = False) -> Delivery:
    """CloudEvent of NVSentinel's syslog monitor: fatal, or the statement that the check is healthy again."""
    event: dict[str, JsonValue] = {
        "version": 1,
        "agent": "syslog-health-monitor",
        "componentClass": "GPU",
        "checkName": "SysLogsXIDError",
        "isFatal": not healthy,
        "isHealthy": healthy,
        "message": "No Health Failures" if healthy else _xid(xid, gpu),
        "recommendedAction": "NONE" if healthy else "RESTART_VM",
        "errorCode": [] if healthy else [str(xid)],
        "entitiesImpacted": [
            {"entityType": "PCI", "entityValue": pci(gpu)},
            {"entityType": "GPU_UUID", "entityValue": gpu_uuid(node, gpu)},
        ],
        "generatedTimestamp": _time(at),
        "nodeName": node.name,
        "processingStrategy": "EXECUTE_REMEDIATION",
    }
    body = {
        "specversion": "1.0",
        "type": "com.nvidia.nvsentinel.health.v1",
        "source": f"nvsentinel://{node.cluster}/healthevents",
        "id": hashlib.sha256(json.dumps(event).encode()).hexdigest()[:32],
        "time": _time(at),
        "data": {"metadata": {"cluster": node.cluster, "environment": "simulation"}, "healthEvent": event},
    }
    return Delivery("cloudevents", json.dumps(body).encode(), {"Content-Type": "application/cloudevents+json"})


def kmsg_xid(node: Node, xid: int, at: datetime, *, gpu: int = 4, uptime_s: float = 93_211.512004) -> Delivery:
    """A kernel log line as a syslog shipper sends it, with the host's name in front."""
    line = f"{at:%b} {at.day:2d} {at:%H:%M:%S} {node.name} kernel: [{uptime_s:.6f}] {_xid(xid, gpu)}\n"
    return Delivery("kmsg", line.encode(), {"Content-Type": "text/plain"})


def measurement(
    node: Node, name: str, value: float, at: datetime, *, unit: str = "C", window_s: float = 60.0, gpu: int = 4
) -> Delivery:
    """A number for the policy's thresholds, e.g. `gpu_temp` 78.1 C."""
    body = {
        "kind": "measurement",
        "id": hashlib.sha256(f"{node.name}/{gpu}/{name}/{at.isoformat()}".encode()).hexdigest()[:32],
        "node": node.name,
        "cluster": node.cluster,
        "entities": [f"gpu:{gpu}"],
        "time": _time(at),
        "measurement": {"name": name, "value": value, "unit": unit, "window_s": window_s},
    }
    return Delivery("generic", json.dumps(body).encode(), JSON)


def _xid(xid: int, gpu: int) -> str:
    text = f", {TEXTS[xid]}" if xid in TEXTS else ""
    return f"NVRM: Xid (PCI:{pci(gpu)}): {xid}, pid='<unknown>', name=<unknown>{text}"


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
