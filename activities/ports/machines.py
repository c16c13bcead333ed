"""The machines behind nodes, by their provider."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

from pydantic import JsonValue

from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Capability, Machine, Node
from medevac.fleet.places import Offer
from medevac.incident import StepKey
from medevac.model import Model


class Verb(StrEnum):
    """What can be done to a machine. Each call is one physical effect."""

    RESTART_AGENT = "restart_agent"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    REINSTALL = "reinstall"
    REQUEST = "request"
    """Ask for a successor machine."""
    TERMINATE = "terminate"


NEEDS: dict[Verb, Capability] = {
    Verb.RESTART_AGENT: Capability.RESTART_AGENT,
    Verb.RESET_GPU: Capability.RESET_GPU,
    Verb.REBOOT: Capability.REBOOT,
    Verb.REINSTALL: Capability.REINSTALL,
    Verb.REQUEST: Capability.REPLACE,
    Verb.TERMINATE: Capability.TERMINATE,
}
"""Which capability is what a verb needs."""


class MachineState(Model):
    """As the provider or the node tells, read afresh."""

    exists: bool
    power: Literal["on", "off", "unknown"] = "unknown"
    boot_id: str | None = None
    image_mark: str | None = None
    """Changes with each reinstall."""
    gpu_reset_mark: str | None = None
    """Changes with each GPU reset (or agent restart)."""
    told_by: Literal["provider", "node"] = "provider"
    """Who is asked about it again: what was done from within the node, its provider knows nothing of."""
    ready: bool = False
    successor: str | None = None
    """Node name of the machine that was asked for with the request's tag, once it has joined."""
    successor_id: str | None = None
    """Its machine id as soon as it is known. A provider that knows no node names gives only this: the cluster does."""
    successor_ready: bool = False
    asked_at: Offer | None = None
    """Which other provider is asked about the successor again; None: the machine's own."""


class Provider(Protocol):
    """Machines of one provider. `name` is what `Machine.provider` says."""

    name: str
    simulated: bool

    def capabilities(self, node: Node) -> frozenset[Capability]: ...

    def state(self, node: Node, tag: str) -> MachineState:
        """`tag` is the incident; a requested successor is searched by it. Raises `Unreadable`."""
        ...

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        """Makes the call once and returns what the provider said (an operation id, a request id).

        `REQUEST` carries the tag (with the system's own token where it has one); the other verbs take no token.
        Whatever it reads first, `last_look` comes right before the call, here as in all that follows.
        Raises `NotSent` or `Unclear`.
        """
        ...


@runtime_checkable
class HasSteps(Protocol):
    """A provider whose verbs take more than one call: stop, then start; launch, then join a group."""

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        """Makes the next call of what `do` began, where the world shows that it is due; what it did, in words.

        Called again and again while the proof is waited for, after a worker's death too, so every such call is one
        that may be made twice without a second effect. Raises `NotSent`, `Unclear` or `Unreadable`; a `NotSent`
        that is final says why the proof can't come any more.
        """
        ...


@runtime_checkable
class HasForce(Protocol):
    """A provider that first asks a machine to go down by itself, and has a harder way for one that doesn't."""

    def overdue(self, verb: Verb, node: Node, tag: str, since: datetime) -> bool:
        """Whether what `do` began at `since` has surely come to nothing. Raises `Unreadable`."""
        ...

    def force(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        """The harder way: called once at most, as it takes no token either. Raises `NotSent` or `Unclear`."""
        ...


@runtime_checkable
class HasRelease(Protocol):
    """A provider that bills for what was asked for, also when it never comes up."""

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        """Ends every machine that was asked for under `tag`, but for those of `joined` (machine ids); the ids.

        Idempotent. Never touches `node`'s own machine, nor any that doesn't carry the tag. Raises `NotSent`,
        `Unclear` or `Unreadable`.
        """
        ...


@runtime_checkable
class MakesElsewhere(Protocol):
    """A provider that can also make a successor of a machine that isn't its own, where the policy says so.

    `state`, `do` of REQUEST, `proceed` and `release` are then given a node whose machine has no id, and the region
    and SKU that are asked for; `exists` is of no interest.
    """

    def cannot_make(self, node: Node) -> str:
        """Why it can't make one for this node's pool, in words; empty where it can. Without a call."""
        ...


@runtime_checkable
class HasLocate(Protocol):
    """A provider that can be asked about a machine by its id alone."""

    def locate(self, machine_id: str) -> Machine | None:
        """None when none of its accounts knows it. Raises `Unreadable`."""
        ...


@runtime_checkable
class TakesInventory(Protocol):
    """A provider that reaches machines by what only the inventory knows: the address of a BMC, its credential."""

    def take_inventory(self, inventory: Inventory) -> None:
        """Once, before it is first asked; `inventory.join(node)` is what is known of one."""
        ...


@runtime_checkable
class HasPlanned(Protocol):
    """A provider that plans events for its machines, and can be told that one may have its way."""

    def hold(self, node: Node) -> bool:
        """Asks for more time before a planned event, where it grants some; whether there was anything to hold."""
        ...

    def acknowledge(self, node: Node, incident: str) -> tuple[str, ...]:
        """Lets the pending events of an *emptied* machine go on, or brings them forward; what was done, in words.

        Idempotent; empty = nothing is pending. Raises `NotSent`, `Unclear` or `Unreadable`.
        """
        ...


@runtime_checkable
class HasEvidence(Protocol):
    """A cluster or provider that can tell what is known about a machine before something irreversible is done to it."""

    def evidence(self, node: Node, incident: str) -> Iterable[tuple[str, bytes]]:
        """Named pieces (`console.txt`, `events.json`), one at a time; reads only, changes nothing.

        Names are plain file names. Whoever takes them bounds, redacts and stores them. Raises `Unreadable` for
        what can't be had now; what was given before that is kept.
        """
        ...


@runtime_checkable
class ActsOnNodes(Protocol):
    """A cluster that can have some things done from within its nodes, where no provider does them from outside."""

    def node_capabilities(self, node: Node) -> frozenset[Capability]:
        """What would be done now if it were asked for; nothing where the node couldn't carry it out."""
        ...

    def node_state(self, node: Node, key: StepKey) -> MachineState:
        """With `told_by="node"`; `key` is the act's that is asked about. Raises `Unreadable`."""
        ...

    def do_on_node(self, verb: Verb, node: Node, key: StepKey) -> JsonValue:
        """Begins it once: `key` is the token, a second call with it begins nothing. Raises `NotSent` or `Unclear`."""
        ...

    def proceed_on_node(self, verb: Verb, node: Node, key: StepKey) -> str | None:
        """As `HasSteps.proceed`."""
        ...
