"""Takes the GPU operator's pods off one node for a while, by the labels that let them run there, and puts them back.

What was there before stands in an annotation of the node, so that anyone can put it back at any time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from activities.kubernetes.client import MERGE, Client, Object, url
from activities.kubernetes.nodes import labels, metadata, notes
from activities.ports import NotSent, Unreadable
from medevac.fleet.node import Node

PAUSED = "medevac.dev/paused"
"""Annotation of a node: the labels that were changed, with what they were."""
VALUE = "paused-for-medevac"


def pause(client: Client, node: Node, names: Iterable[str]) -> bool:
    """True when something was. Only what runs (`true`) is stopped. Raises `NotSent` or `Unclear`."""
    thing = _read(client, node.name)
    if thing is None or metadata(thing).get("uid") != node.uid:
        raise NotSent(f"node {node.name} is another one now", final=True)
    running = {name: "true" for name in names if labels(thing).get(name) == "true"}
    if not running:
        return False
    kept = {**running, **_kept(thing)}
    _patch(client, thing, dict.fromkeys(running, VALUE), json.dumps(kept, sort_keys=True))
    return True


def resume(client: Client, node: str) -> bool:
    """True when something was paused. A label that somebody has set since stays as it is."""
    thing = _read(client, node)
    if thing is None or PAUSED not in notes(thing):
        return False
    back: dict[str, str] = {name: was for name, was in _kept(thing).items() if labels(thing).get(name) == VALUE}
    _patch(client, thing, back, None)
    return True


def _read(client: Client, node: str) -> Object | None:
    try:
        return client.get(url("api", "v1", "nodes", node))
    except Unreadable as error:
        raise NotSent(str(error)) from None


def _kept(thing: Object) -> dict[str, str]:
    try:
        found = json.loads(notes(thing).get(PAUSED, "{}"))
    except ValueError:
        return {}
    return {str(name): str(was) for name, was in found.items()} if isinstance(found, dict) else {}


def _patch(client: Client, thing: Object, changed: dict[str, str], note: str | None) -> None:
    meta = metadata(thing)
    body: Object = {
        "metadata": {
            "uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "labels": changed,
            "annotations": {PAUSED: note},
        }
    }  # fmt: skip
    answer = client.write("PATCH", url("api", "v1", "nodes", meta["name"]), body, MERGE)
    if not answer.ok:
        raise answer.error()
