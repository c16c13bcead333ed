"""One open fault, and the statements by which its senders hold it open."""

from __future__ import annotations

from datetime import datetime, timedelta

from medevac.events.event import HealthEvent, Kind, Severity, Statement
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.expected import said_by
from medevac.fleet.order import Order
from medevac.model import Model

RETAKES = {"xid/162": "xid/163"}
"""Log lines that take back another one."""
MISSED = 2
"""Repeat intervals after which a level that isn't stated any more is unknown (protocols, what clears a fault)."""
MAX_RAISERS = 32
MAX_ENTITIES = 64
ANYONE = "*"
"""Key of the raiser that stands for those that didn't fit; no clear matches it."""


class Raiser(Model):
    """One sender's open statement of a fault; only the same sender and key can take it back."""

    source: str
    sender: str
    dedupe_key: str
    last_seen: datetime
    cleared_at: datetime | None = None
    series: str | None = None
    statement: Statement = Statement.EDGE
    entities: tuple[str, ...] = ()
    starts_at: datetime | None = None
    actionable: bool = True
    every_s: float | None = None
    """Its longest pause between two repeats so far; None before the first repeat."""
    said: str = ""
    """Of a latching condition: what it says, by which its mere repeats are known (`said_by`)."""

    @classmethod
    def of(cls, event: HealthEvent, now: datetime) -> Raiser:
        return cls(
            source=event.source,
            sender=event.sender,
            dedupe_key=event.dedupe_key,
            last_seen=now,
            series=event.series,
            statement=event.statement,
            entities=event.entities[:MAX_ENTITIES],
            starts_at=event.starts_at,
            actionable=event.actionable,
            said=said_by(event),
        )

    def unknown_at(self, repeat_s: float) -> datetime | None:
        """When a level that isn't repeated any more stops being known: neither clear nor still there.

        `repeat_s`: at which such senders repeat as a rule; one that has been seen to take longer has its own rate.
        None for an edge, which is never repeated, and for one that was taken back.
        """
        if self.statement is Statement.EDGE or self.cleared_at is not None:
            return None
        return self.last_seen + MISSED * timedelta(seconds=max(repeat_s, self.every_s or 0.0))

    def same_sender(self, event: HealthEvent) -> bool:
        return self.source == event.source and self.sender == event.sender

    def taken_back_by(self, event: HealthEvent) -> bool:
        return self.same_sender(event) and event.dedupe_key in (self.dedupe_key, self.series)

    def replaced_by(self, event: HealthEvent) -> bool:
        """A later instance of the same series (an alert that fires anew): its key is the series and its start."""
        return (
            self.same_sender(event)
            and self.series == event.series
            and _is_instance(self.series, self.dedupe_key, self.starts_at)
            and _is_instance(event.series, event.dedupe_key, event.starts_at)
        )


