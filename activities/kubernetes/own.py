"""Which nodes run medevac itself and what it lives on: by the labels of pods, whatever the nodes are labelled.

The API server does the choosing, and what it said is kept for a minute: a plan never lists all pods.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from activities.kubernetes.client import Client
from activities.kubernetes.nodes import controller
from activities.kubernetes.pods import PODS, UNFINISHED
from activities.ports import Unreadable

FRESH_S = 60.0
STALE_S = 600.0
"""What was known before an outage counts so long."""
RETRY_S = 15.0


@dataclass(slots=True)
class OwnNodes:
    client: Client
    selectors: tuple[str, ...]
    """Each takes pods by itself; none: nobody is looked for."""
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

    def _read(self) -> frozenset[str]:
        """Without DaemonSets' pods: an agent is on every node, and is no reason to spare them all."""
        return frozenset(
            str(pod["spec"]["nodeName"])
            for selector in self.selectors
            for pod in self.client.list(PODS, {"labelSelector": selector, "fieldSelector": UNFINISHED})
            if (pod.get("spec") or {}).get("nodeName") and (controller(pod) or {}).get("kind") != "DaemonSet"
        )
