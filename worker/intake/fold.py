"""Repeats of an open fault cost Temporal one signal per statement and `fold_s`, however often and wherever they come.

What makes a repeat stands in the ledger, so that it holds over every process that hears: a fault that another gateway
has taken back meanwhile is news. Without the ledger nothing is folded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from activities.storage.said import Said
from medevac.events.event import HealthEvent
from medevac.model import digest
from worker.intake.lanes import remember
from worker.intake.part import Part

SURE = timedelta(seconds=5)
"""For this long after a statement its incident is taken to be open: the ledger lags a little. Clocks of two processes
may differ by as much."""


def key_of(cluster: str, node: str, event: HealthEvent) -> str:
    """What the ledger files the sender's last word under."""
    return _key(cluster, node, event.source, event.sender, event.dedupe_key)


def keys_of(cluster: str, node: str, event: HealthEvent) -> tuple[str, ...]:
    """All that must be asked for: the statement's own key, and that of what takes its whole series back."""
    own = key_of(cluster, node, event)
    if event.series is None or event.series == event.dedupe_key:
        return (own,)
    return own, _key(cluster, node, event.source, event.sender, event.series)


def words_of(event: HealthEvent, *, idle: bool = False) -> str:
    """A change of any of these is never a repeat. `idle`: there was no incident to tell."""
    return f"{event.kind}|{event.fault}|{event.severity}" + ("|idle" if idle else "")


class Fold:
    """Tells repeats. Remembers the statements of this process, bounded; forgetting costs one signal."""

    def __init__(self, fold_s: float, size: int = 50_000) -> None:
        self._fold = timedelta(seconds=fold_s)
        self._size = size
        self._last: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def repeats(self, part: Part, now: datetime, said: Mapping[str, Said]) -> bool:
        """True when this says nothing that wasn't said, and held, within `fold_s`, to the incident that is open now.

        `said`: what the ledger has of `keys_of`.
        """
        own, *series = keys_of(part.cluster, part.node, part.event)
        last = said.get(own)
        if last is None:
            return False
        idle = last.words == words_of(part.event, idle=True)
        if not idle and last.words != words_of(part.event):
            return False
        if any(one in said and said[one].at >= last.at for one in series):
            return False
        age = now - last.at
        if not -SURE <= age < self._fold:
            return False
        since = part.open_since
        if idle:
            return since is None and not part.opens
        # A fault whose incident has ended since must open a new one.
        return age < SURE or not part.opens or (since is not None and last.at + SURE >= since)

    def signalled(self, cluster: str, node: str, event: HealthEvent, at: float) -> None:
        remember(self._last, key_of(cluster, node, event), (words_of(event), at), self._size)

    def signalled_since(self, cluster: str, node: str, event: HealthEvent, began: float) -> bool:
        """True when this process has passed on just this after `began`, while the one asked about waited its turn."""
        words, at = self._last.get(key_of(cluster, node, event), ("", 0.0))
        return words == words_of(event) and at >= began

    def expects(self, cluster: str, node: str, event: HealthEvent) -> bool:
        """A guess without the ledger: probably a repeat, so nothing is lost when it is looked at with others."""
        words, _ = self._last.get(key_of(cluster, node, event), ("", 0.0))
        return words == words_of(event)

    def forget(self, cluster: str, node: str, event: HealthEvent) -> None:
        self._last.pop(key_of(cluster, node, event), None)


@lru_cache(maxsize=50_000)
def _key(cluster: str, node: str, source: str, sender: str, name: str) -> str:
    """Asked for many times on one event's way."""
    return digest([cluster, node, source, sender, name])
