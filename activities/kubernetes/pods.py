"""Pods of a node as the drain sees them: what must leave, in which turn, and what stands in its way. Mostly pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from activities.kubernetes.client import Client, Object, url
from activities.kubernetes.names import CORDONED, TAINT
from activities.kubernetes.nodes import controller, labels, metadata, notes, selects
from activities.kubernetes.options import Options
from activities.ports import Pod

MIRROR = "kubernetes.io/config.mirror"
"""A static pod's shadow: only the node's own files end it."""
FINISHED = ("Succeeded", "Failed")
UNFINISHED = ",".join(f"status.phase!={phase}" for phase in FINISHED)
PODS = "/api/v1/pods"
PLUGINS = "/var/lib/kubelet/plugins"
"""What serves volumes keeps its socket below it."""


def on_node(client: Client, node: str) -> list[Object]:
    """All that still run or wait on it. The API server does the choosing; finished ones hold nothing."""
    return list(client.list(PODS, {"fieldSelector": f"spec.nodeName={node},{UNFINISHED}"}))


def everywhere(client: Client) -> Iterator[Object]:
    """The same of all nodes, and pods that wait for one; page by page, for they may be very many."""
    return client.list(PODS, {"fieldSelector": UNFINISHED})


def budgets(client: Client) -> dict[str, list[Object]]:
    """Disruption budgets by namespace."""
    found: dict[str, list[Object]] = {}
    for budget in client.list("/apis/policy/v1/poddisruptionbudgets"):
        found.setdefault(metadata(budget)["namespace"], []).append(budget)
    return found


def read(pod: Object, workload: str, guards: Mapping[str, list[Object]], options: Options) -> Pod:
    meta, spec = metadata(pod), pod.get("spec") or {}
    namespace = meta["namespace"]
    guarding = [one for one in guards.get(namespace, ()) if guarded(pod, one)]
    daemon = daemon_like(pod)
    last = namespace in options.last or serves_volumes(pod)
    grace = spec.get("terminationGracePeriodSeconds")
    return Pod(
        uid=meta["uid"],
        namespace=namespace,
        name=meta["name"],
        workload=workload,
        tier="storage" if last else "daemon" if daemon else "workload",
        terminating="deletionTimestamp" in meta,
        tolerates_mark=MIRROR in notes(pod) or (daemon and tolerates_mark(pod)),
        budget=", ".join(sorted(f"{namespace}/{metadata(one)['name']}" for one in guarding)) or None,
        budget_owner=", ".join(sorted({owner for one in guarding if (owner := budget_owner(one))})),
        priority=int(spec.get("priority") or 0),
        grace_s=None if grace is None else float(grace),
        ends_by=ends_by(pod),
    )


def ends_by(pod: Object) -> datetime | None:
    """The API server writes the time of the deletion and the grace together."""
    try:
        return datetime.fromisoformat(metadata(pod)["deletionTimestamp"])
    except (KeyError, ValueError):
        return None


def daemon_like(pod: Object) -> bool:
    """Made for this one node by a controller that would make it again here: a DaemonSet of whatever API group,
    whatever is pinned to the node's name as a DaemonSet's pods are, and the node's static pods.
    """
    owner = controller(pod)
    if MIRROR in notes(pod) or (owner or {}).get("kind") in ("DaemonSet", "Node"):
        return True
    return owner is not None and _pinned(pod) and _tolerates(pod, CORDONED, "")


def _pinned(pod: Object) -> bool:
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return bool(terms) and all(
        any(field.get("key") == "metadata.name" for field in term.get("matchFields") or ()) for term in terms
    )


def tolerates_mark(pod: Object) -> bool:
    """Evicted, it would be put on the marked node again."""
    return _tolerates(pod, TAINT, None) and _tolerates(pod, CORDONED, "")


def _tolerates(pod: Object, key: str, value: str | None) -> bool:
    """Whether the pod tolerates `key` with effect NoSchedule; `value` None = whatever ours says."""
    for one in (pod.get("spec") or {}).get("tolerations") or ():
        if one.get("effect") not in (None, "", "NoSchedule"):
            continue
        if one.get("operator") == "Exists":
            if one.get("key") in (None, "", key):
                return True
        elif one.get("key") == key and value is not None and one.get("value", "") == value:
            return True
    return False


def serves_volumes(pod: Object) -> bool:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if str((volume.get("hostPath") or {}).get("path", "")).startswith(PLUGINS):
            return True
    return False


def guarded(pod: Object, budget: Object) -> bool:
    """As the API server matches them: an empty selector means all pods of the namespace, none at all means no pod."""
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and selects(selector, labels(pod))


def budget_owner(budget: Object) -> str:
    """Who to speak to about it: what made it, else what it is labelled as."""
    owner = controller(budget)
    if owner:
        return f"{owner.get('kind')} {owner.get('name')}"
    tags = labels(budget)
    for name in ("medevac.dev/owner", "app.kubernetes.io/instance", "app.kubernetes.io/name", "app"):
        if said := notes(budget).get(name) or tags.get(name):
            return said
    return ""


def path(pod: Pod, *below: str) -> str:
    return url("api", "v1", "namespaces", pod.namespace, "pods", pod.name, *below)
