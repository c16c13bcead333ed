"""A gang started anew: stopped as a whole by its own switch, and started again once the last of its pods has ended.

Between the two it would hang for ever if nobody came back. So its node names it before it is stopped, and whoever goes
on with the node's incident finds it there: the next attempt, and the lifting of the mark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from activities.kubernetes import gangs, nodes, pods
from activities.kubernetes.client import MERGE, Client, Forbidden, Object, url
from activities.kubernetes.gangs import Left, Switch
from activities.kubernetes.names import REQUEUED_BY, REQUEUING, STOPPED_BY
from activities.kubernetes.nodes import labels, metadata, notes
from activities.kubernetes.owners import Owners, Root
from activities.last_look import last_look
from activities.ports import NotSent, Requeue, Requeued, Unreadable
from medevac.fleet.node import Workload

log = logging.getLogger(__name__)

STUCK_S = 30.0
"""A pod that is still there so long after its grace won't be waited for: its node is silent, or someone holds it."""
TRIES = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """What the node's annotation says of one gang."""

    title: str
    namespace: str
    selector: str
    """Of all its pods."""
    switch: Switch


def step(client: Client, owners: Owners, workload: Workload, node: str, incident: str) -> Requeued:
    thing = _node(client, node)
    for entry in _entries(thing):
        if entry.title == workload.name:
            return _go_on(client, entry, node, incident)
    found = [(pod, root) for pod in pods.on_node(client, node) if (root := owners.root(pod)).title == workload.name]
    if not found:
        return Requeued(state=Requeue.LEFT, why="none of its pods is on the node any more")
    root = found[0][1]
    switch = _switch(client, root, [pod for pod, _ in found])
    if isinstance(switch, Left):
        return Requeued(state=Requeue.LEFT, why=switch.why)
    entry = Entry(root.title, root.namespace, (workload.gang or "").partition("/")[2], switch)
    _write_down(client, node, incident, add=entry)
    if refused := _throw(client, switch, incident, stop=True):
        _write_down(client, node, incident, remove=entry.title)
        return Requeued(state=Requeue.LEFT, why=refused)
    return Requeued(state=Requeue.ENDING)


def resume(client: Client, node: str, incident: str) -> list[str]:
    thing = client.get(url("api", "v1", "nodes", node))
    if thing is None:
        return _start(client, _orphans(client, incident), incident)
    mark = nodes.marked(thing)
    return resume_all(client, thing, incident) if mark is None or mark.incident == incident else []


def resume_all(client: Client, thing: Object, incident: str) -> list[str]:
    """Of the node as it was read, which is written. What may not be started keeps its label, for people to find."""
    if not (entries := _entries(thing)):
        return []
    failed = _start(client, entries, incident)
    _write_down(client, metadata(thing)["name"], incident, remove="")
    return failed


# -- parts ---------------------------------------------------------------------------------------------------------


def _go_on(client: Client, entry: Entry, node: str, incident: str) -> Requeued:
    if any(_there(pod) for pod in _members(client, entry)):
        # The write may have been lost with its worker; made again it changes nothing.
        if refused := _throw(client, entry.switch, incident, stop=True):
            _write_down(client, node, incident, remove=entry.title)
            return Requeued(state=Requeue.LEFT, why=refused)
        return Requeued(state=Requeue.ENDING)
    if refused := _throw(client, entry.switch, incident, stop=False):
        raise NotSent(f"{entry.title} is stopped and can't be started again: {refused}")
    _write_down(client, node, incident, remove=entry.title)
    return Requeued(state=Requeue.DONE, why="started anew")


def _start(client: Client, entries: list[Entry], incident: str) -> list[str]:
    """All are tried; what may yet succeed is raised at the end."""
    failed, again = list[str](), list[str]()
    for entry in entries:
        said = f"{entry.title} is stopped and must be started again ({entry.switch.field})"
        try:
            if refused := _throw(client, entry.switch, incident, stop=False):
                failed.append(f"{said}: {refused}")
        except (NotSent, Unreadable) as error:
            again.append(f"{said}: {error}")
    if again:
        raise NotSent("; ".join(again + failed), retry_after_s=1.0)
    return failed


def _switch(client: Client, root: Root, here: list[Object]) -> Switch | Left:
    found = gangs.comes_back(root, here)
    if isinstance(found, Left) or root.thing is None or not gangs.queued(root.thing):
        return found
    try:
        api = client.get(f"/apis/{gangs.KUEUE}")
        version = ((api or {}).get("preferredVersion") or {}).get("groupVersion")
        if not version:
            return found
        path = f"/apis/{version}/namespaces/{root.namespace}/workloads"
        wanted = {"labelSelector": f"{gangs.JOB_UID}={metadata(root.thing)['uid']}"}
        for workload in client.list(path, wanted):
            return gangs.in_queue({"apiVersion": version, **workload})
    except Forbidden:
        return Left("it is in a queue of Kueue, whose workloads may not be read (deploy/kubernetes/requeue.yaml)")
    return Left("it is in a queue of Kueue, which has no workload for it: its owner must see to it")


