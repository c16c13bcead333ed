"""The event by which a node that was out of service before medevac knew it gets an incident, and no step by itself."""

from __future__ import annotations

from datetime import datetime

from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import ADOPTED, FaultClass
from medevac.model import digest


def adoption(cluster: str, node: str, sender: str, id: str, summary: str, now: datetime) -> HealthEvent:
    """Cause unknown, not to be acted on. `summary` keeps who took the node out."""
    return HealthEvent(
        source="generic",
        sender=sender,
        id=id,
        dedupe_key=digest(["adopt", cluster, node]),
        subject=node,
        cluster=cluster,
        kind=Kind.FAULT,
        fault=ADOPTED,
        fault_class=FaultClass.UNKNOWN,
        actionable=False,
        received_at=now,
        summary=summary,
    )
