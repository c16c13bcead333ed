"""A cluster: its nodes, the work on them, and what some clusters can do besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from medevac.fleet.node import Node, Workload
from medevac.fleet.remediator import Remediator
from medevac.model import Model


class Mark(Model):
    incident: str
    code: str
    """Of the worst open fault, as a label value: `xid-79`."""
    faults: tuple[str, ...]
    reason: str
    instead_of: str | None = None
    """Incident of ours that is over and whose mark was left on the node: this one takes its place in one write."""


class Pod(Model):
    uid: str
    namespace: str
    name: str
    workload: str
    tier: Literal["workload", "daemon", "storage"] = "workload"
    terminating: bool = False
    tolerates_mark: bool = False
    """Daemons that may stay."""
    budget: str | None = None
    """`namespace/name` of the disruption budget that guards it; all of them, where there are several."""
    budget_owner: str = ""
    """Whom to ask about it, where the cluster says so."""
    priority: int = 0
    grace_s: float | None = None
    """What the pod itself asks for to end well, where the cluster says so."""
    ends_by: datetime | None = None
    """Of a terminating pod: when its grace is over. A node that answers has ended it soon after."""


class Eviction(StrEnum):
    EVICTED = "evicted"
    GONE = "gone"
    BUDGET = "budget"
    """A disruption budget refuses; `Pod.budget` names it."""


class Cluster(Protocol):
    """One cluster. `name` is unique in a configuration."""

    name: str
    simulated: bool

    def nodes(self) -> Iterable[Node]: ...

    def node(self, name: str) -> Node | None:
        """A fresh read; None when it doesn't exist. Raises `Unreadable`."""
        ...

    def mark(self, node: str, mark: Mark) -> Literal["done", "already"]:
        """Cordon, taint, label, annotate in one atomic write. Raises `NotSent` (e.g. another incident's mark)."""
        ...

    def lift(self, node: str, incident: str) -> Literal["done", "already"]:
        """Removes only what that incident's mark put there, and the notices that its drains left on pods. A node that
        is gone is `already`.
        """
        ...

    def workloads(self, node: str) -> list[Workload]: ...

    def pods(self, node: str) -> list[Pod]: ...

    def notice(self, node: str, by: datetime) -> None:
        """Tells the pods on the node that they will be evicted at `by`; what they answered to another notice is void.
        Idempotent.
        """
        ...

    def take_back_notice(self, node: str, by: datetime) -> None:
        """Of the pods that stay, with what they answered to it. A notice for another time stands: it is another
        drain's. Idempotent. Raises `NotSent`, `Unreadable`.
        """
        ...

    def evict(self, pod: Pod, grace_s: float) -> Eviction:
        """Eviction with the pod's UID as precondition. Raises `NotSent` when throttled."""
        ...

    def delete(self, pod: Pod, grace_s: float) -> Eviction:
        """Deletion, which bypasses budgets; only where the plan says so."""
        ...


@runtime_checkable
class ListsWork(Protocol):
    """A cluster that tells of the work on all its nodes in a few reads, whatever their number."""

    def all_workloads(self) -> Mapping[str, list[Workload]]:
        """What `workloads` says of each node; nodes without any may be left out. Raises `Unreadable`."""
        ...


@runtime_checkable
class HasVolumes(Protocol):
    """A cluster that attaches volumes to its nodes."""

    def attachments(self, node: str) -> list[str]:
        """Volumes that are still attached though the pods that used them have left. Raises `Unreadable`."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """What a cluster says of its nodes by itself, as its API shows it."""

    kind: Literal["Node", "Event"]
    how: Literal["began", "relist", "expired", "failed", "changed", "gone", "alive"]
    """`changed`, `gone`: of one object. `alive`: nothing has happened, and the connection shows that it is so. The
    others: `objects` are all there are, listed for this reason."""
    objects: tuple[Mapping[str, Any], ...] = ()

    @property
    def listed(self) -> bool:
        """`objects` are all there are."""
        return self.how not in ("changed", "gone", "alive")


class Watching(Protocol):
    def close(self) -> None:
        """Ends it; returns when nothing is told any more. Blocking."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A cluster that tells what happens to its nodes, such as Kubernetes."""

    name: str

    def watch(self, hear: Callable[[Told], None], *, relist_s: float, events: bool) -> Watching:
        """Tells all there is, then what changes, and all anew every `relist_s` and after each gap.

        `hear` is called on other threads, one call at a time for each kind; while it blocks, nothing more is read.
        """
        ...


