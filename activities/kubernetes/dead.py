"""Letting go of what a machine holds that is proved off: its pods and volumes, through the out-of-service taint.

Kubernetes ends the pods of a silent node only on somebody's word that nothing runs there any more. The word is this
taint, and it is taken back when nothing is held: a machine that is switched on again must find its node as it was.
"""

from __future__ import annotations

import logging

from activities.kubernetes import eviction, nodes, pods, volumes
from activities.kubernetes.client import MERGE, Client, Object, url
from activities.kubernetes.names import FREED_BY, OUT_OF_SERVICE
from activities.kubernetes.nodes import conditions, metadata, notes
from activities.kubernetes.options import Options
from activities.last_look import last_look
from activities.ports import NotSent, Pod
from medevac.fleet.node import Node

log = logging.getLogger(__name__)
TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
LISTED = 10


def free(client: Client, node: Node, options: Options, *, gone: bool) -> list[str]:
    path = url("api", "v1", "nodes", node.name)
    thing = client.get(path)
    if thing is not None:
        _same(thing, node, options)
    held = _held(client, node.name, options)
    names = [f"pod {pod.namespace}/{pod.name}" for pod in held]
    names += [f"volume {name}" for name in volumes.attached(client, node.name)] if not held else []
    if thing is None:
        return _few(names)  # its controllers let go by themselves of what had a node
    if names:
        _say(client, path, thing, node)
        for pod in held:
            if not pod.terminating:
                eviction.delete(client, pod, pod.grace_s if pod.grace_s is not None else 30.0)
        return _few(names)
    if gone and _forgotten(client, path, thing):
        return []
    _take_back(client, path, thing)
    return []


def withdrawn(thing: Object) -> tuple[list[Object], Object]:
    """The node's taints without ours, and what to patch of its annotations. Another's out-of-service taint stays."""
    taints = nodes.taints(thing)
    if FREED_BY not in notes(thing):
        return taints, {}
    return [taint for taint in taints if taint.get("key") != OUT_OF_SERVICE], {FREED_BY: None}


def _same(thing: Object, node: Node, options: Options) -> None:
    found = nodes.read(thing, node.cluster, options)
    if (found.uid, found.machine.id) != (node.uid, node.machine.id):
        raise NotSent(
            f"node {node.name} is machine {found.machine.id} now, not {node.machine.id}: nothing of it is let go",
            final=True,
        )
    if conditions(thing).get("Ready", {}).get("status") == "True":
        raise NotSent(f"node {node.name} still answers though its machine is said to be off", retry_after_s=5.0)


def _held(client: Client, name: str, options: Options) -> list[Pod]:
    """What waits for an end there, and work that would be thought to run. Daemons that tolerate all come and go."""
    listed = (pods.read(pod, "", {}, options) for pod in pods.on_node(client, name))
    return [pod for pod in listed if pod.terminating or not pod.tolerates_mark]


def _say(client: Client, path: str, thing: Object, node: Node) -> None:
    if any(taint.get("key") == OUT_OF_SERVICE for taint in nodes.taints(thing)):
        return
    mark = nodes.marked(thing)
    last_look()
    meta = {"annotations": {FREED_BY: mark.incident if mark else "medevac"}}
    _patch(client, path, thing, {"metadata": meta, "spec": {"taints": [*nodes.taints(thing), TAINT]}})


def _take_back(client: Client, path: str, thing: Object) -> None:
    taints, annotations = withdrawn(thing)
    if annotations:
        _patch(client, path, thing, {"metadata": {"annotations": annotations}, "spec": {"taints": taints or None}})


def _forgotten(client: Client, path: str, thing: Object) -> bool:
    """The node of a machine that is gone for good. Without the right its owner, or the cloud, will see to it."""
    last_look()
    wanted = {"uid": metadata(thing)["uid"], "resourceVersion": metadata(thing)["resourceVersion"]}
    answer = client.write("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted})
    if answer.ok or answer.code == 404:
        return True
    if answer.code == 403:
        log.warning("node %s stays: no right to delete nodes (deploy/kubernetes/forget.yaml)", metadata(thing)["name"])
        return False
    raise _not_sent(answer.error())


def _patch(client: Client, path: str, thing: Object, patch: Object) -> None:
    """Others' taints are in the list that it replaces: hence the lock, and who loses the race comes again."""
    patch["metadata"]["resourceVersion"] = metadata(thing)["resourceVersion"]
    answer = client.write("PATCH", path, patch, MERGE)
    if not answer.ok:
        raise _not_sent(answer.error())


def _not_sent(error: Exception) -> NotSent:
    """Each step reads the world first, so it may be made again."""
    return error if isinstance(error, NotSent) else NotSent(str(error), retry_after_s=1.0)


def _few(names: list[str]) -> list[str]:
    return names if len(names) <= LISTED else [*names[:LISTED], f"{len(names) - LISTED} more"]
