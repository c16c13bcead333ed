"""The cloud's own provider beside the owner: what the owner can't, such as a reboot or the console, the cloud may."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

from pydantic import JsonValue

from activities.ports import (
    HasEvidence,
    HasForce,
    HasLocate,
    HasRelease,
    HasRights,
    HasSteps,
    HasUnaskedRights,
    MachineState,
    NotSent,
    Provider,
    TakesInventory,
    Verb,
)
from activities.registry import ConfigurationError
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Capability, Machine, Node
from medevac.model import Model

OWNERS = frozenset({Capability.REPLACE, Capability.TERMINATE})
"""What is never done behind an owner's back: it would make the machine anew, or count one too many."""


class Cloud(Model):
    kind: str
    options: dict[str, Any] = {}


class Beside:
    """Nothing can be done by it where it isn't configured."""

    def __init__(self, name: str, given: Cloud | None) -> None:
        self._inner = _made(name, given) if given else None

    def capabilities(self, node: Node, owned: bool) -> frozenset[Capability]:
        can = self._inner.capabilities(node) if self._inner else frozenset()
        return can - OWNERS if owned else can

    def state(self, node: Node, tag: str, owners: MachineState | None) -> MachineState | None:
        """The owner's word on whether the machine exists and what follows it, the cloud's on the machine itself."""
        if self._inner is None:
            return owners
        cloud = self._inner.state(node, tag)
        if owners is None:
            return cloud
        power = cloud.power if cloud.exists else owners.power
        ready = owners.ready and cloud.ready
        return owners.model_copy(update={"power": power, "ready": ready, "image_mark": cloud.image_mark})

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        if self._inner is None:
            raise NotSent(f"no provider is beside, and no owner can {verb} {node.name}", final=True)
        return self._inner.do(verb, node, tag)

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        return self._inner.proceed(verb, node, tag) if isinstance(self._inner, HasSteps) else None

    def overdue(self, verb: Verb, node: Node, tag: str, since: datetime) -> bool:
        inner: object = self._inner
        return isinstance(inner, HasForce) and inner.overdue(verb, node, tag, since)

    def force(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        inner: object = self._inner
        if not isinstance(inner, HasForce):
            raise NotSent(f"nothing forces {node.name} here", final=True)
        return inner.force(verb, node, tag)

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        return self._inner.release(node, tag, joined) if isinstance(self._inner, HasRelease) else ()

    def evidence(self, node: Node, incident: str) -> Iterable[tuple[str, bytes]]:
        return self._inner.evidence(node, incident) if isinstance(self._inner, HasEvidence) else ()

    def locate(self, machine_id: str) -> Machine | None:
        return self._inner.locate(machine_id) if isinstance(self._inner, HasLocate) else None

    def take_inventory(self, inventory: Inventory) -> None:
        inner: object = self._inner
        if isinstance(inner, TakesInventory):
            inner.take_inventory(inventory)

    def missing_rights(self) -> list[str]:
        return self._inner.missing_rights() if isinstance(self._inner, HasRights) else []

    def unasked_rights(self) -> list[str]:
        return self._inner.unasked_rights() if isinstance(self._inner, HasUnaskedRights) else []


def _made(name: str, given: Cloud) -> Provider:
    """Raises `ConfigurationError`."""
    known = {entry.name: entry for entry in entry_points(group="medevac.providers")}
    if given.kind not in known or given.kind == "cluster_managed":
        others = ", ".join(sorted(set(known) - {"cluster_managed"}))
        raise ConfigurationError(f"provider {name}: beside: no kind is called {given.kind!r}; there are: {others}")
    provider: Provider = known[given.kind].load()(name, given.options)
    return provider
