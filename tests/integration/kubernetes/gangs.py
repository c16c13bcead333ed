"""Workloads of many pods, and what their controllers would do: none of theirs runs here, but the Job's."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Self

from activities.kubernetes.client import Object
from activities.kubernetes.nodes import metadata
from tests.integration.kubernetes.site import Site, until
from tests.integration.kubernetes.test_workloads import containers, define, owned

TRAINING = "training.kubeflow.org/job-name"
JOBSET = "jobset.sigs.k8s.io/jobset-name"


def _jobset() -> tuple[Object, str]:
    replicated = {"name": "w", "replicas": 1, "template": {"spec": {"template": {"spec": containers()}}}}
    return {"replicatedJobs": [replicated], "failurePolicy": {"maxRestarts": 0}}, JOBSET


def _trainjob() -> tuple[Object, str]:
    return {"runtimeRef": {"name": "torch-distributed"}}, JOBSET


def _pytorchjob() -> tuple[Object, str]:
    return {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": containers()}}}}, TRAINING


def _mpijob() -> tuple[Object, str]:
    template = {"template": {"spec": containers()}}
    return {
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1, **template}, "Worker": {"replicas": 2, **template}}
    }, TRAINING


def _rayjob() -> tuple[Object, str]:
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head"}]}}}
    return {"shutdownAfterJobFinishes": True, "rayClusterSpec": {"headGroupSpec": head}}, "ray.io/cluster"


KINDS = {"JobSet": _jobset, "TrainJob": _trainjob, "PyTorchJob": _pytorchjob, "MPIJob": _mpijob, "RayJob": _rayjob}


@dataclass
class Gang:
    """One workload with a pod on each of the nodes, and its controller: ends them all while it is suspended."""

    site: Site
    kind: str
    nodes: list[str]
    spec: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    seen: list[bool] = field(default_factory=list)
    """Whether it was stopped, each time that this changed."""

    def __post_init__(self) -> None:
        version, path = define(self.site, self.kind)
        spec, self.tag = KINDS[self.kind]()
        self.thing = self.site.create(path, {
            "apiVersion": version, "kind": self.kind, "metadata": {"name": "llm", "labels": self.labels},
            "spec": {**spec, **self.spec},
        })  # fmt: skip
        self.path = f"{path}/llm"
        for n, node in enumerate(self.nodes):
            labels = {self.tag: "llm", "app": "llm"}
            self.site.pod(f"llm-{n}", node, owner=owned(self.thing), labels=labels, gpus=8, **self.pod)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._control, daemon=True)

    def is_stopped(self) -> bool:
        spec = (self.site.get(self.path) or {}).get("spec") or {}
        return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))

    def __enter__(self) -> Self:
        self._thread.start()
        until("its controller looks at it", lambda: bool(self.seen))
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def pods(self) -> list[Object]:
        return [pod for pod in self.site.pods() if metadata(pod).get("labels", {}).get(self.tag) == "llm"]

    def _control(self) -> None:
        while not self._over.wait(0.05):
            try:
                self.control()
            except Exception:  # noqa: S112 - the API server may be away
                continue

    def control(self) -> None:
        stopped = self.is_stopped()
        if not self.seen or self.seen[-1] != stopped:
            self.seen.append(stopped)
        if stopped:
            for pod in self.pods():
                if "deletionTimestamp" not in metadata(pod):
                    self.site.send("DELETE", self.site.within("pods", metadata(pod)["name"]))
