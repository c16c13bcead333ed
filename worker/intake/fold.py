"""Repeats of an open fault cost Temporal one signal per statement and `fold_s`, however often they are sent."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from medevac.events.event import HealthEvent

_SURE_S = 5.0
"""Within this of the last signal the incident is taken to be open without asking the ledger, which lags a little."""

_SEEN_S = 2.0
"""How long an incident that the ledger showed as open is taken to be so by repeats."""

Key = tuple[str, str, str, str, str]
Signature = tuple[str, str | None, str | None]


class Fold:
    """Remembers the last signalled statement of each (node, sender, key). Bounded; forgetting costs one signal."""

    def __init__(self, fold_s: float, size: int = 50_000) -> None:
        self._fold_s = fold_s
        self._size = size
        self._last: OrderedDict[Key, tuple[Signature, float]] = OrderedDict()
        self._open: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lock = threading.Lock()

    def repeats(self, cluster: str, node: str, event: HealthEvent, now: float, is_open: Callable[[], bool]) -> bool:
        """True when this says nothing that was not signalled within `fold_s`.

        A change of kind, fault or severity is never a repeat, and neither is a fault whose incident has ended
        (`is_open`, asked only when needed): it must open a new one.
        """
        with self._lock:
            last = self._last.get(_key(cluster, node, event))
        if last is None or last[0] != _signature(event):
            return False
        age = now - last[1]
        if not 0 <= age < self._fold_s:
            return False
        return age < _SURE_S or is_open()

    def just_said(self, cluster: str, node: str, event: HealthEvent, now: float) -> bool:
        """True for a repeat that needs no look at the ledger: its incident was signalled, or seen open, lately."""
        with self._lock:
            last = self._last.get(_key(cluster, node, event))
            open_at = self._open.get((cluster, node), -_SURE_S)
        if last is None or last[0] != _signature(event):
            return False
        age = now - last[1]
        return 0 <= age < self._fold_s and (age < _SURE_S or 0 <= now - open_at < _SEEN_S)

    def seen_open(self, cluster: str, node: str, now: float) -> None:
        with self._lock:
            self._open[cluster, node] = now
            self._open.move_to_end((cluster, node))
            while len(self._open) > self._size:
                self._open.popitem(last=False)

    def forget(self, cluster: str, node: str, event: HealthEvent) -> None:
        """Something else is on its way under this key; whatever comes next is no repeat."""
        with self._lock:
            self._last.pop(_key(cluster, node, event), None)

    def signalled(self, cluster: str, node: str, event: HealthEvent, now: float) -> None:
        key = _key(cluster, node, event)
        with self._lock:
            self._last[key] = (_signature(event), now)
            self._last.move_to_end(key)
            while len(self._last) > self._size:
                self._last.popitem(last=False)


def _key(cluster: str, node: str, event: HealthEvent) -> Key:
    return (cluster, node, event.source, event.sender, event.dedupe_key)


def _signature(event: HealthEvent) -> Signature:
    return (event.kind, event.fault, event.severity)
