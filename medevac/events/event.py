"""`HealthEvent`: one normalised statement by one sender about one subject."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.order import Order
from medevac.model import Model


class Kind(StrEnum):
    FAULT = "fault"
    RECOVERED = "recovered"
    PLANNED = "planned"
    LIFECYCLE = "lifecycle"
    CHECK = "check"
    INFO = "info"
    TEST = "test"
    HANDSHAKE = "handshake"
    MEASUREMENT = "measurement"


class Severity(StrEnum):
    """The sender's own word. Evidence, never a reason to act (rule 1 of the defaults)."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Statement(StrEnum):
    """An `edge` happened once (a log line); a `level` holds until its sender says otherwise (an alert)."""

    EDGE = "edge"
    LEVEL = "level"


class Measurement(Model):
    """A number that feeds a policy threshold, e.g. `gpu_temp` 78.1 C over 60 s."""

    name: str
    value: float
    unit: str
    window_s: float = 0.0


class EvidenceRef(Model):
    """Where evidence lies; the evidence itself never travels in an event."""

    title: str
    url: str


Text = Annotated[str, Field(max_length=2_000)]


GPU_IDS = ("gpu-uuid:", "gpu-serial:")
"""What the entities begin with by which a GPU is known wherever it is."""


class HealthEvent(Model):
    """One statement, CloudEvents-shaped. Sender's clocks (`starts_at`, …) are evidence and order nothing."""

    source: str
    """Parser that read it, e.g. `alertmanager`."""
    sender: str = ""
    """Who signed in at the gateway; what a clear is matched against together with `source`."""
    id: str
    """Of this statement; two deliveries of one statement share it."""
    dedupe_key: str
    """What makes a repeat of the same fault by the same sender; a clear carries the key that it clears."""
    series: str | None = None
    """Stands above `dedupe_key` where a sender can take back more than one statement at once: a clear whose
    key is a series clears all of it. Where the key is the series and `starts_at` (`<series>|<iso>`), a newer
    instance replaces the older, whose clear may have been lost."""
    subject: str | None = None
    """As the sender named it: node name, address, instance id. The inventory resolves it."""
    cluster: str | None = None
    kind: Kind
    fault: str | None = None
    """Short code with its namespace: `xid/79`, `condition/Ready`, `alert/GPUXidError`."""
    fault_class: FaultClass | None = None
    """From the catalogue; never from the sender. Travels with the event, as `covers` and `advice` do, so that a
    workflow replays alike under a newer catalogue."""
    covers: tuple[Covers, ...] = ()
    """What a check must cover to prove it gone; from the catalogue."""
    advice: str | None = None
    """First rung that the catalogue, or the driver itself (Xid 154, NVLink 5 decode), recommends."""
    note: str = ""
    """Why the class is what it is when that isn't the catalogue's row alone."""
    actionable: bool = True
    """False where the payload itself forbids or cannot support an action."""
    severity: Severity | None = None
    statement: Statement = Statement.EDGE
    entities: tuple[str, ...] = ()
    """Canonical: `gpu:4`, `pci:0000:9b:00`, `gpu-uuid:GPU-…`, `mig-gi:5`, `nvlink:13`, `nvswitch:0`, …"""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    not_before: datetime | None = None
    received_at: datetime | None = None
    """Set once, at the gateway, by our own clock."""
    boot_id: str | None = None
    marker: str | None = None
    """Set when the statement is about something that medevac itself emitted; such never opens an incident."""
    summary: Text = ""
    evidence: tuple[EvidenceRef, ...] = ()
    measurement: Measurement | None = None
    detail: dict[str, JsonValue] = Field(default_factory=dict)
    order: Order | None = None
    """Set by a campaign alone; no parser reads it from a payload."""
    digest: str = ""
    """sha256 of the raw part that it was read from."""

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """UUIDs and serials of the GPUs that a statement about a machine names: the machine is known by them, too."""
        if self.kind in (Kind.INFO, Kind.TEST, Kind.HANDSHAKE):
            return ()
        return tuple(e.partition(":")[2] for e in self.entities if e.startswith(GPU_IDS))

    @property
    def opens(self) -> bool:
        """Whether it can open an incident: a fault, a notice, or the hook of a provider that takes the machine away."""
        hook = self.kind is Kind.LIFECYCLE and self.fault_class is FaultClass.PLANNED
        return hook or self.kind in (Kind.FAULT, Kind.PLANNED)
