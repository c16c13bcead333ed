"""`ManagedProvider`: the machine port on the objects that own nodes. Kind `cluster_managed` of `medevac.providers`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, JsonValue, ValidationError

from activities.kubernetes import options as kubernetes
from activities.kubernetes import others, rights
from activities.ports import NEEDS, MachineState, NotAllowed, NotSent, Unclear, Unreadable, Verb
from activities.providers.cluster_managed.api import Api
from activities.providers.cluster_managed.beside import Beside, Cloud
from activities.providers.cluster_managed.cluster_api import ClusterApi
from activities.providers.cluster_managed.karpenter import Karpenter
from activities.providers.cluster_managed.metal3 import Metal3
from activities.providers.cluster_managed.nvsentinel import External, NvSentinel
from activities.registry import ConfigurationError, complaints
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Capability, Machine, Node
from medevac.model import Model

Kind = Literal["karpenter", "cluster_api", "metal3", "nvsentinel", "nvsentinel_external"]


class Options(Model):
    owners: tuple[Kind, ...] = Field(min_length=1)
    """What manages machines here, the one to be asked first in front."""
    kubeconfig: Path | None = None
    """Of the cluster that has the owning objects; unset: as for a cluster."""
    context: str | None = None
    connect_timeout_s: float = Field(1.0, gt=0)
    read_timeout_s: float = Field(5.0, gt=0)
    machines_in: str = ""
    """Namespace of the Machines; empty: all of them."""
    cluster_api: Literal["delete", "remediate"] = "delete"
    """`remediate` marks the Machine for its owner, which needs a MachineHealthCheck that selects it."""
    beside: Cloud | None = None
    """The cloud's own provider, for what owners can't do: `{kind: aws, options: {...}}`."""
    dry_run: bool = False


class Owner(Protocol):
    """One kind of owner, as the provider asks it."""

    capabilities: frozenset[Capability]

    def owns(self, node: Node) -> bool:
        """Without a call."""
        ...

    def state(self, node: Node, tag: str) -> MachineState | None:
        """None where it can't know of such a machine. Raises `Unreadable`."""
        ...

    def do(self, verb: Verb, node: Node, tag: str) -> str: ...

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None: ...

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]: ...


