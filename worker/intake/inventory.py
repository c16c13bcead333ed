"""Which node a sender means. Exact matches only: what is unknown or ambiguous is said so, never guessed."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from activities.ports import Cluster, Unreadable
from medevac.fleet.node import Node

_ADDRESS = re.compile(r"^\[?(?P<host>[^\]\s/]+?)\]?:(?P<port>\d{1,5})$")
_AGAIN_S = 5.0
"""Least time between two reads that an unknown name may cause, so that junk names can't hammer a cluster."""


@dataclass(frozen=True, slots=True)
class Found:
    cluster: str
    node: Node


@dataclass(frozen=True, slots=True)
class NotFound:
    """`ambiguous` lists the nodes that the name fits; empty = none does."""

    reason: str
    ambiguous: tuple[str, ...] = ()
    forbidden: bool = False
    """The sender may not speak for the cluster that it named."""
    elsewhere: bool = False
    """It named a cluster that isn't configured here: trying again won't help."""

    @property
    def text(self) -> str:
        return f"{self.reason}: {', '.join(self.ambiguous)}" if self.ambiguous else self.reason


@dataclass(slots=True)
class _Index:
    at: float
    names: dict[str, list[tuple[str, Node]]] = field(default_factory=dict)


def names_of(node: Node) -> set[str]:
    """Every name by which a sender may call it, lower-cased."""
    machine = node.machine
    known = {node.name, machine.id, machine.serial, node.uid, *node.aliases, node.labels.get("kubernetes.io/hostname")}
    return {name.strip().lower() for name in known if name and name.strip()}


class Inventory:
    """Nodes of all clusters, read on demand and at most `max_age_s` old. Blocking; call it on a thread."""

    def __init__(
        self,
        clusters: Callable[[], Iterable[Cluster]],
        max_age_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clusters = clusters
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._indexes: dict[str, _Index] = {}

    def resolve(
        self, subject: str | None, cluster: str | None, allowed: Iterable[str] | None = None
    ) -> Found | NotFound:
        """`cluster` as the sender named it; `allowed` are those the sender may speak for (None = all).

        Raises `Unreadable` when a cluster that would have to be asked can't be read and was never read.
        """
        if not subject or not subject.strip():
            return NotFound("the event names no machine")
        by_name = {one.name: one for one in self._clusters()}
        within = set(by_name) if allowed is None else set(by_name) & set(allowed)
        if cluster:
            if cluster not in by_name:
                # A node of that name in a cluster of ours would be another machine.
                return NotFound(f"names cluster {cluster[:100]}, which none here is called", elsewhere=True)
            if cluster not in within:
                return NotFound(f"the sender may not speak for cluster {cluster}", forbidden=True)
            within = {cluster}
        for fresh in (False, True):
            found = self._look(subject, [by_name[name] for name in sorted(within)], fresh)
            if found:
                break
        if not found:
            return NotFound(f"no node is known as {subject[:200]} in {', '.join(sorted(within)) or 'any cluster'}")
        if len(found) > 1:
            nodes = tuple(sorted(f"{one.cluster}/{one.node.name}" for one in found))
            return NotFound(f"{subject[:200]} fits {len(nodes)} nodes", nodes[:10])
        return found[0]

    def cached(self, subject: str | None, cluster: str | None, allowed: Iterable[str]) -> Found | None:
        """Like `resolve`, of what was read lately. Never blocks; None = `resolve` must tell."""
        if not subject:
            return None
        by_name = {one.name for one in self._clusters()}
        within = by_name & set(allowed)
        if cluster:
            within &= {cluster}
        # While somebody reads anew, what there is serves the others.
        oldest = self._clock() - self._max_age_s * (2 if self._lock.locked() else 1)
        indexes = [self._indexes.get(name) for name in within]
        if not indexes or any(index is None or index.at < oldest for index in indexes):
            return None
        found = _named(subject, [index for index in indexes if index is not None])
        return found[0] if len(found) == 1 else None

    def nodes(self, cluster: str) -> list[Node]:
        """Of one cluster, at most `max_age_s` old. Raises `Unreadable` when it can't be read and never was."""
        index = self._index(next(one for one in self._clusters() if one.name == cluster), fresh=False)
        return list({node.name: node for found in index.names.values() for _, node in found}.values())

    def all_nodes(self) -> tuple[list[Node], list[str]]:
        """Of all clusters, as `nodes`; and in words those that can't be read."""
        found: list[Node] = []
        unread: list[str] = []
        for cluster in self._clusters():
            try:
                found += self.nodes(cluster.name)
            except Unreadable as error:
                unread.append(f"{cluster.name} can't be read now: {error}")
        return found, unread

    def boot_id(self, cluster: str, node: str) -> str | None:
        """As the cluster says now; None when it can't be told."""
        try:
            found = next(one for one in self._clusters() if one.name == cluster).node(node)
        except (StopIteration, Unreadable):
            return None
        return found.machine.boot_id if found else None

    def _look(self, subject: str, clusters: list[Cluster], fresh: bool) -> list[Found]:
        return _named(subject, [self._index(cluster, fresh) for cluster in clusters])

    def _index(self, cluster: Cluster, fresh: bool) -> _Index:
        with self._lock:
            index = self._indexes.get(cluster.name)
            age = self._clock() - index.at if index else float("inf")
            if index and age < (_AGAIN_S if fresh else self._max_age_s):
                return index
            try:
                new = _Index(self._clock())
                for node in cluster.nodes():
                    for name in names_of(node):
                        new.names.setdefault(name, []).append((cluster.name, node))
            except Unreadable:
                if index is None:
                    raise
                return index
            self._indexes[cluster.name] = new
            return new


def _named(subject: str, indexes: Sequence[_Index]) -> list[Found]:
    for key in _keys(subject):
        found = {
            (cluster, node.name): Found(cluster, node)
            for index in indexes
            for cluster, node in index.names.get(key, ())
        }
        if found:
            return list(found.values())
    return []


def _keys(subject: str) -> list[str]:
    """The name itself, then without a port, then a provider id's last part (`aws:///zone/i-0abc`)."""
    name = subject.strip().lower()
    keys = [name]
    if match := _ADDRESS.match(name):
        keys.append(match["host"])
    if ":///" in name or "://" in name:
        keys.append(name.rstrip("/").rsplit("/", 1)[-1])
    return keys
