"""Kubernetes nodes as the API server shows them: `kubectl get nodes -o json`, watch frames, Events about nodes."""

from __future__ import annotations

from medevac.events.kubernetes import read_objects
from medevac.events.parsing import Parsed, Payload
from medevac.events.reading import looks_like_json, peek_json

SOURCE = "k8s_node"


def parse(payload: Payload) -> Parsed:
    return read_objects(SOURCE, payload)


def recognises(payload: Payload) -> bool:
    if not looks_like_json(payload) or b'"kind"' not in payload.body:
        return False
    document = peek_json(payload)
    if document is None:  # a watch writes one object a line
        document = peek_json(Payload(payload.body.lstrip().split(b"\n", 1)[0]))
    if not isinstance(document, dict):
        return False
    inner = document.get("object") if "object" in document else document
    if not isinstance(inner, dict):
        return False
    return inner.get("kind") in ("Node", "NodeList", "EventList") or (
        inner.get("kind") in ("Event", "List") and "apiVersion" in inner
    )