class ManagedProvider:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self._api = Api(
            kubernetes.Options(
                kubeconfig=options.kubeconfig,
                context=options.context,
                connect_timeout_s=options.connect_timeout_s,
                read_timeout_s=options.read_timeout_s,
            )
        )
        made: dict[Kind, Owner] = {
            "karpenter": Karpenter(self._api),
            "cluster_api": ClusterApi(self._api, options.cluster_api, options.machines_in),
            "metal3": Metal3(self._api),
            "nvsentinel": NvSentinel(self._api),
            "nvsentinel_external": External(self._api),
        }
        self._owners = [made[kind] for kind in options.owners]
        self._beside = Beside(name, options.beside)

    # -- reading -----------------------------------------------------------------------------------------------

    def capabilities(self, node: Node) -> frozenset[Capability]:
        """By what owns the node. Nothing where cluster-autoscaler is taking it away."""
        if node.foreign_cordon == others.AUTOSCALER:
            return frozenset()
        owners = self._of(node)
        theirs = frozenset[Capability]().union(*(owner.capabilities for owner in owners))
        beside = self._beside.capabilities(node, bool(owners))
        # An owner that reboots goes before the cloud, and does it in its own way.
        return theirs | (beside - {Capability.REBOOT_MOVES} if Capability.REBOOT in theirs else beside)

    def state(self, node: Node, tag: str) -> MachineState:
        """By the first owner that has it; of a node that is gone, whoever knew its machine."""
        found = [state for owner in self._of(node) or self._owners if (state := owner.state(node, tag)) is not None]
        owners = next((state for state in found if state.exists), found[0] if found else None)
        if (state := self._beside.state(node, tag, owners)) is None:
            raise NotAllowed(f"nothing that manages machines here ({', '.join(self.options.owners)}) has {node.name}")
        return state

    def locate(self, machine_id: str) -> Machine | None:
        if (found := self._beside.locate(machine_id)) is not None:
            return found
        machine = Machine(provider=self.name, id=machine_id)
        return machine if self.state(Node(cluster="", name="-", machine=machine), "").exists else None

    def take_inventory(self, inventory: Inventory) -> None:
        self._beside.take_inventory(inventory)

    def evidence(self, node: Node, incident: str) -> Iterable[tuple[str, bytes]]:
        return self._beside.evidence(node, incident)

    def missing_rights(self) -> list[str]:
        """Of the optional manifest `managed.yaml`, as far as this provider's owners need it."""
        lacks = list(self._beside.missing_rights())
        for kind in self.options.owners:
            for right in RIGHTS[kind]:
                try:
                    allowed = rights.allowed(self._api.client, right)
                except (NotSent, Unclear) as error:
                    raise Unreadable(f"{self.name}: {error}") from None
                if not allowed:
                    lacks.append(rights.words(right))
        return lacks

    def unasked_rights(self) -> list[str]:
        return self._beside.unasked_rights()

    # -- acting ------------------------------------------------------------------------------------------------

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        if NEEDS[verb] not in self.capabilities(node):
            raise NotSent(f"{self.name} can't {verb} {node.name}{_why(node)}", final=True)
        owner = self._by(verb, node)
        if self.options.dry_run:
            by = type(owner).__name__ if owner else "the provider beside"
            raise NotSent(f"dry run, nothing was done: it would be {verb} by {by}", final=True)
        if owner is None:
            return self._beside.do(verb, node, tag)
        try:
            return owner.do(verb, node, tag)
        except Unreadable as error:
            raise NotSent(str(error), final=isinstance(error, NotAllowed)) from None

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        if self.options.dry_run:
            return None
        owners = self._of(node) or self._owners
        can = [owner for owner in owners if NEEDS[verb] in owner.capabilities]
        if not can:
            return self._beside.proceed(verb, node, tag)
        return next((did for owner in can if (did := owner.proceed(verb, node, tag))), None)

    def overdue(self, verb: Verb, node: Node, tag: str, since: datetime) -> bool:
        by_owner = self._by(verb, node) is not None
        return not by_owner and not self.options.dry_run and self._beside.overdue(verb, node, tag, since)

    def force(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        return self._beside.force(verb, node, tag)

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        if not tag:
            raise NotSent("nothing is released without the tag of what asked for it", final=True)
        if self.options.dry_run:
            return ()
        can = [owner for owner in self._owners if Capability.REPLACE in owner.capabilities]
        released = tuple(name for owner in can for name in owner.release(node, tag, joined))
        return released + (() if self._of(node) else self._beside.release(node, tag, joined))

    def close(self) -> None:
        self._api.client.close()

    # -- parts -------------------------------------------------------------------------------------------------

    def _of(self, node: Node) -> list[Owner]:
        return [owner for owner in self._owners if owner.owns(node)]

    def _by(self, verb: Verb, node: Node) -> Owner | None:
        """None: the provider beside."""
        return next((owner for owner in self._of(node) if NEEDS[verb] in owner.capabilities), None)


def _why(node: Node) -> str:
    return ": cluster-autoscaler is taking it away" if node.foreign_cordon == others.AUTOSCALER else ""


RIGHTS: dict[Kind, tuple[rights.Right, ...]] = {
    "karpenter": (
        *(("karpenter.sh", "nodeclaims", verb) for verb in ("get", "list", "create", "delete")),
        ("karpenter.sh", "nodepools", "get"),
    ),
    "cluster_api": tuple(("cluster.x-k8s.io", "machines", verb) for verb in ("get", "list", "patch", "delete")),
    "metal3": tuple(("metal3.io", "baremetalhosts", verb) for verb in ("get", "patch")),
    "nvsentinel": (
        ("janitor.dgxc.nvidia.com", "rebootnodes", "create"),
        *(("janitor.dgxc.nvidia.com", "terminatenodes", verb) for verb in ("get", "create")),
        ("", "nodes", "get"),
    ),
    "nvsentinel_external": (
        *(("nvsentinel.nvidia.com", "externalremediationrequests", verb) for verb in ("get", "create")),
        ("", "nodes", "get"),
    ),
}


def make(name: str, options: dict[str, Any]) -> ManagedProvider:
    """Raises `ConfigurationError`."""
    try:
        return ManagedProvider(name, Options.model_validate(options))
    except ValidationError as error:
        said = complaints(error)
        raise ConfigurationError(f"provider {name}: {said}") from None
    except ConfigurationError:
        raise
    except Exception as error:  # a kubeconfig that isn't there, or isn't one
        raise ConfigurationError(f"provider {name}: {type(error).__name__}: {error}") from error
