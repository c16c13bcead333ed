"""What the tests arrange in a cluster, as its admin: nodes that KWOK plays, and work on them; and the cleaning up."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from activities.kubernetes.client import FIELD_MANAGER, MERGE, STRATEGIC, Answer, Client, Method, Object, url
from activities.kubernetes.nodes import conditions, metadata
from activities.kubernetes.options import Options

T = TypeVar("T")
PATIENCE_S = 240.0
"""A wait ends with what it waits for; this only ends a test that would hang."""
HOLD = "test.medevac.dev/hold"
"""Finalizer that keeps a deleted pod terminating until the test lets it go."""
RUN = "test.medevac.dev/run"
PODS = "/api/v1/pods"


def until(what: str, look: Callable[[], T | bool | None], timeout_s: float = PATIENCE_S) -> T:
    """The first answer that is something; fails with `what` where there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


def as_left(node: dict[str, Any]) -> dict[str, Any]:
    """A node without what the cluster itself writes when it gets round to it: status, its own taints and notes."""
    spec, metadata = node["spec"], node["metadata"]
    taints = [one for one in spec.get("taints", []) if not one["key"].startswith("node.kubernetes.io/")]
    return {
        "labels": metadata.get("labels", {}),
        "annotations": {k: v for k, v in metadata.get("annotations", {}).items() if not k.startswith("node.alpha.")},
        "spec": spec | {"taints": taints},
        "ours": [one for one in metadata["managedFields"] if one["manager"] == FIELD_MANAGER],
    }


