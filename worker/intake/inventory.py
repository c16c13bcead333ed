"""Which node a sender means. What is unknown or ambiguous is said so, never guessed.

A name is one of the node's own, in whatever case and with or without a port. A host name without its domain, or with
one, means the node that is called otherwise only where the domain is known to be that node's, or its cluster's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from activities.ports import Cluster, Unreadable
from medevac.fleet.names import address_of, canonical, host_and_domain, keys_of
from medevac.fleet.node import Node

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
    """The nodes of one cluster by what they are called."""

    cluster: str
    at: float
    nodes: list[Node] = field(default_factory=list)
    names: dict[str, list[Node]] = field(default_factory=dict)
    shorts: dict[str, list[Node]] = field(default_factory=dict)
    """Host names without the domain that the node's own name has."""
    domains: dict[str, set[str]] = field(default_factory=dict)
    """Of each node; nodes without one are left out."""
    all_domains: set[str] = field(default_factory=set)
    gpus: dict[str, list[Node]] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: str, at: float, nodes: Iterable[Node]) -> _Index:
        made = cls(cluster, at)
        for node in nodes:
            made.nodes.append(node)
            for name in names_of(node):
                made.names.setdefault(name, []).append(node)
            for gpu in {canonical(gpu) for gpu in node.gpu_ids}:
                made.gpus.setdefault(gpu, []).append(node)
            for short, domain in set(_hosts(node)):
                made.domains.setdefault(node.name, set()).add(domain)
                made.all_domains.add(domain)
                if node not in (known := made.shorts.setdefault(short, [])):
                    known.append(node)
        return made

    def named(self, subject: str) -> list[Node]:
        keys = keys_of(subject)
        for key in keys:
            if found := self.names.get(key):
                return found
        for key in keys:
            if found := self.shorts.get(key):
                return found
            if (parted := host_and_domain(key)) is None:
                continue
            host, domain = parted
            # Another domain's machine may have the same short name: the domain must be known to be one of these nodes'.
            if domain in self.all_domains:
                return [node for node in self.names.get(host, ()) if node.name not in self.domains]
        return []

    def holding(self, gpus: Iterable[str]) -> list[Node]:
        return [node for gpu in gpus for node in self.gpus.get(canonical(gpu), ())]


def _hosts(node: Node) -> Iterator[tuple[str, str]]:
    """Its host names that have a domain. Aliases count where they are the node's own name with a domain."""
    own = {canonical(name) for name in (node.name, node.labels.get("kubernetes.io/hostname")) if name}
    for name in own:
        if parted := host_and_domain(name):
            yield parted
    for alias in node.aliases:
        if (parted := host_and_domain(alias)) and parted[0] in own:
            yield parted


def names_of(node: Node) -> set[str]:
    """Every name by which a sender may call it, as `canonical` writes them."""
    machine = node.machine
    hostname = node.labels.get("kubernetes.io/hostname")
    known = {node.name, machine.id, machine.serial, node.uid, *node.aliases, *node.gpu_ids, hostname}
    return {canonical(name) for name in known if name and name.strip()}


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
        self,
        subject: str | None,
        cluster: str | None,
        allowed: Iterable[str] | None = None,
        gpus: Sequence[str] = (),
    ) -> Found | NotFound:
        """`cluster` as the sender named it; `allowed` are those the sender may speak for (None = all). `gpus`: UUIDs
        and serials that it names, asked where it names no machine, or one by nothing but an address.

        Raises `Unreadable` when a cluster that would have to be asked can't be read and was never read.
        """
        said = (subject or "").strip()
        if not said and not gpus:
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
        found: list[Found] = []
        sure = True
        for fresh in (False, True):
            indexes = [self._index(by_name[name], fresh) for name in sorted(within)]
            found, sure = _meant(said, gpus, indexes)
            if found:
                break
        what = said[:200] or f"GPU {', '.join(gpus)[:200]}"
        if not found:
            where = f"in {', '.join(sorted(within)) or 'any cluster'}"
            if not said:
                return NotFound(f"the event names no machine, and no node is known to hold {what} {where}")
            return NotFound(f"no node is known as {what} {where}")
        nodes = tuple(sorted(f"{one.cluster}/{one.node.name}" for one in found))
        if len(found) > 1:
            return NotFound(f"{what} fits {len(nodes)} nodes", nodes[:10])
        if not sure and allowed is not None:
            return NotFound(
                f"{what} is an address that several of {', '.join(sorted(within))} may have, and no cluster is named;"
                " it would be",
                nodes,
            )
        return found[0]

    def cached(
        self, subject: str | None, cluster: str | None, allowed: Iterable[str], gpus: Sequence[str] = ()
    ) -> Found | None:
        """Like `resolve`, of what was read lately. Never blocks; None = `resolve` must tell."""
        said = (subject or "").strip()
        if not said and not gpus:
            return None
        by_name = {one.name for one in self._clusters()}
        within = by_name & set(allowed)
        if cluster:
            within &= {cluster}
        # While somebody reads anew, what there is serves the others.
        oldest = self._clock() - self._max_age_s * (2 if self._lock.locked() else 1)
        indexes = [self._indexes.get(name) for name in sorted(within)]
        if not indexes or any(index is None or index.at < oldest for index in indexes):
            return None
        found, sure = _meant(said, gpus, [index for index in indexes if index is not None])
        return found[0] if len(found) == 1 and sure else None

    def nodes(self, cluster: str) -> list[Node]:
        """Of one cluster, at most `max_age_s` old. Raises `Unreadable` when it can't be read and never was."""
        index = self._index(next(one for one in self._clusters() if one.name == cluster), fresh=False)
        return list({node.name: node for node in index.nodes}.values())

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

    def _index(self, cluster: Cluster, fresh: bool) -> _Index:
        with self._lock:
            index = self._indexes.get(cluster.name)
            age = self._clock() - index.at if index else float("inf")
            if index and age < (_AGAIN_S if fresh else self._max_age_s):
                return index
            try:
                new = _Index.of(cluster.name, self._clock(), cluster.nodes())
            except Unreadable:
                if index is None:
                    raise
                return index
            self._indexes[cluster.name] = new
            return new


def _meant(subject: str, gpus: Sequence[str], indexes: Sequence[_Index]) -> tuple[list[Found], bool]:
    """The nodes that it fits, and whether it could be none but these.

    An address is one machine's within one network: another cluster's pod may have that of a node here. What holds the
    GPU that is named beside it decides, or contradicts it.
    """
    named = _found((index.cluster, node) for index in indexes for node in index.named(subject)) if subject else []
    address = address_of(subject) if subject else None
    if subject and address is None:
        return named, True
    holding = _found((index.cluster, node) for index in indexes for node in index.holding(gpus))
    if not holding:
        return named, address is None or address.is_global or len(indexes) < 2
    known = {(one.cluster, one.node.name) for one in named}
    if all((one.cluster, one.node.name) in known for one in holding):
        return holding, True
    return _found((one.cluster, one.node) for one in (*named, *holding)), True


def _found(nodes: Iterable[tuple[str, Node]]) -> list[Found]:
    return list({(cluster, node.name): Found(cluster, node) for cluster, node in nodes}.values())
