"""The work on a node: which pods die together, how much they hold, and what they say about their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from activities.kubernetes import notices, pods
from activities.kubernetes.client import Client, Object
from activities.kubernetes.names import CHECKPOINTED_AT, OWNER
from activities.kubernetes.nodes import controller, labels, metadata, notes
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
_MEMBER_LABELS = frozenset(name for names in MEMBERS for name in names)
AT_ONCE = 8
"""Owners that are read at a time."""
LONGEST = 40
"""Characters of a time."""
LONGEST_NOTE = 300
"""Characters of an annotation that is kept of each of very many pods."""
ALONE = frozenset(("Deployment", "ReplicaSet", "StatefulSet", "Pod", "RayService"))
"""Their pods don't wait for each other."""


def on_node(client: Client, owners: Owners, node: str, options: Options) -> list[Workload]:
    """By name. Raises `Unreadable`."""
    here: dict[str, tuple[Root, list[Object]]] = {}
    for pod in pods.on_node(client, node):
        if pods.read(pod, "", {}, options).tier == "workload":
            root = owners.root(pod)
            here.setdefault(root.title, (root, []))[1].append(pod)

    def gang(namespace: str, selector: Mapping[str, str]) -> list[Object]:
        path, chosen = f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": _written(selector)}
        return [pod for pod in client.list(path, chosen) if _runs(pod)]

    return [_read(*here[title], options, gang) for title in sorted(here)]


def on_all(client: Client, owners: Owners, options: Options) -> dict[str, list[Workload]]:
    """The same of every node that has any, from one list of all pods. Raises `Unreadable`."""
    working: list[Object] = []
    tagged: dict[tuple[str, str, str], list[Object]] = {}
    for whole in pods.everywhere(client):
        pod = _slim(whole)
        if pod["spec"]["nodeName"] and pods.read(whole, "", {}, options).tier == "workload":
            working.append(pod)
        for name in labels(pod).keys() & _MEMBER_LABELS:
            tagged.setdefault((metadata(pod)["namespace"], name, labels(pod)[name]), []).append(pod)
    # Pods of one controller and group have one root: each is looked up once, several at a time.
    kin = [_kin(pod) for pod in working]
    first = dict(zip(reversed(kin), reversed(working), strict=True))
    with ThreadPoolExecutor(min(AT_ONCE, options.connections)) as threads:
        roots = dict(zip(first, threads.map(owners.root, first.values()), strict=True))

    def gang(namespace: str, selector: Mapping[str, str]) -> list[Object]:
        sets = [tagged.get((namespace, name, value), []) for name, value in selector.items()]
        fewest = min(sets, key=len)
        return [pod for pod in fewest if selector.items() <= labels(pod).items()]

    here: dict[str, dict[str, tuple[Root, list[Object]]]] = {}
    for pod, of in zip(working, kin, strict=True):
        root = roots[of]
        here.setdefault(pod["spec"]["nodeName"], {}).setdefault(root.title, (root, []))[1].append(pod)
    return {
        node: [_read(*works[title], options, gang) for title in sorted(works)] for node, works in sorted(here.items())
    }


def _slim(pod: Object) -> Object:
    """What is read of it here: whole, those of a large fleet would fill the memory."""
    meta, spec = metadata(pod), pod.get("spec") or {}
    kept: Object = {
        name: meta[name] for name in ("namespace", "name", "uid", "labels", "ownerReferences") if name in meta
    }
    kept["annotations"] = {name: text for name, text in notes(pod).items() if len(text) <= LONGEST_NOTE}
    limits = [(one.get("resources") or {}).get("limits") or {} for one in spec.get("containers") or ()]
    return {
        "metadata": kept,
        "spec": {"nodeName": spec.get("nodeName"), "containers": [{"resources": {"limits": one}} for one in limits]},
        "status": {"startTime": (pod.get("status") or {}).get("startTime")},
    }


def _kin(pod: Object) -> tuple[str, ...]:
    owner, tags = controller(pod), labels(pod)
    if owner is None:
        group = tags.get(POD_GROUP)
        return (metadata(pod)["namespace"], "group", group) if group else ("pod", metadata(pod)["uid"])
    return ("owner", owner["uid"], tags.get(GROUP_INDEX, ""))


def _read(
    root: Root, here: list[Object], options: Options, gang: Callable[[str, Mapping[str, str]], list[Object]]
) -> Workload:
    """`gang` gives the pods of a namespace that carry these labels and aren't finished."""
    tags = _gang(root, here[0])
    selector = _written(tags)
    members = gang(root.namespace, tags) if tags else here
    places = {(pod.get("spec") or {}).get("nodeName") for pod in members} - {None}
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
        ready_to_evict=notices.answered(root.thing, members, datetime.now(UTC)),
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


def _written(selector: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in selector.items())


def _gang(root: Root, pod: Object) -> dict[str, str]:
    """Labels that all pods carry which die with this one; none for those that stand alone."""
    spec = (root.thing or {}).get("spec") or {}
    if root.kind in ALONE:
        return {}
    if root.kind == "Job" and (spec.get("completionMode") != "Indexed" or int(spec.get("parallelism") or 1) < 2):
        return {}
    tags = labels(pod)
    for names in MEMBERS:
        if all(name in tags for name in names):
            return {name: tags[name] for name in names}
    return {}


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
