"""How large each failure domain is and who is out of service in it, apart from what the guard itself has granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from medevac.fleet.node import Node
from medevac.model import Model

TOPOLOGY = ("cluster", "pool", "provider", "rack", "region", "switch", "image", "pdu")
"""Domains that every node stands in somewhere: where a node doesn't name one, it shares the unknown one."""


def domain_key(kind: str, value: str) -> str:
    """`rack:c/r1`: how a domain is written in states, limits and reasons."""
    return f"{kind}:{value}"


def node_key(cluster: str, node: str) -> str:
    return f"{cluster}/{node}"


class Census(Model):
    """One cluster, read at one moment. Keys are `domain_key`s, members `node_key`s."""

    cluster: str
    sizes: dict[str, int]
    out: dict[str, frozenset[str]] = {}
    """Out of service by others' doing (cordoned, not ready, in maintenance); our own marks aren't in it."""
    marked: dict[str, frozenset[str]] = {}
    """Nodes that carry a mark of ours, by domain."""
    spares: dict[str, int] = {}
    """Spare nodes by pool domain; a pool that isn't named has none known."""

    @classmethod
    def of(
        cls,
        cluster: str,
        nodes: Iterable[Node],
        spares: Mapping[str, int] | None = None,
        domains: Callable[[Node], dict[str, str]] = lambda node: node.domains,
    ) -> Census:
        """Of nodes that the policy has placed in their pools; `domains` is the policy's.

        `spares` by pool domain value (`c/train`), only where somebody counts them.
        """
        sizes: Counter[str] = Counter()
        out: dict[str, set[str]] = {}
        marked: dict[str, set[str]] = {}
        for node in nodes:
            keys = [domain_key(kind, value) for kind, value in domains(node).items()]
            sizes.update(keys)
            for into, holds in ((out, out_of_service(node)), (marked, node.marked_by is not None)):
                if holds:
                    for key in keys:
                        into.setdefault(key, set()).add(node_key(cluster, node.name))
        return cls(
            cluster=cluster,
            sizes=dict(sizes),
            out={key: frozenset(members) for key, members in out.items()},
            marked={key: frozenset(members) for key, members in marked.items()},
            spares={domain_key("pool", pool): count for pool, count in (spares or {}).items()},
        )

    def size(self, key: str) -> int:
        return self.sizes.get(key, 0)


def out_of_service(node: Node) -> bool:
    """Out by others' doing. What carries our mark is in our hands: it counts by its lease, once it is disrupted."""
    if node.foreign_cordon is not None:
        return True
    return node.marked_by is None and not (node.ready and node.schedulable)
