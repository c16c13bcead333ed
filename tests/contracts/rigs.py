"""What a suite needs to arrange at the far side of an adapter: the simulation, a fake server, a sandbox account."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from activities.ports import Chat, Checks, Cluster, Pod, Provider, Tickets, Verb
from medevac.fleet.node import Node


class Trouble(StrEnum):
    """How the next call goes wrong."""

    REFUSE = "refuse"
    THROTTLE = "throttle"
    """With `RETRY_AFTER_S`."""
    TIMEOUT_BEFORE = "timeout_before"
    TIMEOUT_AFTER = "timeout_after"
    LIE = "lie"
    """It says done, and nothing happens."""


RETRY_AFTER_S = 7.0


class Rig(Protocol):
    def pass_time(self) -> None:
        """What was begun at the far side has had the time that it takes."""


class ClusterRig(Rig, Protocol):
    cluster: Cluster
    node: str
    """A ready node that nobody has marked, with at least one workload pod that no budget guards."""

    def own(self) -> set[str]:
        """The nodes on which nothing happens but by this test; on others, work may come and go."""

    def answer(self) -> None:
        """The node's job says that it may go, as one does that has heard the notice."""

    def cordon(self, who: str) -> None: ...

    def uncordon(self) -> None:
        """A person lifts whatever cordon is on the node."""

    def guard(self, pod: Pod) -> str:
        """A disruption budget that doesn't let this pod go; its `namespace/name`."""

    def replace(self, pod: Pod) -> None:
        """The pod is gone, and another one runs under its name."""

    def silence(self) -> None:
        """Nobody hears the node any more."""

    def grow_late(self) -> None:
        """Whatever grace a pod had is over; nobody helps it to its end."""

    def trouble_evicting(self, trouble: Trouble) -> None: ...

    def trouble_marking(self, trouble: Trouble) -> None: ...

    def unreadable(self) -> None:
        """The next reads fail."""


class ProviderRig(Rig, Protocol):
    """The far side of one provider, and the cluster's view of its machines: that one tells boot ids and readiness."""

    provider: Provider
    node: Node
    """A machine in good health, without work on it, as the plan knows it."""

    def nodes(self) -> list[Node]:
        """What the cluster shows now: the node as it is, and successors that have joined."""

    def trouble(self, verb: Verb, trouble: Trouble) -> None:
        """Of the next call by which `verb` has its effect."""

    def calls(self, verb: Verb) -> int:
        """Physical calls that reached the far side."""

    def applied(self, verb: Verb) -> int:
        """Effects, as the far side counts them."""

    def swap(self) -> Node:
        """Another machine takes the node's name, ours is gone; the node as it is now."""

    def lose(self) -> None:
        """The machine is gone, and its node with it."""

    def never_boots(self) -> None:
        """The machine will not come up again after its next boot."""

    def never_joins(self) -> None:
        """The machine that is asked for next will not join."""

    def unreadable(self) -> None:
        """The next read of the machine fails."""

    def billed(self) -> int:
        """Machines that were asked for and are still paid for."""


class ChecksRig(Rig, Protocol):
    checks: Checks
    node: Node

    def runs(self) -> int:
        """Checks that were really started."""

    def break_node(self, *, under_load: bool = False) -> None:
        """A fault of class `memory`; or one that passes at boot and shows only under load."""

    def reboot(self) -> Node:
        """The machine boots now, at once; the node as it is now."""

    def flake(self) -> None:
        """The next check can't run."""


class TicketsRig(Rig, Protocol):
    tickets: Tickets
    provider: str

    def trouble(self, trouble: Trouble) -> None: ...

    def unreadable(self) -> None: ...

    def opened(self) -> int: ...


class ThreadRig(TicketsRig, Protocol):
    """Of a ticket system whose tickets can be read, answered and closed."""

    def answer(self, id: str, text: str) -> None:
        """The other side writes."""

    def comments(self, id: str) -> list[str]:
        """Of ours, as they stand over there."""

    def closed(self, id: str) -> bool | None:
        """None where tickets of this system have no end."""


class ChatRig(Rig, Protocol):
    chat: Chat

    def trouble(self, trouble: Trouble) -> None: ...

    def posted(self) -> int: ...
