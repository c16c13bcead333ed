"""Statements for these tests: events as parsers and the catalogue make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.catalogue import classify

T0 = datetime(2026, 8, 20, 10, 15, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def said(
    fault: str, *, kind: Kind = Kind.FAULT, source: str = "kmsg", key: str | None = None, **more: Any
) -> HealthEvent:
    """A classified statement; log lines are edges, what an alert says is a level."""
    key = key or f"{source}|{fault}"
    level = source != "kmsg"
    fields: dict[str, Any] = {
        "source": source,
        "id": f"{key}|{kind}",
        "dedupe_key": key,
        "subject": "gpu-node-07",
        "kind": kind,
        "fault": fault,
        "statement": Statement.LEVEL if level else Statement.EDGE,
    }
    return classify(HealthEvent(**(fields | more)))


def alert(fault: str, *, over: bool = False, key: str | None = None, **more: Any) -> HealthEvent:
    kind = Kind.RECOVERED if over else Kind.FAULT
    return said(fault, kind=kind, source="alertmanager", key=key or f"fp|{fault}", **more)