class Requeue(StrEnum):
    ENDING = "ending"
    """Its pods were told to end, all of them; asked again, it goes on from there."""
    DONE = "done"
    """It was started anew: it runs elsewhere, or waits in its queue."""
    LEFT = "left"
    """Not ours to start anew: the pods on the node are evicted one by one."""


class Requeued(Model):
    state: Requeue
    why: str = ""
    """How it comes back, or who has to see to that, in words."""


@runtime_checkable
class CanRequeue(Protocol):
    """A cluster that can end all pods of a gang together and start it anew, without spending its restarts."""

    def requeue(self, workload: Workload, node: str, incident: str) -> Requeued:
        """One step on the way, idempotent; a gang is started anew once in an incident. Raises `NotSent`, `Unreadable`.

        From the first step until `DONE` the node's `requeuing` names the gang, whatever dies in between.
        """
        ...

    def resume(self, node: str, incident: str) -> list[str]:
        """Starts whatever this incident has stopped and not yet started again; what couldn't be, in words."""
        ...


@runtime_checkable
class KnowsOwnNodes(Protocol):
    """A cluster that sees for itself which of its nodes run medevac, and what that lives on."""

    def runs_medevac(self, node: str) -> bool:
        """Raises `Unreadable`: who isn't sure disrupts nothing."""
        ...


@runtime_checkable
class LooksForOwn(Protocol):
    """A cluster that can say what of medevac's own it doesn't see, and so can't spare."""

    def own_unknown(self) -> tuple[str, ...]:
        """Such as `Temporal`: no pod of it is known here. It may run elsewhere. Raises `Unreadable`."""
        ...


@runtime_checkable
class CanFree(Protocol):
    """A cluster that keeps pods and volumes bound to a silent machine until somebody says that it is off."""

    def free(self, node: Node, *, gone: bool) -> list[str]:
        """Lets go of what a machine holds that is *proved* off; `gone` = for good, so that its node may go as well.

        One step on the way, idempotent: what is still held, in words; empty once nothing is, and what this needed is
        taken away again. Never while the machine may run: its pods would run twice, and their volumes be written by
        both. `last_look` comes right before each call, for they may be many. Raises `NotSent` (final where the node is
        another machine now), `Unreadable`.
        """
        ...


@runtime_checkable
class CanProbe(Protocol):
    """A cluster whose configuration knows commands that tell when a job's last complete checkpoint was made."""

    def probe(self, command: str, workload: Workload) -> datetime | None:
        """None where the command fails, says nothing that is a time, or isn't configured. Bounded in time."""
        ...


@runtime_checkable
class HasOthers(Protocol):
    """A cluster that can see whose programs repair its nodes beside us."""

    def remediators(self, node: Node) -> list[Remediator]:
        """Those that may repair this node, by name; at most a minute old. Raises `Unreadable`.

        What the account has no right to read is one of them.
        """
        ...


@runtime_checkable
class HasLocalData(Protocol):
    """A cluster that can see which of a node's own disks its work uses."""

    def local_data(self, node: str) -> tuple[str, ...]:
        """What would be gone with the machine, in words that stay the same while it does. Raises `Unreadable`."""
        ...


@runtime_checkable
class HasRights(Protocol):
    """A cluster, provider or chat whose account can be asked what it may do."""

    def missing_rights(self) -> list[str]:
        """What it lacks of what the configuration means it to do, in words; empty = nothing."""
        ...


@runtime_checkable
class HasUnaskedRights(Protocol):
    """One of these, where some rights can't be asked for without doing what they allow."""

    def unasked_rights(self) -> list[str]:
        """Why, and what a person has to check by hand; empty = all was asked. Never raises for one it can't reach."""
        ...
