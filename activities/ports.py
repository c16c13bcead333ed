"""The outside systems as this project sees them. Every adapter (and the simulation) obeys `tests/contracts/`.

All calls are blocking, have their own time-outs, and are made from activities on a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import JsonValue

from medevac.cases.letter import Share
from medevac.faults.classes import Covers
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Capability, Machine, Node, Workload
from medevac.fleet.remediator import Remediator
from medevac.incident import StepKey
from medevac.model import Model
from medevac.telling.card import Card
from medevac.telling.facts import Links


class NotSent(Exception):
    """The call surely had no effect (refused, throttled, validation). Safe to make again.

    `retry_after_s` is the system's own wish; `final` means that trying again can't help.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None, final: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.final = final


class Unclear(Exception):
    """The call may have had its effect (time-out, connection lost). Never made again; its proof is waited for."""


class Unreadable(Exception):
    """The world can't be read. A destructive step takes this as a no; a protective one may retry."""


class NotAllowed(Unreadable):
    """It can't be read, and asking again can't help: wrong credentials, a missing right, an unknown region."""


# -- cluster ---------------------------------------------------------------------------------------------------


class Mark(Model):
    incident: str
    code: str
    """Of the worst open fault, as a label value: `xid-79`."""
    faults: tuple[str, ...]
    reason: str


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
        """Removes only what that incident's mark put there. A node that is gone is `already`."""
        ...

    def workloads(self, node: str) -> list[Workload]: ...

    def pods(self, node: str) -> list[Pod]: ...

    def notice(self, node: str, by: datetime) -> None:
        """Tells the pods on the node that they will be evicted at `by`. Idempotent."""
        ...

    def evict(self, pod: Pod, grace_s: float) -> Eviction:
        """Eviction with the pod's UID as precondition. Raises `NotSent` when throttled."""
        ...

    def delete(self, pod: Pod, grace_s: float) -> Eviction:
        """Deletion, which bypasses budgets; only where the plan says so."""
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
class CanFree(Protocol):
    """A cluster that keeps pods and volumes bound to a silent machine until somebody says that it is off."""

    def free(self, node: Node, *, gone: bool) -> list[str]:
        """Lets go of what a machine holds that is *proved* off; `gone` = for good, so that its node may go as well.

        One step on the way, idempotent: what is still held, in words; empty once nothing is, and what this needed is
        taken away again. Never while the machine may run: its pods would run twice, and their volumes be written by
        both. Raises `NotSent` (final where the node is another machine now), `Unreadable`.
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


# -- machines --------------------------------------------------------------------------------------------------


class Verb(StrEnum):
    """What can be done to a machine. Each call is one physical effect."""

    RESTART_AGENT = "restart_agent"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    REINSTALL = "reinstall"
    REQUEST = "request"
    """Ask for a successor machine."""
    TERMINATE = "terminate"


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


# -- checks, tickets, chat -------------------------------------------------------------------------------------


class CheckResult(Model):
    passed: bool
    covers: tuple[Covers, ...]
    started_at: datetime
    boot_id: str | None = None
    reason: str = ""
    flake: bool = False
    """The check itself couldn't run (e.g. CUDA init); not a verdict on the node."""
    detail: dict[str, JsonValue] = {}


class Checks(Protocol):
    simulated: bool

    def covers(self, node: Node) -> frozenset[Covers]:
        """What a check of this node can prove; empty = no real check exists, and nothing is returned by it."""
        ...

    def run(self, node: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult | None:
        """Starts the check named by `key` or reads the one that runs; None while it isn't finished.

        Never runs twice for one key.
        """
        ...


class TicketRef(Model):
    system: str
    id: str
    url: str = ""


class Tickets(Protocol):
    simulated: bool

    def find(self, key: str) -> TicketRef | None:
        """Searches open and recent tickets for our key. Raises `Unreadable`."""
        ...

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        """One physical ticket; takes no token. Raises `NotSent` or `Unclear`."""
        ...


class Said(Model):
    """One entry of a ticket's correspondence."""

    id: str
    at: datetime
    author: str = ""
    text: str
    ours: bool
    """Written by us, or by anybody with our account."""
    headers: dict[str, str] = {}
    """Of a message; they tell automatic ones."""
    subject: str = ""


class Thread(Model):
    open: bool
    """The other side hasn't closed it."""
    said: tuple[Said, ...] = ()
    """Oldest first."""


@runtime_checkable
class HasThread(Protocol):
    """A ticket system whose tickets can be read, answered and closed."""

    def thread(self, ref: TicketRef, key: str) -> Thread:
        """What was said since the ticket was opened, in both directions. Raises `Unreadable`."""
        ...

    def comment(self, ref: TicketRef, key: str, token: str, text: str) -> None:
        """One physical comment; `token` is in its text, by which it is found again. Raises `NotSent` or `Unclear`."""
        ...

    def close(self, ref: TicketRef, key: str) -> None:
        """Closed twice it is closed. Raises `NotSent` or `Unclear`."""
        ...


@runtime_checkable
class Discloses(Protocol):
    """A ticket system whose configuration says what may leave the company through it."""

    share: tuple[Share, ...]


class Chat(Protocol):
    simulated: bool

    def find(self, key: str) -> str | None:
        """Reference of a message already posted with this key, if it can be searched."""
        ...

    def post(self, key: str, thread: str, text: str) -> str:
        """One physical message. Raises `NotSent` or `Unclear`."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands in a chat."""

    channel: str
    reference: str


class About(Model):
    """What a message is about, as far as that decides where it is told."""

    cluster: str = ""
    pool: str | None = None
    fault_class: str | None = None
    teams: tuple[str, ...] = ()
    """Owners of the jobs hit."""
    asks: bool = False
    """It is a question to those who may approve."""


@runtime_checkable
class Board(Protocol):
    """A chat whose messages can be changed later, so that each says what is true now."""

    system: str
    links: Links
    tells_owners: bool
    """Whether owners of jobs play a part in where things are told; nobody reads them otherwise."""

    def channel(self, about: About) -> str: ...

    def channel_of(self, owner: str) -> str | None:
        """Where this owner of jobs is told of them; None where nobody has said."""
        ...

    def show(self, key: str, channel: str, card: Card, at: Place | None) -> Place:
        """Posts it, or changes the message at `at`. Raises `NotSent` (final where it is gone) or `Unclear`."""
        ...

    def search(self, key: str, channel: str) -> Place | None:
        """A message of that key among the channel's latest, posted by whichever process. Raises `Unreadable`."""
        ...

    def know(self, places: Callable[[str], Place | None]) -> None:
        """How it finds the message in whose thread plain lines are told, by the thread's name."""
        ...


# -- pagers ----------------------------------------------------------------------------------------------------


class Page(Model):
    """Why a person is woken. `key` is the same for as long as that stands, and begins with `medevac/`."""

    key: str
    """The paging system's own deduplication key. By its beginning our own pages are known when they come back."""
    title: str
    text: str = ""
    source: str
    """What it is about: `cluster/node`, or `cluster`."""
    severity: Literal["critical", "warning"] = "critical"


class Pager(Protocol):
    """Both calls are idempotent by the page's key, so that they may be made again by whichever process."""

    name: str
    simulated: bool

    def page(self, page: Page) -> None:
        """Wakes somebody, or changes what they were told. Raises `NotSent` (final: never taken), `Unclear`."""
        ...

    def resolve(self, page: Page) -> None:
        """It doesn't stand any more. One that nobody knows is resolved. Raises as `page` does."""
        ...
