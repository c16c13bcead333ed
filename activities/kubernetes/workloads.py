"""The work on a node: which pods die together, how much they hold, and what they say about their checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from activities.kubernetes import pods
from activities.kubernetes.client import Client, Object
from activities.kubernetes.names import CHECKPOINTED_AT, OWNER, READY_TO_EVICT
from activities.kubernetes.nodes import labels, notes
from activities.kubernetes.options import Options
from activities.kubernetes.owners import GROUP_INDEX, POD_GROUP, Owners, Root
from medevac.fleet.node import Workload

MEMBERS = (
    ("leaderworkerset.sigs.k8s.io/name", GROUP_INDEX),
    ("jobset.sigs.k8s.io/jobset-name",),
    ("training.kubeflow.org/job-name",),
    ("ray.io/cluster",),
    ("volcano.sh/job-name",),
    (POD_GROUP,),
    ("batch.kubernetes.io/controller-uid",),
)
"""Labels that all pods of one gang carry, the widest first. A group of a LeaderWorkerSet is a gang of its own."""
ALONE = frozenset(("Deployment", "ReplicaSet", "StatefulSet", "Pod", "RayService"))
"""Their pods don't wait for each other."""


def on_node(client: Client, owners: Owners, node: str, options: Options) -> list[Workload]:
    """By name. Raises `Unreadable`."""
    here: dict[str, tuple[Root, list[Object]]] = {}
    for pod in pods.on_node(client, node):
        if pods.read(pod, "", {}, options).tier == "workload":
            root = owners.root(pod)
            here.setdefault(root.title, (root, []))[1].append(pod)
    return [_read(client, *here[title], options) for title in sorted(here)]


def _read(client: Client, root: Root, here: list[Object], options: Options) -> Workload:
    selector = _gang(root, here[0])
    members = here
    if selector:
        path = f"/api/v1/namespaces/{root.namespace}/pods"
        members = [pod for pod in client.list(path, {"labelSelector": selector}) if _runs(pod)]
    places = {(pod.get("spec") or {}).get("nodeName") for pod in members} - {None}
    said = notes(root.thing or {})
    return Workload(
        name=root.title,
        kind=root.kind,
        owner=said.get(OWNER, root.namespace),
        gpus=sum(_gpus(pod, options) for pod in members),
        gang=f"{root.namespace}/{selector}" if selector else None,
        nodes=max(1, len(places)),
        last_checkpoint=_checkpoint(root, members, together=bool(selector)),
        ready_to_evict=said.get(READY_TO_EVICT) == "true"
        or (bool(members) and all(notes(pod).get(READY_TO_EVICT) == "true" for pod in members)),
    )


def _gang(root: Root, pod: Object) -> str:
    """Label selector of all pods that die with this one; empty for those that stand alone."""
    spec = (root.thing or {}).get("spec") or {}
    if root.kind in ALONE:
        return ""
    if root.kind == "Job" and (spec.get("completionMode") != "Indexed" or int(spec.get("parallelism") or 1) < 2):
        return ""
    tags = labels(pod)
    for names in MEMBERS:
        if all(name in tags for name in names):
            return ",".join(f"{name}={tags[name]}" for name in names)
    return ""


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in pods.FINISHED


def _gpus(pod: Object, options: Options) -> int:
    return sum(
        int(amount)
        for container in (pod.get("spec") or {}).get("containers") or ()
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items()
        if name in options.gpu_resources and str(amount).isdigit()
    )


def _checkpoint(root: Root, members: Iterable[Object], *, together: bool) -> datetime | None:
    """Of a gang the newest that anyone reports: it is one checkpoint. Of others the oldest, if all say."""
    whole = _time(root.thing or {})
    each = [_time(pod) for pod in members]
    if together:
        return max(_known([whole, *each]), default=None)
    own = min(_known(each), default=None) if all(each) else None
    return max(_known([whole, own]), default=None)


def _known(times: Iterable[datetime | None]) -> Iterator[datetime]:
    return (time for time in times if time is not None)


def _time(thing: Object) -> datetime | None:
    """A time without a zone, or in the future, proves nothing."""
    try:
        at = datetime.fromisoformat(notes(thing).get(CHECKPOINTED_AT, ""))
    except ValueError:
        return None
    return at if at.tzinfo is not None and at <= datetime.now(UTC) else None
