"""The work on a node: which pods die together, how much they hold, and what they say about their checkpoints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from activities.kubernetes import pods
from activities.kubernetes.client import Client, Object
from activities.kubernetes.names import CHECKPOINTED_AT, OWNER, READY_TO_EVICT
from activities.kubernetes.nodes import labels, metadata, notes
from activities.kubernetes.options import Options
from activities.kubernetes.owners import GROUP_INDEX, POD_GROUP, Owners, Root
from activities.kubernetes.probing import past
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
LONGEST = 40
"""Characters of a time."""
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
    times = _times(root, members, together=bool(selector))
    return Workload(
        name=root.title,
        kind=root.kind,
        owner=_owner(root, members),
        gpus=sum(_gpus(pod, options) for pod in members),
        gang=f"{root.namespace}/{selector}" if selector else None,
        nodes=max(1, len(places)),
        started_at=_started(members),
        last_checkpoint=times.get(CHECKPOINTED_AT),
        times=times,
        hears_notice=any(_hears(pod) for pod in here),
        ready_to_evict=said.get(READY_TO_EVICT) == "true"
        or (bool(members) and all(notes(pod).get(READY_TO_EVICT) == "true" for pod in members)),
    )


def _owner(root: Root, members: list[Object]) -> str:
    """Who is to be told: as the workload says, else its pods (a group has no object of its own), else its namespace."""
    for thing in (root.thing or {}, *sorted(members, key=lambda pod: str(metadata(pod)["name"]))):
        if who := notes(thing).get(OWNER) or labels(thing).get(OWNER):
            return who
    return root.namespace


def _started(members: list[Object]) -> datetime | None:
    """Since when the first of its pods runs; None where none is known to."""
    times = [at for pod in members if (at := _moment((pod.get("status") or {}).get("startTime"))) is not None]
    return min(times, default=None)


def _moment(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


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


def _hears(pod: Object) -> bool:
    """By a volume. An environment variable is as it was when the container began."""
    sources = [
        source
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ()))
    ]
    items = [item for source in sources for item in (source.get("downwardAPI") or {}).get("items") or ()]
    return any(
        str((item.get("fieldRef") or {}).get("fieldPath", "")).startswith("metadata.annotations") for item in items
    )


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in pods.FINISHED


def _gpus(pod: Object, options: Options) -> int:
    return sum(
        int(amount)
        for container in (pod.get("spec") or {}).get("containers") or ()
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items()
        if name in options.gpu_resources and str(amount).isdigit()
    )


def _times(root: Root, members: list[Object], *, together: bool) -> dict[str, datetime]:
    """Of a gang the newest that anyone says: it is one checkpoint. Of others the oldest, if all say. And the workload's
    own word, if it is newer.
    """
    now = datetime.now(UTC)
    whole, each = _said(root.thing or {}, now), [_said(pod, now) for pod in members]
    found = dict[str, datetime]()
    for name in {*whole, *(name for one in each for name in one)}:
        pods_say = [one[name] for one in each if name in one]
        own = (
            max(pods_say, default=None)
            if together
            else min(pods_say)
            if pods_say and len(pods_say) == len(each)
            else None
        )
        if (at := max((t for t in (whole.get(name), own) if t is not None), default=None)) is not None:
            found[name] = at
    return found


def _said(thing: Object, now: datetime) -> dict[str, datetime]:
    """Its annotations that are past times."""
    return {name: at for name, text in notes(thing).items() if len(text) <= LONGEST and (at := past(text, now))}
