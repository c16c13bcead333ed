"""What `kubectl describe node` shows of us: a condition and Events of our own types. Courtesy, never proof."""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime

from activities.kubernetes.client import FIELD_MANAGER, STRATEGIC, Client, Object, url
from activities.kubernetes.names import CONDITION
from activities.ports import Mark, NotSent, Unclear

log = logging.getLogger(__name__)
NAMESPACE = "default"
"""Where Kubernetes keeps the Events of nodes."""


def marked(client: Client, node: str, mark: Mark) -> None:
    now = _now()
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": "".join(part.capitalize() for part in mark.code.replace("_", "-").replace(".", "-").split("-")),
        "message": f"{mark.reason or mark.code} ({', '.join(mark.faults)}); incident {mark.incident}"[:1024],
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    _condition(client, node, condition)
    text = f"Marked for {', '.join(mark.faults) or mark.code}: {mark.reason}. Incident {mark.incident}"
    _event(client, node, "MedevacMarked", "Warning", text, f"{mark.incident}/{mark.code}")


def lifted(client: Client, node: str, incident: str) -> None:
    _condition(client, node, {"type": CONDITION, "$patch": "delete"})
    _event(client, node, "MedevacLifted", "Normal", f"Mark lifted. Incident {incident}", incident)


def _condition(client: Client, node: str, condition: Object) -> None:
    _try(client, "PATCH", url("api", "v1", "nodes", node, "status"), {"status": {"conditions": [condition]}}, STRATEGIC)


def _event(client: Client, node: str, reason: str, kind: str, text: str, key: str) -> None:
    """Once for each key: the name is made of it, and a second one of that name is refused."""
    now = _now()
    name = f"{node}.{hashlib.sha256(f'{reason}/{key}'.encode()).hexdigest()[:16]}"
    _try(client, "POST", url("api", "v1", "namespaces", NAMESPACE, "events"), {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": NAMESPACE},
        # `kubectl describe node` looks for the node's name in the place of its UID, as kubelets write it.
        "involvedObject": {"kind": "Node", "apiVersion": "v1", "name": node, "uid": node},
        "reason": reason, "type": kind, "message": text[:1024], "count": 1,
        "source": {"component": FIELD_MANAGER}, "firstTimestamp": now, "lastTimestamp": now,
    })  # fmt: skip


def _try(client: Client, method: str, path: str, body: Object, kind: str = "application/json") -> None:
    try:
        answer = client.write("PATCH" if method == "PATCH" else "POST", path, body, kind)
    except (NotSent, Unclear) as error:
        log.warning("%s: %s", path, error)
        return
    if not answer.ok and answer.code not in (404, 409):
        log.warning("%s: the API server says %s: %s", path, answer.code, answer.message)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
