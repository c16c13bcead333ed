"""What a cluster says of its nodes' health: their conditions, and Events about them, as the API server shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from activities.kubernetes.client import Client, Object
from activities.kubernetes.nodes import metadata
from activities.kubernetes.watching import NODES, ListWatch, Why
from activities.ports import Told

EVENTS = "/api/v1/events"
"""Those written to `events.k8s.io` are the same objects."""
ABOUT_NODES = {"fieldSelector": "involvedObject.kind=Node"}
"""The Events of pods, many times as many, never leave the API server."""


class Telling(ListWatch[Object]):
    def __init__(
        self, client: Client, kind: Literal["Node", "Event"], hear: Callable[[Told], None], relist_s: float
    ) -> None:
        path, query = (NODES, {}) if kind == "Node" else (EVENTS, ABOUT_NODES)
        super().__init__(client, path, query, relist_s)
        self._kind = kind
        self._hear = hear

    def keep(self, thing: Object) -> Object:
        return _node(thing) if self._kind == "Node" else _event(thing)

    def listed(self, things: list[Object], why: Why, began: float) -> None:
        self._hear(Told(self._kind, why, tuple(things)))

    def changed(self, thing: Object, gone: bool) -> None:
        self._hear(Told(self._kind, "gone" if gone else "changed", (thing,)))

    def alive(self) -> None:
        self._hear(Told(self._kind, "alive"))


class Tellings:
    def __init__(self, client: Client, hear: Callable[[Told], None], relist_s: float, events: bool) -> None:
        self._all = [Telling(client, "Node", hear, relist_s)]
        if events:
            self._all.append(Telling(client, "Event", hear, relist_s))
        for one in self._all:
            one.start()

    def close(self) -> None:
        for one in self._all:
            one.close()


def _node(thing: Object) -> Object:
    """What a statement about its health is made of; the rest is large, or changes all the time."""
    meta, status = metadata(thing), thing.get("status") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {key: meta[key] for key in ("name", "uid", "creationTimestamp") if key in meta},
        "spec": {key: value for key, value in (thing.get("spec") or {}).items() if key == "providerID"},
        "status": {
            "conditions": list(status.get("conditions") or ()),
            "nodeInfo": {"bootID": (status.get("nodeInfo") or {}).get("bootID", "")},
        },
    }


def _event(thing: Object) -> Object:
    meta = {key: value for key, value in metadata(thing).items() if key != "managedFields"}
    return {**thing, "apiVersion": "v1", "kind": "Event", "metadata": meta}
