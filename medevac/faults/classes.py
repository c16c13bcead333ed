"""Fault classes: what kind of trouble a code means, and what may clear it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

ADOPTED = "adopted/unknown"
"""Code of what was out of service before medevac knew it: nobody says why, so nothing is done about it by itself."""


class FaultClass(StrEnum):
    """Ordered from worst to least by `rank`."""

    CRITICAL = "critical"
    """Latched. Mark at once, drain soon."""
    DEGRADED = "degraded"
    """Latched. Mark, drain at the next checkpoint."""
    TRANSIENT = "transient"
    """Degraded, but may clear by itself: mark, watch, act if it stays."""
    PLANNED = "planned"
    """A provider's notice: drain before its time."""
    APPLICATION = "application"
    """The job's own doing: recorded, never a node's fault by itself."""
    RECORD = "record"
    """Worth counting (toward a lemon), not acting on."""
    MONITOR = "monitor"
    """The monitor is broken, not the node."""
    UNKNOWN = "unknown"
    """No table knows it: notify."""

    @property
    def latched(self) -> bool:
        """Cleared only by a passed check on a newer boot, or by a person's `confirm_repaired`."""
        return self in (FaultClass.CRITICAL, FaultClass.DEGRADED)

    @property
    def rank(self) -> int:
        """0 is worst."""
        return list(FaultClass).index(self)

    @property
    def repairable(self) -> bool:
        """True where the node itself is suspected; the others never mark or disrupt it."""
        return self in (FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.TRANSIENT, FaultClass.PLANNED)


class Covers(StrEnum):
    """What a check must cover to prove a fault of this kind gone (protocols §7)."""

    BUS = "bus"
    """Device count equals the SKU's."""
    MEMORY = "memory"
    """A write-read pass."""
    THERMAL = "thermal"
    """Temperature under load."""
    LINK = "link"
    """Pairwise bandwidth."""
    COMPUTE = "compute"
    """Kernels run and agree."""
    SERVICE = "service"
    """Agents and drivers answer."""
    MAINTENANCE = "maintenance"
    """A planned event is over and the node is ready."""


def in_order(covers: Collection[Covers]) -> tuple[Covers, ...]:
    """Each once, in the order in which they are declared."""
    return tuple(cover for cover in Covers if cover in covers)
