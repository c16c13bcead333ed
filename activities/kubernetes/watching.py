"""All nodes of a cluster, kept up to date by a watch, so that nobody has to list a fleet to look at it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import urllib3

from activities.kubernetes.client import Client, Expired, Object
from activities.kubernetes.nodes import metadata
from activities.ports import Unreadable
from medevac.fleet.node import Node

log = logging.getLogger(__name__)

PATH = "/api/v1/nodes"
WATCH_S = 30
"""The server ends a watch after it, and the next goes on where it ended: a connection that died is noticed so soon."""
SILENCE_S = WATCH_S + 10.0
"""What was last heard before it is not trusted any more; nodes are listed instead."""
RETRY_S = 1.0


@dataclass(slots=True)
class NodeWatch:
    """Begins with the first question. Its answers lag by milliseconds; a step that acts reads its node afresh."""

    client: Client
    read: Callable[[Object], Node]
    _nodes: dict[str, Node] = field(default_factory=dict)
    _version: str = ""
    """To go on from; empty = everything must be read anew."""
    _heard: float = float("-inf")
    _thread: threading.Thread | None = None
    _response: urllib3.BaseHTTPResponse | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def nodes(self) -> list[Node]:
        """By name. Raises `Unreadable`."""
        with self._lock:
            if time.monotonic() - self._heard < SILENCE_S:
                return [self._nodes[name] for name in sorted(self._nodes)]
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)
                self._thread.start()
        return sorted((self.read(thing) for thing in self.client.list(PATH)), key=lambda node: node.name)

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
        while not self._over.is_set():
            try:
                if not self._version:
                    self._list()
                for change in self.client.watch(PATH, self._version, WATCH_S, self._opened):
                    self._take(change)
            except Expired:
                self._version = ""
            except Unreadable as error:
                if not self._over.is_set():
                    log.warning("nodes are not watched: %s", error)
                self._over.wait(RETRY_S)
            except Exception:
                # Whatever it was: what is known may have a hole now.
                log.exception("the watch of nodes failed and begins anew")
                self._version = ""
                self._over.wait(RETRY_S)

    def _list(self) -> None:
        began, found, version = time.monotonic(), dict[str, Node](), ""
        for page in self.client.pages(PATH):
            version = metadata(page).get("resourceVersion", "")
            found |= {metadata(thing)["name"]: self.read(thing) for thing in page.get("items") or ()}
        with self._lock:
            self._nodes, self._version, self._heard = found, version, began

    def _opened(self, response: urllib3.BaseHTTPResponse) -> None:
        with self._lock:
            self._response = response
            if response.status == 200:
                # The server goes on from our version: what we have is what there is, but for what it sends now.
                self._heard = time.monotonic()
        if self._over.is_set():
            response.shutdown()

    def _take(self, change: Object) -> None:
        thing = change["object"]
        name, version = metadata(thing).get("name", ""), metadata(thing)["resourceVersion"]
        node = self.read(thing) if change["type"] in ("ADDED", "MODIFIED") else None
        with self._lock:
            if node is not None:
                self._nodes[name] = node
            elif change["type"] == "DELETED":
                self._nodes.pop(name, None)
            self._version, self._heard = version, time.monotonic()
