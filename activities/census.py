"""Reads how much of each cluster is out of service, at most every few seconds and once at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import Future

from activities.failures import Bounded
from activities.ports import Cluster, Unreadable
from activities.registry import Registry
from activities.storage.policies import Policies
from medevac.fleet.census import Census
from medevac.policy.policy import Policy

FRESH_S = 5.0
SPARE_LABEL = "medevac.dev/spare"
"""A node kept free for others' work. A pool without such nodes has no known number of spares."""


class CensusTaker:
    """Many who ask at once share one reading; who can't wait for it comes back for it."""

    def __init__(self, registry: Registry, policies: Policies, bounded: Bounded, fresh_s: float = FRESH_S) -> None:
        self._registry = registry
        self._policies = policies
        self._bounded = bounded
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._taken: dict[str, tuple[float, Census]] = {}
        self._running: dict[str, Future[Census]] = {}

    def take(self, cluster: str, wait_s: float = 1.0) -> Census:
        """At most `fresh_s` old. Raises `Unreadable`, also when the reading takes longer than `wait_s`."""
        with self._lock:
            known = self._taken.get(cluster)
            if known is not None and time.monotonic() - known[0] < self._fresh_s:
                return known[1]
            running = self._running.get(cluster)
            if running is None:
                running = self._running[cluster] = self._bounded.start(self._read, cluster)
        try:
            return running.result(wait_s)
        except TimeoutError:
            if not running.done():
                raise Unreadable(f"cluster {cluster} is still being counted") from None
            raise
        finally:
            if running.done():
                with self._lock:
                    if self._running.get(cluster) is running:
                        del self._running[cluster]

    def spares(self, cluster: str, pool: str | None) -> int | None:
        """From the last reading, however old; None where nobody counts them."""
        with self._lock:
            known = self._taken.get(cluster)
        return known[1].spares.get(f"pool:{cluster}/{pool or '-'}") if known else None

    def _read(self, name: str) -> Census:
        # The age counts from before the reading.
        began = time.monotonic()
        census = count(self._registry.cluster(name), self._policies.active().policy)
        with self._lock:
            self._taken[name] = (began, census)
        return census


def count(cluster: Cluster, policy: Policy) -> Census:
    """A spare counts while it is in service and without work."""
    nodes = [policy.place(node) for node in cluster.nodes()]
    spares: Counter[str] = Counter()
    for node in nodes:
        if SPARE_LABEL not in node.labels:
            continue
        free = node.ready and node.schedulable and node.marked_by is None and not cluster.workloads(node.name)
        spares[node.domains["pool"]] += int(free)
    return Census.of(cluster.name, nodes, spares, policy.domains)