def _throw(client: Client, switch: Switch, incident: str, *, stop: bool) -> str:
    """Empty when it stands as wanted; else who or what keeps it from that. Raises `NotSent`, `Unreadable`."""
    path = _path(switch)
    for _ in range(TRIES):
        thing = client.get(path)
        if thing is None:
            return "it is gone" if stop else ""
        by, stopped = labels(thing).get(STOPPED_BY), switch.stopped(thing)
        if stop and notes(thing).get(REQUEUED_BY) == incident:
            return "it was started anew for this incident already"
        if stop and stopped:
            return "" if by == incident else f"it was stopped by {by or 'someone'}, who starts it again"
        if not stop and by != incident:
            return ""  # someone has taken it over
        meta: Object = {"resourceVersion": metadata(thing)["resourceVersion"], "labels": {STOPPED_BY: None}}
        if stop:
            meta["labels"] = {STOPPED_BY: incident}
        else:
            meta["annotations"] = {REQUEUED_BY: incident}
        if stop:
            last_look()
        answer = client.write("PATCH", path, {"metadata": meta, **switch.patch(on=stop)}, MERGE)
        if answer.ok:
            return ""
        if answer.code == 403 and "denied" not in answer.message:
            group = f".{switch.group}" if switch.group else ""
            return f"no right to patch {switch.plural}{group} (deploy/kubernetes/requeue.yaml): its owner must start it"
        if answer.code == 404:
            return "it is gone" if stop else ""
        if answer.code != 409:
            error = answer.error()
            raise error if isinstance(error, NotSent) else NotSent(str(error))
    raise NotSent(f"{path} was written by others {TRIES} times in between", retry_after_s=1.0)


def _members(client: Client, entry: Entry) -> Iterator[Object]:
    path = url("api", "v1", "namespaces", entry.namespace, "pods")
    return client.list(path, {"labelSelector": entry.selector})


def _there(pod: Object) -> bool:
    """Whether its end is still worth waiting for."""
    if (pod.get("status") or {}).get("phase") in pods.FINISHED:
        return False
    ends = pods.ends_by(pod)
    return ends is None or datetime.now(UTC) < ends + timedelta(seconds=STUCK_S)


def _path(switch: Switch) -> str:
    return url("apis", switch.group, switch.version, "namespaces", switch.namespace, switch.plural, switch.name)


def _node(client: Client, name: str) -> Object:
    thing = client.get(url("api", "v1", "nodes", name))
    if thing is None:
        raise NotSent(f"node {name} doesn't exist", final=True)
    return thing


def _entries(thing: Object) -> list[Entry]:
    """What can't be understood isn't ours."""
    try:
        found = json.loads(notes(thing).get(REQUEUING) or "[]")
        return [Entry(one["title"], one["namespace"], one["selector"], Switch(**one["switch"])) for one in found]
    except (ValueError, TypeError, KeyError):
        log.warning("%s of node %s can't be understood", REQUEUING, metadata(thing).get("name"))
        return []


def _write_down(
    client: Client, node: str, incident: str, *, add: Entry | None = None, remove: str | None = None
) -> None:
    """In the node's annotation, while the mark is this incident's. `remove` "" = all."""
    for _ in range(TRIES):
        thing = _node(client, node)
        mark = nodes.marked(thing)
        if add is not None and (mark is None or mark.incident != incident):
            raise NotSent(f"node {node} doesn't carry the mark of {incident}: nothing is stopped for it", final=True)
        kept = [entry for entry in _entries(thing) if remove != "" and entry.title != remove]
        if add is not None:
            kept.append(add)
        text = json.dumps([asdict(entry) for entry in kept]) if kept else None
        if notes(thing).get(REQUEUING) == text:
            return
        patch = {"metadata": {
            "resourceVersion": metadata(thing)["resourceVersion"], "annotations": {REQUEUING: text},
        }}  # fmt: skip
        answer = client.write("PATCH", url("api", "v1", "nodes", node), patch, MERGE)
        if answer.ok or (answer.code == 404 and add is None):
            return
        if answer.code != 409:
            error = answer.error()
            raise error if isinstance(error, NotSent) else NotSent(str(error))
    raise NotSent(f"node {node} was written by others {TRIES} times in between", retry_after_s=1.0)


def _orphans(client: Client, incident: str) -> list[Entry]:
    """By their label, where the node that named them is gone."""
    wanted = {**gangs.SWITCHES, (gangs.KUEUE, "Workload"): ("workloads", gangs.ACTIVE)}
    found = []
    for (group, kind), (plural, field) in wanted.items():
        try:
            version = ((client.get(f"/apis/{group}") or {}).get("preferredVersion") or {}).get("version")
            if not version:
                continue
            listed = list(
                client.list(f"/apis/{group}/{version}/{plural}", {"labelSelector": f"{STOPPED_BY}={incident}"})
            )
        except Forbidden:
            continue
        for thing in listed:
            space, name = metadata(thing)["namespace"], metadata(thing)["name"]
            found.append(Entry(f"{space}/{kind}/{name}", space, "", Switch(group, version, plural, space, name, field)))
    return found
