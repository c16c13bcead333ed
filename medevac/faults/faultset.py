"""A node's `FaultSet`: what is open, on our own clock; repeats, coalescing, echoes and clearing."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from medevac.events.event import HealthEvent, Severity, Statement
from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Identity
from medevac.model import Model


class Raiser(Model):
    """One sender's open statement of a fault; only the same sender and key can take it back."""

    source: str
    sender: str
    dedupe_key: str
    last_seen: datetime
    cleared_at: datetime | None = None


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


class Change(StrEnum):
    NEW = "new"
    WORSE = "worse"
    REPEAT = "repeat"
    CLEARING = "clearing"
    """Taken back by its sender; cleared when the dwell has passed."""
    CLEARED = "cleared"
    EXPECTED = "expected"
    """A symptom of our own step, or an echo of what the step has mended."""
    STALE = "stale"
    IGNORED = "ignored"


class Remedy(Model):
    """What medevac is doing or has done, by which expected symptoms and echoes are told."""

    step: str
    """`evacuate`, `act`, `prove`, `verify`, `probation`."""
    began_at: datetime
    deadline: datetime
    proved_at: datetime | None = None
    before: Identity = Identity()
    echo_grace_s: float = 300.0


class Observed(Model):
    faults: FaultSet
    change: Change
    reason: str


class FaultSet(Model):
    faults: tuple[OpenFault, ...] = ()

    @property
    def worst(self) -> OpenFault | None:
        return min(self.faults, key=lambda f: (f.fault_class.rank, f.first_seen), default=None)

    def observe(
        self, event: HealthEvent, now: datetime, *, remedy: Remedy | None = None, dwell_s: float = 60.0
    ) -> Observed:
        raise NotImplementedError


Observed.model_rebuild()
