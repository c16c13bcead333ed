"""Which nodes lack what their ladder needs: every node of every pool, by the policy in force. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from activities.failures import redact
from activities.means import means
from activities.ports import Unreadable
from activities.registry import Registry
from medevac.fleet.inventory import lacking
from medevac.fleet.node import Capability, Node
from medevac.model import Model
from medevac.policy.policy import Policy


class Lack(Model):
    cluster: str
    node: str
    pool: str
    lacks: tuple[str, ...]


def lacking_nodes(registry: Registry, policy: Policy, today: date) -> Iterator[Lack]:
    """By cluster and name; nodes of no pool are nobody's business. Raises `Unreadable`."""
    for cluster in registry.clusters():
        for told in sorted(cluster.nodes(), key=lambda node: node.name):
            node = policy.place(told)
            if node.pool not in policy.pools:
                continue
            can, why = _can(registry, node)
            found = [*why, *lacking(node, registry.inventory.join(node), rungs(policy, node), can, today)]
            if found:
                yield Lack(cluster=node.cluster, node=node.name, pool=node.pool or "", lacks=tuple(found))


def rungs(policy: Policy, node: Node) -> frozenset[str]:
    """Of the node's own ladder; a rule's, which one fault may take, isn't asked for."""
    named = policy.pools[node.pool or ""].ladder or ("cloud" if node.machine.virtual else "bare_metal")
    return frozenset(step.rung.value for step in policy.ladders[named])


def _can(registry: Registry, node: Node) -> tuple[frozenset[Capability], list[str]]:
    """What its adapters can do, and why they can't say."""
    try:
        return means(registry, node.cluster, node.machine.provider).capabilities(node), []
    except Unreadable as error:
        return frozenset(), [redact(str(error))]
