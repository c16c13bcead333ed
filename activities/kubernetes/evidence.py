"""What the API server knows of a node, and what a collector pod prints on it. Reads; the pod is the only thing made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from activities.kubernetes import jobs
from activities.kubernetes.client import Client, Object, url
from activities.kubernetes.jobs import Task
from activities.kubernetes.nodes import controller, metadata
from activities.kubernetes.options import CollectorOptions
from activities.ports import NotSent, Unclear, Unreadable
from medevac.fleet.node import Node

POLL_S = 0.5
MOST_EVENTS = 500


def pieces(
    client: Client, collector: CollectorOptions | None, node: Node, incident: str
) -> Iterator[tuple[str, bytes]]:
    """Each by itself: what can't be had is told at the end. While the collector runs, nameless pieces come."""
    lacks: list[str] = []
    task = _task(collector, node, incident) if collector else None
    if collector and task:
        try:
            jobs.create(client, collector, task)  # first, so that it runs while the rest is read
        except (NotSent, Unclear) as error:
            lacks.append(f"collector: {error}")
            task = None
    readers: tuple[tuple[str, Callable[[Client, str], Any]], ...] = (
        ("node.json", _node), ("events.json", _events), ("pods.json", _pods)
    )  # fmt: skip
    for name, read in readers:
        try:
            yield name, json.dumps(read(client, node.name), indent=1).encode()
        except Unreadable as error:
            lacks.append(f"{name}: {error}")
    if collector and task:
        try:
            yield from _collected(client, collector, task)
        except Unreadable as error:
            lacks.append(f"collector: {error}")
    if lacks:
        raise Unreadable("; ".join(lacks))


def _node(client: Client, name: str) -> Object | None:
    """All that stands on it, its conditions among it."""
    thing = client.get(url("api", "v1", "nodes", name))
    if thing is not None:
        metadata(thing).pop("managedFields", None)
        (thing.get("status") or {}).pop("images", None)
    return thing


def _events(client: Client, name: str) -> list[Object]:
    """Newest first. The API server forgets them after an hour."""
    chosen = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={name}"}
    found = list(client.list("/api/v1/events", chosen))
    for event in found:
        metadata(event).pop("managedFields", None)
    when = lambda event: event.get("lastTimestamp") or event.get("eventTime") or ""  # noqa: E731
    return sorted(found, key=when, reverse=True)[:MOST_EVENTS]


def _pods(client: Client, name: str) -> list[Object]:
    """Which, whose and how they are; not what they run with, which may hold secrets."""
    return [
        {
            "namespace": metadata(pod)["namespace"], "name": metadata(pod)["name"], "uid": metadata(pod)["uid"],
            "owner": (controller(pod) or {}).get("name"), "kind": (controller(pod) or {}).get("kind"),
            "phase": (pod.get("status") or {}).get("phase"), "reason": (pod.get("status") or {}).get("reason"),
            "started": (pod.get("status") or {}).get("startTime"),
            "containers": [
                {key: one.get(key) for key in ("name", "restartCount", "state", "lastState")}
                for one in (pod.get("status") or {}).get("containerStatuses") or ()
            ],
        }
        for pod in client.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})
    ]  # fmt: skip


def _task(collector: CollectorOptions, node: Node, incident: str) -> Task:
    return Task(
        kind="collect", key=f"{incident}/evidence/{node.name}", node=node.name, command=collector.command,
        env={"MEDEVAC_INCIDENT": incident, "NVIDIA_VISIBLE_DEVICES": "all"},
        capabilities=("SYSLOG",), privileged=collector.privileged,
    )  # fmt: skip


def _collected(client: Client, collector: CollectorOptions, task: Task) -> Iterator[tuple[str, bytes]]:
    until = time.monotonic() + collector.start_s + collector.run_s
    while True:
        reading = jobs.read(client, collector, task)
        if reading.state == "over" or time.monotonic() >= until:
            break
        yield "", b""
        time.sleep(POLL_S)
    if not reading.pod or not reading.started:
        raise Unreadable(f"it never started: {reading.why or 'nobody says why'}")
    yield "collector.txt", jobs.output(client, collector, reading.pod, collector.bytes)
    if reading.code != 0:
        raise Unreadable(f"it ended with {reading.code}: {reading.why}")
