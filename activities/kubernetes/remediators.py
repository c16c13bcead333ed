"""Which programs repair nodes beside us: those that run, the objects that order it, and the clouds' own.

What is listed is kept for a minute and read when somebody asks, so an idle fleet costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from activities.kubernetes import clouds, health_checks, installed, others
from activities.kubernetes.client import Client
from activities.kubernetes.reach import Found
from activities.ports import Unreadable
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator, Switch

FRESH_S = 60.0
"""How long a remediator that was just switched off still counts."""
STALE_S = 600.0
"""What was known before an outage counts so long."""
RETRY_S = 15.0
KNOWN = frozenset(sign.who for sign in others.SIGNS) - {others.AUTOSCALER}


def read(client: Client) -> Iterator[Found]:
    """Raises `Unreadable`."""
    yield from installed.running(client)
    for versions in health_checks.MACHINES:
        yield from health_checks.machines(client, versions)
    yield from health_checks.nodes(client)


@dataclass(slots=True)
class Remediators:
    client: Client
    _found: tuple[Found, ...] = ()
    _until: float = float("-inf")
    _read_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, node: Node) -> list[Remediator]:
        """By name. One whose marks stand on the node is among them, whatever the API shows. Raises `Unreadable`."""
        named: dict[str, Remediator] = {}
        for one in (*self._api(), *clouds.of(node)):
            if one.covers(node):
                named.setdefault(one.remediator.name, one.remediator)
        who = node.foreign_cordon
        if who in KNOWN and who not in named:
            seen = f"its marks on {node.name}"
            named[who] = Remediator(name=who, switch=Switch.OUTSIDE, seen=seen, off="see docs/migrate")
        return sorted(named.values(), key=lambda one: one.name)

    def _api(self) -> tuple[Found, ...]:
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                try:
                    self._found, self._until, self._read_at = tuple(read(self.client)), now + FRESH_S, now
                except Unreadable:
                    if now - self._read_at > STALE_S:
                        raise
                    self._until = now + RETRY_S
            return self._found
