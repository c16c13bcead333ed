"""A collection of objects, listed once and then watched; and by it all nodes of a cluster, kept up to date, so that
nobody has to list a fleet to look at it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, Literal, TypeVar

import urllib3

from activities.kubernetes.client import Client, Expired, Object
from activities.kubernetes.nodes import metadata
from activities.ports import Unreadable
from medevac.fleet.node import Node

log = logging.getLogger(__name__)
T = TypeVar("T")

NODES = "/api/v1/nodes"
WATCH_S = 30
"""The server ends a watch after it, and the next goes on where it ended: a connection that died is noticed so soon."""
SILENCE_S = WATCH_S + 10.0
"""What was last heard before it is not trusted any more; nodes are listed instead."""
RETRY_S = 1.0

Why = Literal["began", "relist", "expired", "failed"]


class ListWatch(ABC, Generic[T]):
    """On a thread of its own. Goes on where it was after a broken connection; lists anew where it can't.

    A version is gone on from only after what led to it was taken: a hook that raises costs a new listing.
    """

    def __init__(
        self, client: Client, path: str, query: Mapping[str, str] | None = None, relist_s: float = float("inf")
    ) -> None:
        self.client = client
        self.path = path
        self._query = query or {}
        self._relist_s = relist_s
        self._listed_at = float("-inf")
        self._version = ""
        self._thread: threading.Thread | None = None
        self._response: urllib3.BaseHTTPResponse | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()

    @abstractmethod
    def keep(self, thing: Object) -> T:
        """What is kept of an object."""

    @abstractmethod
    def listed(self, things: list[T], why: Why, began: float) -> None:
        """All there are, as of `began` or later (monotonic)."""

    @abstractmethod
    def changed(self, thing: T, gone: bool) -> None: ...

    @abstractmethod
    def alive(self) -> None:
        """The server goes on from what was heard: it is what there is, but for what it sends now."""

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name=f"watch {self.path}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        self._over.set()
        with self._lock:
            thread, response = self._thread, self._response
        if response is not None:
            with contextlib.suppress(ValueError, OSError):  # it has ended by itself
                response.shutdown()
        if thread is not None:
            thread.join(5)

    def _run(self) -> None:
        why: Why | None = "began"
        seconds = int(max(1, min(WATCH_S, self._relist_s)))
        while not self._over.is_set():
            try:
                if time.monotonic() - self._listed_at >= self._relist_s:
                    why = why or "relist"
                if why:
                    self._list(why)
                    why = None
                for change in self.client.watch(self.path, self._version, seconds, self._opened, self._query):
                    self._take(change)
            except Expired:
                why = "expired"
            except Unreadable as error:
                if not self._over.is_set():
                    log.warning("%s is not watched: %s", self.path, error)
                self._over.wait(RETRY_S)
            except Exception:
                # Whatever it was: what is known may have a hole now.
                log.exception("the watch of %s failed and begins anew", self.path)
                why = "failed"
                self._over.wait(RETRY_S)

    def _list(self, why: Why) -> None:
        began, found, version = time.monotonic(), list[T](), ""
        for page in self.client.pages(self.path, self._query):
            version = metadata(page).get("resourceVersion", "")
            found += map(self.keep, page.get("items") or ())
        self.listed(found, why, began)
        self._version, self._listed_at = version, began

    def _opened(self, response: urllib3.BaseHTTPResponse) -> None:
        with self._lock:
            self._response = response
        if response.status == 200:
            self.alive()
        if self._over.is_set():
            response.shutdown()

    def _take(self, change: Object) -> None:
        thing, kind = change["object"], change["type"]
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self.changed(self.keep(thing), kind == "DELETED")
        else:
            self.alive()
        self._version = metadata(thing)["resourceVersion"]


class NodeWatch(ListWatch[Node]):
    """Begins with the first question. Its answers lag by milliseconds; a step that acts reads its node afresh."""

    def __init__(self, client: Client, read: Callable[[Object], Node]) -> None:
        super().__init__(client, NODES)
        self._read = read
        self._nodes: dict[str, Node] = {}
        self._heard = float("-inf")

    def nodes(self) -> list[Node]:
        """By name. Raises `Unreadable`."""
        with self._lock:
            if time.monotonic() - self._heard < SILENCE_S:
                return [self._nodes[name] for name in sorted(self._nodes)]
        self.start()
        return sorted((self.keep(thing) for thing in self.client.list(NODES)), key=lambda node: node.name)

    def keep(self, thing: Object) -> Node:
        return self._read(thing)

    def listed(self, things: list[Node], why: Why, began: float) -> None:
        with self._lock:
            self._nodes, self._heard = {node.name: node for node in things}, began

    def changed(self, thing: Node, gone: bool) -> None:
        with self._lock:
            if gone:
                self._nodes.pop(thing.name, None)
            else:
                self._nodes[thing.name] = thing
            self._heard = time.monotonic()

    def alive(self) -> None:
        with self._lock:
            self._heard = time.monotonic()
