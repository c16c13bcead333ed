"""A drill: the true ladder for a fault that isn't there, on one empty node. Only a signed-in person begins one."""

from __future__ import annotations

from datetime import datetime

from medevac.events.event import HealthEvent, Kind
from medevac.faults import catalogue

SOURCE = "drill"
"""No parser has this name, so no payload can call itself a drill."""
A_DRILL = "a drill, no such fault is there"
"""First of every plan's reasons, and so in the incident's summary and lines."""


def drill_event(cluster: str, node: str, fault: str, by: str, reason: str, now: datetime) -> HealthEvent:
    """Raises `ValueError` where no repair belongs to the fault, so that there is no ladder to try."""
    row = catalogue.lookup(fault)
    if not row.fault_class.repairable:
        raise ValueError(
            f"{fault} is of class {row.fault_class}: no ladder belongs to it; name a fault of the catalogue"
        )
    return catalogue.classify(
        HealthEvent(
            source=SOURCE,
            sender=by,
            id=f"drill/{cluster}/{node}/{fault}/{now.isoformat()}",
            dedupe_key=f"drill/{cluster}/{node}/{fault}",
            subject=node,
            cluster=cluster,
            kind=Kind.FAULT,
            fault=fault,
            received_at=now,
            summary=f"a drill by {by}: {reason}",
            detail={"drill": True},
        )
    )
