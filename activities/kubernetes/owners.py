"""From a pod up to the workload that people mean: the unit that is noticed, counted and requeued."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from activities.kubernetes.client import Client, Forbidden, Object, url
from activities.kubernetes.nodes import controller, labels, metadata

PLURALS = {
    ("", "Pod"): "pods",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
    ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("kubeflow.org", "MPIJob"): "mpijobs",
    ("kubeflow.org", "TFJob"): "tfjobs",
    ("kubeflow.org", "JAXJob"): "jaxjobs",
    ("kubeflow.org", "XGBoostJob"): "xgboostjobs",
    ("kubeflow.org", "PaddleJob"): "paddlejobs",
    ("ray.io", "RayCluster"): "rayclusters",
    ("ray.io", "RayJob"): "rayjobs",
    ("ray.io", "RayService"): "rayservices",
    ("batch.volcano.sh", "Job"): "jobs",
}
"""What may own a workload in turn, and is looked at for that. Any other owner is taken as the root itself."""
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
DEPTH = 8
"""Pod, its set, its leader, the leader's set, … : more is a ring."""
FRESH_S = 5.0
"""Annotations of a root are looked at this often; who owns whom doesn't change."""
KEPT = 4096


@dataclass(frozen=True, slots=True)
class Root:
    namespace: str
    kind: str
    name: str
    thing: Object | None = None
    """As read; None where it is gone, may not be read, or is of a kind that isn't known."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(slots=True)
class Owners:
    """Remembers owners for a moment, by their UID. Thread-safe."""

    client: Client
    _known: dict[str, tuple[float, Object | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def root(self, pod: Object) -> Root:
        """Raises `Unreadable`."""
        namespace = metadata(pod)["namespace"]
        group = labels(pod).get(POD_GROUP)
        owner = controller(pod)
        if owner is None:
            if group:
                return Root(namespace, "PodGroup", group)
            return Root(namespace, "Pod", metadata(pod)["name"], pod)
        for _ in range(DEPTH):
            thing = self._read(namespace, owner)
            above = controller(thing) if thing else None
            # Each run of a CronJob is a piece of work of its own.
            if above is None or above["kind"] == "CronJob":
                return Root(namespace, owner["kind"], owner["name"] + _group(owner, pod), thing)
            owner = above
        return Root(namespace, owner["kind"], owner["name"])

    def _read(self, namespace: str, owner: Object) -> Object | None:
        group, _, version = owner["apiVersion"].rpartition("/")
        plural = PLURALS.get((group, owner["kind"]))
        if plural is None:
            return None
        with self._lock:
            known = self._known.get(owner["uid"])
        if known is not None and time.monotonic() - known[0] < FRESH_S:
            return known[1]
        root = ("apis", group) if group else ("api",)
        began = time.monotonic()
        try:
            thing = self.client.get(url(*root, version, "namespaces", namespace, plural, owner["name"]))
        except Forbidden:
            thing = None
        if thing is not None and metadata(thing)["uid"] != owner["uid"]:
            thing = None  # another one of its name
        with self._lock:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[owner["uid"]] = (began, thing)
        return thing


def _group(owner: Object, pod: Object) -> str:
    """The groups of a LeaderWorkerSet live and die apart, so each is a workload."""
    index = labels(pod).get(GROUP_INDEX) if owner["kind"] == "LeaderWorkerSet" else None
    return f"/{index}" if index else ""
