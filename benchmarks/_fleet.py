"""A fleet on a real API server, for the benchmark: its nodes and pods, what happens to them, and what that cost."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from activities.kubernetes.client import Client, Object, url
from activities.kubernetes.nodes import metadata
from activities.kubernetes.options import Options

NAMESPACE = "bench"
PATIENCE_S = 900.0
MAKERS = 6
"""Threads that create objects; more only wait for the two cores."""


def until(what: str, look: Callable[[], bool], poll_s: float = 0.5) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(poll_s)


class Fleet:
    def __init__(self, kubeconfig: Path) -> None:
        self.admin = Client(Options(kubeconfig=kubeconfig, read_timeout_s=30))
        self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def create(self, path: str, body: Object) -> Object:
        answer = self.admin.write("POST", path, body)
        if not answer.ok:
            raise SystemExit(f"POST {path}: {answer.message}")
        return answer.body

    def _all(self, make: Callable[[Any], None], things: Iterable[Any]) -> None:
        with ThreadPoolExecutor(MAKERS) as pool:
            list(pool.map(make, things))

    def add_nodes(self, prefix: str, count: int, **labels: str) -> list[str]:
        """Ready when this returns."""
        names = [f"{prefix}-{n:04}" for n in range(count)]
        self._all(lambda name: self._node(name, labels), names)

        def ready() -> bool:
            found = self.admin.list("/api/v1/nodes", {"labelSelector": f"bench/group={prefix}"})
            return sum("taints" not in node["spec"] for node in found) == count

        until(f"{count} nodes are ready", ready)
        return names

    def _node(self, name: str, labels: dict[str, str]) -> None:
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
        self.create("/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "bench/group": name.rpartition("-")[0], "nvidia.com/gpu.present": "true",
                    "kubernetes.io/hostname": name, **labels,
                    "topology.kubernetes.io/rack": f"rack-{int(name[-4:]) // 8}",
                },
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"providerID": f"aws:///eu-west-1a/i-{secrets.token_hex(8)}"},
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "nodeInfo": {
                    "bootID": secrets.token_hex(16), "systemUUID": secrets.token_hex(16),
                    "machineID": secrets.token_hex(16), "architecture": "amd64", "operatingSystem": "linux",
                    "osImage": "Test OS 1", "kernelVersion": "6.1", "kubeletVersion": "v1.37.2", "kubeProxyVersion": "",
                    "containerRuntimeVersion": "none",
                },
            },
        })  # fmt: skip

    def add_pods(self, names: Iterable[tuple[str, str]], ends_after: str = "") -> None:
        """`(pod, node)`; all run when this returns."""
        wanted = list(names)
        self._all(lambda pair: self._pod(*pair, ends_after), wanted)
        mine = {pod for pod, _ in wanted}

        def run() -> bool:
            found = self.admin.list(f"/api/v1/namespaces/{NAMESPACE}/pods", {"fieldSelector": "status.phase=Running"})
            return len(mine & {metadata(pod)["name"] for pod in found}) == len(mine)

        until(f"{len(mine)} pods run", run)

    def _pod(self, name: str, node: str, ends_after: str) -> None:
        notes = {"test.medevac.dev/ends-after": ends_after} if ends_after else {}
        self.create(f"/api/v1/namespaces/{NAMESPACE}/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes},
            "spec": {"nodeName": node, **container()},
        })  # fmt: skip

    def left(self, node: str) -> int:
        return len(list(self.admin.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})))

    def token(self, account: str) -> str:
        path = url("api", "v1", "namespaces", "medevac", "serviceaccounts", account, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}}
        return str(self.create(path, body)["status"]["token"])

    @contextmanager
    def watching(self, path: str, query: dict[str, str] | None = None) -> Iterator[Callable[[Seen], None]]:
        """Calls each given function with every change, and when it was heard (`time.time`)."""
        page = next(self.admin.pages(path, {**(query or {}), "limit": "1"}))
        version, over, heard = metadata(page)["resourceVersion"], threading.Event(), list[Seen]()

        def run() -> None:
            nonlocal version
            while not over.is_set():
                for change in self.admin.watch(path, version, 5, lambda _: None, query):
                    version = metadata(change["object"])["resourceVersion"]
                    for one in heard:
                        one(change, time.time())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield heard.append
        over.set()
        thread.join()


Seen = Callable[[Object, float], None]


def container() -> Object:
    return {
        "terminationGracePeriodSeconds": 30, "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "none"}],
    }  # fmt: skip


class Audit:
    """What an account asked of the API server since this was made: calls by verb and resource."""

    def __init__(self, log: Path, account: str) -> None:
        self._log = log
        self._who = f"system:serviceaccount:medevac:{account}"
        self._from = log.stat().st_size

    def calls(self) -> Counter[str]:
        found: Counter[str] = Counter()
        with self._log.open("rb") as log:
            log.seek(self._from)
            for line in log:
                entry = json.loads(line) if line.endswith(b"\n") else {"user": {"username": ""}}
                # A watch is noted at its beginning and its end.
                if entry["user"]["username"] == self._who and entry["stage"] != "ResponseStarted":
                    about = entry["objectRef"]
                    below = f"/{about['subresource']}" if "subresource" in about else ""
                    found[f"{entry['verb']} {about['resource']}{below}"] += 1
        return found


def settled(audit: Audit) -> Counter[str]:
    """Once the log has nothing more to tell."""
    known = audit.calls()
    while True:
        time.sleep(0.5)
        if (now := audit.calls()) == known:
            return now
        known = now
