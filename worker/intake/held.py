"""What the inbox holds: an event that Temporal has not taken yet, or whose node nobody knows yet."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

from activities.storage.inbox import Item
from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import FaultClass
from medevac.model import Model, digest
from worker.intake.lanes import remember

UNKNOWN_FOR = timedelta(minutes=15)
"""How long an unknown node is tried against the inventory: it may be joining its cluster just now."""
UNKNOWN_EVERY = timedelta(seconds=15)
WORTH_KEEPING = frozenset({Kind.FAULT, Kind.RECOVERED, Kind.PLANNED, Kind.LIFECYCLE, Kind.CHECK})
"""Of an unknown node. A number or a notice is of no use minutes later."""
AHEAD_S = {FaultClass.CRITICAL: 900.0, FaultClass.DEGRADED: 600.0, FaultClass.TRANSIENT: 300.0}
PLANNED_AHEAD_S = 600.0
NEW_AHEAD_S = 150.0
"""By how much a worse fault, a notice, and a code that the node hadn't sent yet come before what waits of that node: as
if they had come so much earlier, so that nothing is overtaken for ever."""
NEW_AFTER = timedelta(minutes=10)


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


class Codes:
    """Which codes a node hasn't sent for a while. Bounded; forgetting costs an order, nothing else."""

    def __init__(self, size: int = 50_000) -> None:
        self._size = size
        self._last: OrderedDict[tuple[str, str], datetime] = OrderedDict()

    def is_new(self, lane: str, code: str | None, now: datetime) -> bool:
        if code is None:
            return False
        last = self._last.get((lane, code))
        remember(self._last, (lane, code), now, self._size)
        return last is None or now - last > NEW_AFTER


def stranger_lane(event: HealthEvent) -> str:
    """Where events of a name wait that no node has. Names with this mark are no clusters'."""
    return f"?{(event.cluster or '').lower()}/{(event.subject or ' '.join(event.gpu_ids)).strip().lower()}"[:500]


def item_of(held: Held, lane: str, now: datetime, *, new_code: bool = False) -> Item:
    """The same statement again takes the place of the earlier one."""
    event = held.event
    whose = [lane, event.source, event.sender]
    ahead = PLANNED_AHEAD_S if event.kind is Kind.PLANNED else 0.0
    if event.kind is Kind.FAULT and event.fault_class is not None:
        ahead = AHEAD_S.get(event.fault_class, 0.0)
    at = event.received_at or now
    return Item(
        key=digest([*whose, event.dedupe_key, event.kind, event.fault, event.severity]),
        at=at,
        body=held.model_dump(mode="json", exclude_defaults=True),
        lane=lane,
        due_at=now + UNKNOWN_EVERY if held.node is None else None,
        # A clear may take a whole series back, so nothing of one series passes another of it.
        family=digest([*whose, event.series or event.dedupe_key]),
        turn=at.timestamp() - ahead - (NEW_AHEAD_S if new_code else 0.0),
    )
