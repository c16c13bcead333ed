"""Checks, ticket systems, chats and pagers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

from pydantic import AwareDatetime, JsonValue

from medevac.cases.letter import Share
from medevac.faults.classes import Covers
from medevac.fleet.node import Node
from medevac.incident import StepKey
from medevac.model import Model
from medevac.telling.card import Card
from medevac.telling.facts import Links


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
    at: AwareDatetime
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

    def know(self, places: Callable[[str], Place | None], people: Mapping[str, tuple[str, str]] | None = None) -> None:
        """How it finds the message in whose thread plain lines are told, by the thread's name; and who people are in a
        chat (workspace, user), by principal, so that they can be called."""
        ...


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


@runtime_checkable
class CanBeAsked(Protocol):
    """Optional, of a pager: shows that it would be heard, and wakes nobody."""

    def ask(self) -> str:
        """What that has shown, what it can't show, and how to try the rest by hand, in one line. May be made at any
        time. Raises `NotSent`, `Unclear` where a page wouldn't be taken either.
        """
        ...