@dataclass
class Site:
    """One test's own nodes and namespace; their names begin with `run`."""

    kubeconfig: Path
    run: str = field(default_factory=lambda: f"medevac-test-{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self.admin = Client(Options(kubeconfig=self.kubeconfig))
        self.names: list[str] = []
        self.create("/api/v1/namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": self.run}})

    # -- the API -----------------------------------------------------------------------------------------------

    def get(self, path: str) -> Object | None:
        return self.admin.get(path)

    def send(self, method: Method, path: str, body: Object | None = None, kind: str = "application/json") -> Answer:
        return self.admin.write(method, path, body or {}, kind)

    def must(self, answer: Answer) -> Object:
        assert answer.ok, answer.message
        return answer.body

    def create(self, path: str, body: Object) -> Object:
        return self.must(self.send("POST", path, body))

    def patch(self, path: str, body: Object, *, manager: str = "kubectl", kind: str = MERGE) -> Object:
        """As the tool `manager`, which the API server remembers."""
        return self.must(self.admin._call("PATCH", path, {"fieldManager": manager}, body, kind, 1))

    def version(self) -> int:
        """Newer than whatever anybody has heard of the cluster."""
        path = url("api", "v1", "namespaces", self.run)
        thing = self.patch(path, {"metadata": {"annotations": {"test.medevac.dev/at": secrets.token_hex(8)}}})
        return int(metadata(thing)["resourceVersion"])

    def within(self, *parts: str, api: tuple[str, ...] = ("api", "v1")) -> str:
        return url(*api, "namespaces", self.run, *parts)

    # -- nodes -------------------------------------------------------------------------------------------------

    def node_path(self, name: str, *below: str) -> str:
        return url("api", "v1", "nodes", name, *below)

    def node(self, name: str) -> Object:
        found = self.get(self.node_path(name))
        assert found is not None, name
        return found

    def add_node(self, name: str = "", *, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """Ready when this returns."""
        name = name or f"{self.run}-{len(self.names)}"
        self.create("/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {RUN: self.run, "kubernetes.io/hostname": name, **(labels or {})},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"providerID": f"aws:///eu-west-1a/i-{secrets.token_hex(8)}", **spec},
        })  # fmt: skip
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
        info = {
            "bootID": secrets.token_hex(16), "systemUUID": secrets.token_hex(16), "machineID": secrets.token_hex(16),
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Test OS 1", "kernelVersion": "6.1",
            "kubeletVersion": "v1.37.2", "kubeProxyVersion": "", "containerRuntimeVersion": "none",
        }  # fmt: skip
        status = {"capacity": amounts, "allocatable": amounts, "nodeInfo": info}
        self.patch(self.node_path(name, "status"), {"status": status}, kind=STRATEGIC)
        self.names.append(name)
        until(f"{name} is ready", lambda: self._in_service(name))
        return name

    def _in_service(self, name: str) -> bool:
        node = self.node(name)
        ready = conditions(node).get("Ready", {}).get("status") == "True"
        settled = not any("node.kubernetes.io/" in taint["key"] for taint in node["spec"].get("taints") or ())
        return ready and (settled or bool(node["spec"].get("unschedulable")))

    def cordon(self, name: str, who: str, *, on: bool = True) -> None:
        self.patch(self.node_path(name), {"spec": {"unschedulable": True if on else None}}, manager=who)

    # -- pods --------------------------------------------------------------------------------------------------

    def pod_template(self, *, labels: dict[str, str], held: bool = False, **spec: Any) -> Object:
        limits = {"nvidia.com/gpu": str(spec.pop("gpus", 1))}
        tolerations = [{"operator": "Exists"}] if spec.pop("tolerates_all", False) else []
        extra = spec.pop("annotations", {})
        return {
            "metadata": {"labels": labels, "annotations": extra, **({"finalizers": [HOLD]} if held else {})},
            "spec": {
                "nodeSelector": {RUN: self.run}, "tolerations": tolerations, "terminationGracePeriodSeconds": 20,
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}], **spec,
            },
        }  # fmt: skip

    def set_of(self, kind: str, name: str, *, replicas: int = 1, held: bool = False, **spec: Any) -> None:
        """A StatefulSet, Deployment or DaemonSet."""
        labels = {"app": name}
        body: Object = {"selector": {"matchLabels": labels}}
        body["template"] = self.pod_template(labels=labels, held=held, **spec)
        if kind != "DaemonSet":
            body["replicas"] = replicas
        if kind == "StatefulSet":
            body |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        plural = kind.lower() + "s"
        self.create(
            self.within(plural, api=("apis", "apps", "v1")),
            {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body},
        )

    def pod(self, name: str, node: str, *, owner: Object | None = None, held: bool = False, **spec: Any) -> Object:
        """One pod bound to the node, owned by whatever the test says."""
        body = self.pod_template(labels={"app": name, **spec.pop("labels", {})}, held=held, nodeName=node, **spec)
        body["metadata"] |= {"name": name, "ownerReferences": [owner] if owner else []}
        self.create(self.within("pods"), {"apiVersion": "v1", "kind": "Pod", **body})
        return until(f"pod {name} runs", lambda: self._running(name))

    def _running(self, name: str) -> Object | None:
        pod = self.get(self.within("pods", name))
        return pod if pod is not None and (pod.get("status") or {}).get("phase") == "Running" else None

    def pods(self) -> list[Object]:
        return list(self.admin.list(self.within("pods")))

    def running(self, count: int) -> list[Object]:
        """All pods of the namespace, once that many run and none else is there."""

        def look() -> list[Object] | None:
            found = self.pods()
            run = [pod for pod in found if pod["status"].get("phase") == "Running" and not _ending(pod)]
            return found if len(run) == len(found) == count else None

        return until(f"{count} pods run", look)

    def release(self) -> None:
        """Pods that the test holds may end, and are gone when this returns."""

        def look() -> bool:
            ending = [pod for pod in self.pods() if _ending(pod)]
            for pod in ending:
                if HOLD in metadata(pod).get("finalizers", ()):
                    self.send(
                        "PATCH", self.within("pods", metadata(pod)["name"]), {"metadata": {"finalizers": None}}, MERGE
                    )
            return not ending

        until("no pod is terminating", look)

    def budget(self, name: str, labels: dict[str, str], pods: int = 1, **spec: Any) -> str:
        """A disruption budget, once its controller has counted `pods`."""
        path = self.within("poddisruptionbudgets", api=("apis", "policy", "v1"))
        wanted = {"selector": {"matchLabels": labels}, **(spec or {"minAvailable": pods})}
        self.create(
            path, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": wanted}
        )

        def counted() -> bool:
            status = (self.get(f"{path}/{name}") or {}).get("status") or {}
            return status.get("observedGeneration") == 1 and status.get("currentHealthy") == pods

        until(f"budget {name} is counted", counted)
        return f"{self.run}/{name}"

    # -- accounts ----------------------------------------------------------------------------------------------

    def token(self, account: str, namespace: str = "medevac") -> str:
        path = url("api", "v1", "namespaces", namespace, "serviceaccounts", account, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.create(path, body)["status"]["token"])

    def close(self) -> None:
        for name in self.names:
            self.send("DELETE", self.node_path(name))
        for pod in self.pods():
            path = self.within("pods", metadata(pod)["name"])
            self.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            self.send("DELETE", path, {"gracePeriodSeconds": 0})
        self.send("DELETE", url("api", "v1", "namespaces", self.run))
        self.admin.close()


def _ending(pod: Object) -> bool:
    return "deletionTimestamp" in metadata(pod)


def written(node: Object) -> Object:
    """Our annotation, as people would read it."""
    found = json.loads(metadata(node)["annotations"]["medevac.dev/mark"])
    assert isinstance(found, dict)
    return found
