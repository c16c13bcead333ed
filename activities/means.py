"""By which adapter a verb is carried out: the machine's provider, or from within the node through its cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from activities.ports import NEEDS, ActsOnNodes, MachineState, Provider, Verb
from activities.registry import NotConfigured, Registry
from activities.signatures import Target
from medevac.fleet.node import Capability, Machine, Node
from medevac.fleet.places import Offer
from medevac.incident import StepKey


@dataclass(frozen=True, slots=True)
class Means:
    """All adapters that one machine has. Either may be missing; both are asked about what they can."""

    provider: Provider | None
    cluster: ActsOnNodes | None

    def capabilities(self, node: Node) -> frozenset[Capability]:
        """What can be done to the machine by any of them. Raises `Unreadable`."""
        outside = self.provider.capabilities(node) if self.provider else frozenset()
        can = outside | (self.cluster.node_capabilities(node) if self.cluster else frozenset())
        # Replacing is asking for a machine and ending this one: who can't do both replaces nothing.
        return can if Capability.TERMINATE in can else can - {Capability.REPLACE}

    def by(self, verb: Verb, node: Node, key: StepKey) -> Provider:
        """From outside where that can be: it also works on a node that hangs. Raises `NotConfigured`."""
        need = NEEDS[verb]
        outside = self.provider is not None and need in self.provider.capabilities(node)
        within = not outside and self.cluster is not None and need in self.cluster.node_capabilities(node)
        return self.again("node" if within else "provider", node, key)

    def again(self, told_by: Literal["provider", "node"], node: Node, key: StepKey) -> Provider:
        """The one that told a state before. Raises `NotConfigured`."""
        if told_by == "node" and self.cluster is not None:
            return WithinNode(self.cluster, key)
        if self.provider is None:
            raise NotConfigured(f"no provider is called {node.machine.provider!r}; name it under `providers`")
        return self.provider


@dataclass(slots=True)
class WithinNode:
    """A node as if it were the provider of its own machine. It knows the call by its step, not by its incident."""

    cluster: ActsOnNodes
    key: StepKey
    """Of the act."""
    name: str = "the node itself"
    simulated: bool = False

    def capabilities(self, node: Node) -> frozenset[Capability]:
        return self.cluster.node_capabilities(node)

    def state(self, node: Node, tag: str) -> MachineState:
        return self.cluster.node_state(node, self.key)

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        return self.cluster.do_on_node(verb, node, self.key)

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        return self.cluster.proceed_on_node(verb, node, self.key)


def means(registry: Registry, cluster: str, provider: str) -> Means:
    """Of the machines of this provider in this cluster. Raises `NotConfigured` where the cluster isn't."""
    found = registry.cluster(cluster)
    try:
        outside = registry.provider(provider)
    except NotConfigured:
        outside = None
    return Means(outside, found if isinstance(found, ActsOnNodes) else None)


def of_successor(registry: Registry, at: Offer | None, provider: Provider, node: Node) -> tuple[Provider, Node]:
    """Who is asked about a successor, and the node as it is told of it. Raises `NotConfigured`."""
    return (provider, node) if at is None else (registry.provider(at.provider), at.asked(node))


def stub(target: Target) -> Node:
    """The machine as the plan knew it, for asking its provider about it when its node is gone."""
    machine = Machine(provider=target.provider, id=target.identity.machine_id or "", boot_id=target.identity.boot_id)
    region = {"region": target.scopes["region"]} if "region" in target.scopes else {}
    return Node(cluster=target.cluster, name=target.node, uid=target.identity.uid, machine=machine, topology=region)