class OpenFault(Model):
    code: str
    fault_class: FaultClass
    covers: tuple[Covers, ...]
    severity: Severity | None = None
    statement: Statement = Statement.EDGE
    entities: tuple[str, ...] = ()
    first_seen: datetime
    last_seen: datetime
    count: int = 1
    raised_by: tuple[Raiser, ...]
    boot_id: str | None = None
    not_before: datetime | None = None
    ends_at: datetime | None = None
    summary: str = ""
    actionable: bool = True
    note: str = ""
    """Why the class is what it is when that isn't the catalogue's row alone (`48 with 63`, `154 says reboot`)."""
    advice: str | None = None
    """Rung that the catalogue or the driver asks for first."""
    order: Order | None = None
    """A campaign's, where this isn't a fault but its wish."""
    symptoms: tuple[str, ...] = ()
    """Codes that came in its train and are no faults of their own."""

    @property
    def taken_back_at(self) -> datetime | None:
        """When the last of those who raised it took it back; None while one of them stands by it."""
        times = [r.cleared_at for r in self.raised_by]
        return max((t for t in times if t), default=None) if all(times) else None

    def settles_at(self, dwell_s: float) -> datetime | None:
        """When its clear takes effect; None for a latched one and for one that somebody stands by."""
        at = self.taken_back_at
        if at is None or self.fault_class.latched:
            return None
        # A provider that calls its notice off needs no dwell.
        return at if self.fault_class is FaultClass.PLANNED else at + timedelta(seconds=dwell_s)

    def unknown_at(self, repeat_s: float) -> datetime | None:
        """When nobody's statement of it is fresh any more. None for a latched fault, which stands whatever is said,
        for one that an edge raised, and for one that was taken back."""
        if self.fault_class.latched:
            return None
        standing = [r for r in self.raised_by if r.cleared_at is None]
        times = [r.unknown_at(repeat_s) for r in standing]
        return max((t for t in times if t), default=None) if all(times) else None

    def is_taken_back_by(self, event: HealthEvent) -> bool:
        return any(self._matches(r, event) for r in self.raised_by)

    def taken_back(self, event: HealthEvent, now: datetime) -> OpenFault:
        """With its sender's statements marked as taken back; those of others stand."""
        raised_by = tuple(
            r.model_copy(update={"cleared_at": r.cleared_at or now}) if self._matches(r, event) else r
            for r in self.raised_by
        )
        return self.model_copy(update={"raised_by": raised_by}).as_its_raisers_allow()

    def stated(self, event: HealthEvent, now: datetime) -> OpenFault:
        """Stated once more: by whom, when and how often, and nothing else of it changes."""
        seen = {"count": self.count + 1, "last_seen": max(now, self.last_seen)}
        return self.model_copy(update={"raised_by": raised(self.raised_by, event, now), **seen})

    def as_its_raisers_allow(self) -> OpenFault:
        """Only what still stands may be acted on; a latched fault stands whatever its senders take back."""
        left = [r for r in self.raised_by if r.cleared_at is None]
        if self.fault_class.latched or not left:
            return self
        return self.model_copy(update={"actionable": any(r.actionable for r in left)})

    def _matches(self, raiser: Raiser, event: HealthEvent) -> bool:
        if event.kind is Kind.RECOVERED:
            return raiser.taken_back_by(event)
        apart = event.entities and raiser.entities and not set(event.entities) & set(raiser.entities)
        return RETAKES.get(event.fault or "") == self.code and raiser.same_sender(event) and not apart


def _is_instance(series: str | None, key: str, starts_at: datetime | None) -> bool:
    return series is not None and starts_at is not None and key == f"{series}|{starts_at.isoformat()}"


def raised(before: tuple[Raiser, ...], event: HealthEvent, now: datetime) -> tuple[Raiser, ...]:
    """With the new statement in its place: that of the same key, or of an older instance of its series."""
    raiser = Raiser.of(event, now)
    kept: list[Raiser] = []
    for r in before:
        if r.same_sender(event) and r.dedupe_key == event.dedupe_key:
            pause = (now - r.last_seen).total_seconds()
            longest = max(pause, r.every_s or 0.0) if r.cleared_at is None else r.every_s
            raiser = raiser.model_copy(update={"every_s": longest})
            continue
        if r.replaced_by(event):
            if r.starts_at and event.starts_at and r.starts_at > event.starts_at:
                return before  # a late repeat of the older instance
            continue
        kept.append(r)
    if len(kept) >= MAX_RAISERS:
        # An edge is never taken back, so another of its kind says as much; a level that doesn't fit is kept nameless.
        edge = next((r for r in kept if r.statement is Statement.EDGE), None)
        if edge is not None:
            kept.remove(edge)
        else:
            kept = [r for r in kept if r.dedupe_key != ANYONE][: MAX_RAISERS - 1]
            raiser = raiser.model_copy(update={"dedupe_key": ANYONE, "series": None})
    return (*kept, raiser)
