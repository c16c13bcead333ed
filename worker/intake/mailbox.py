"""Between the threads that hear a cluster and the one who passes it on: the latest of each node and each Event.

Bounded by the fleet and by `MOST_EVENTS`; who tells more must wait. What was taken out and not held goes back in,
unless something newer of the same thing has come meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.ports import Told
from worker.intake.conditions import Level

MOST_EVENTS = 10_000


@dataclass(frozen=True, slots=True)
class NodeNews:
    name: str
    node: Mapping[str, Any] | None
    """None: it is gone."""
    level: Level


@dataclass(frozen=True, slots=True)
class EventNews:
    uid: str
    thing: Mapping[str, Any] | None
    listed: bool
    """It was found rather than told as it happened, and may be old."""


@dataclass(frozen=True, slots=True)
class Batch:
    nodes: list[NodeNews] = field(default_factory=list)
    events: list[EventNews] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes) + len(self.events)


class Mailbox:
    """Thread-safe."""

    def __init__(self, arrived: Callable[[], None], most_events: int = MOST_EVENTS) -> None:
        self._arrived = arrived
        self._most_events = most_events
        self._nodes: dict[str, NodeNews] = {}
        self._events: dict[str, EventNews] = {}
        self._known: set[str] = set()
        """Nodes that were told and are not gone: a listing without one tells that it went."""
        self._room = threading.Condition()
        self._closed = False

    def put(self, told: Told) -> None:
        """Blocks while too much lies here."""
        with self._room:
            if told.kind == "Node":
                self._put_nodes(told)
            else:
                self._put_events(told)
        self._arrived()

    def _put_nodes(self, told: Told) -> None:
        named = {str(thing["metadata"]["name"]): thing for thing in told.objects}
        if told.how == "gone":
            for name in named:
                self._gone(name)
            return
        level = Level.RELIST if told.listed else Level.CHANGE
        if level is not Level.CHANGE:
            for name in self._known - set(named):
                self._gone(name)
        for name, thing in named.items():
            before = self._nodes.get(name)
            self._nodes[name] = NodeNews(name, thing, max(level, before.level) if before else level)
        self._known |= set(named)

    def _gone(self, name: str) -> None:
        self._nodes[name] = NodeNews(name, None, Level.CHANGE)
        self._known.discard(name)

    def _put_events(self, told: Told) -> None:
        for thing in told.objects:
            uid = str((thing.get("metadata") or {}).get("uid") or "")
            if told.how != "gone":
                # What was told as it happened stays so, however often it is found again.
                before = self._events.get(uid)
                news = EventNews(uid, thing, told.listed and not (before and before.thing and not before.listed))
            elif uid in self._events:
                continue  # it expired before we came to say it
            else:
                news = EventNews(uid, None, False)
            while not told.listed and len(self._events) >= self._most_events and not self._closed:
                self._room.wait()
            self._events[uid] = news

    def take(self, most: int) -> Batch:
        """The oldest of each."""
        with self._room:
            batch = Batch(_pop(self._nodes, most), _pop(self._events, most))
            self._room.notify_all()
            return batch

    def put_back(self, batch: Batch) -> None:
        """To the front: it is the oldest."""
        with self._room:
            self._nodes = _merged(batch.nodes, self._nodes, lambda news: news.name)
            self._events = _merged(batch.events, self._events, lambda news: news.uid)
            for old in batch.nodes:
                new = self._nodes[old.name]
                if new.node is not None and old.level > new.level:
                    self._nodes[old.name] = NodeNews(new.name, new.node, old.level)
        self._arrived()

    def close(self) -> None:
        with self._room:
            self._closed = True
            self._room.notify_all()


def _pop(where: dict[str, Any], most: int) -> list[Any]:
    return [where.pop(key) for key in list(where)[:most]]


def _merged(back: Iterable[Any], newer: dict[str, Any], key: Callable[[Any], str]) -> dict[str, Any]:
    return {**{key(news): news for news in back}, **newer}
