"""Which nodes run medevac itself and what it stands on: by the labels of pods, whatever the nodes are labelled.

The API server does the choosing, and what it said is kept for a minute: a plan never lists all pods.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from activities.kubernetes.client import Client, Object
from activities.kubernetes.nodes import controller, labels, metadata
from activities.kubernetes.pods import PODS, UNFINISHED
from activities.ports import Unreadable

FRESH_S = 60.0
STALE_S = 600.0
"""What was known before an outage counts so long."""
RETRY_S = 15.0
STANDS_ON = {"Temporal": ("temporal",), "PostgreSQL": ("postgres", "cnpg")}
"""What no cluster is without, and how its pods or their labels are called."""


@dataclass(slots=True)
class OwnNodes:
    client: Client
    selectors: tuple[str, ...]
    """Each takes pods by itself; none: nobody is looked for."""
    databases: tuple[str, ...] = ()
    """Likewise, in the namespaces of those pods."""
    _names: frozenset[str] = frozenset()
    _until: float = float("-inf")
    _read_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def names(self) -> frozenset[str]:
        """Raises `Unreadable`."""
        if not self.selectors:
            return frozenset()
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                try:
                    self._names, self._until, self._read_at = self._read(), now + FRESH_S, now
                except Unreadable:
                    if now - self._read_at > STALE_S:
                        raise
                    self._until = now + RETRY_S
            return self._names

    def unknown(self) -> tuple[str, ...]:
        """Of what medevac stands on, what no pod that is looked for is called like. Raises `Unreadable`."""
        called = " ".join(_called(pod) for pod in self._pods()).lower()
        return tuple(what for what, names in STANDS_ON.items() if not any(name in called for name in names))

    def _read(self) -> frozenset[str]:
        return frozenset(str(pod["spec"]["nodeName"]) for pod in self._pods())

    def _pods(self) -> list[Object]:
        found = [pod for selector in self.selectors for pod in self._chosen(PODS, selector)]
        # Also those of a namespace whose own pods wait for a node.
        spaces = sorted({str(metadata(pod)["namespace"]) for pod in found if not _by_kubelet(pod)})
        paths = [f"/api/v1/namespaces/{space}/pods" for space in spaces]
        found += [pod for path in paths for selector in self.databases for pod in self._chosen(path, selector)]
        return [pod for pod in found if (pod.get("spec") or {}).get("nodeName")]

    def _chosen(self, path: str, selector: str) -> list[Object]:
        """Without DaemonSets' pods: an agent is on every node, and is no reason to spare them all."""
        found = self.client.list(path, {"labelSelector": selector, "fieldSelector": UNFINISHED})
        return [pod for pod in found if (controller(pod) or {}).get("kind") != "DaemonSet"]


def _by_kubelet(pod: Object) -> bool:
    """A static pod, such as etcd: the cluster's own, and no sign that we live in its namespace."""
    return (controller(pod) or {}).get("kind") == "Node"


def _called(pod: Object) -> str:
    return " ".join((str(metadata(pod)["name"]), *(part for tag in labels(pod).items() for part in tag)))
