"""What the inbox holds: an event that Temporal has not taken yet, or whose node nobody knows yet."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.storage.inbox import Item
from medevac.events.event import HealthEvent, Kind
from medevac.model import Model, digest

UNKNOWN_FOR = timedelta(minutes=15)
"""How long an unknown node is tried against the inventory: it may be joining its cluster just now."""
UNKNOWN_EVERY = timedelta(seconds=15)
WORTH_KEEPING = frozenset({Kind.FAULT, Kind.RECOVERED, Kind.PLANNED, Kind.LIFECYCLE, Kind.CHECK})
"""Of an unknown node. A number or a notice is of no use minutes later."""


class Held(Model):
    event: HealthEvent
    clusters: tuple[str, ...]
    """That its sender may speak for."""
    cluster: str | None = None
    node: str | None = None
    """As resolved; None while nobody knows it."""
    until: datetime | None = None
    """With an unknown node: when it is given up."""


class Strangers:
    """Bounds what junk names can fill the inbox with: so many in each `UNKNOWN_FOR`, then they are only recorded."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._count = 0
        self._since: datetime | None = None

    def admit(self, now: datetime) -> bool:
        if self._since is None or now - self._since > UNKNOWN_FOR:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= self._most


def stranger_lane(event: HealthEvent) -> str:
    """Where events of a name wait that no node has. Names with this mark are no clusters'."""
    return f"?{(event.cluster or '').lower()}/{(event.subject or '').strip().lower()}"[:500]


def item_of(held: Held, lane: str, now: datetime) -> Item:
    """The same statement again takes the place of the earlier one, at its own turn."""
    event = held.event
    said = [lane, event.source, event.sender, event.dedupe_key, event.kind, event.fault, event.severity]
    return Item(
        key=digest(said),
        at=event.received_at or now,
        body=held.model_dump(mode="json", exclude_defaults=True),
        lane=lane,
        due_at=now + UNKNOWN_EVERY if held.node is None else None,
    )
