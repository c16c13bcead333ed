from __future__ import annotations

from datetime import UTC, datetime, timedelta

from activities.ports import Mark


class HandClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def mark(incident: str = "inc-1") -> Mark:
    return Mark(incident=incident, code="xid-79", faults=("xid/79",), reason="fallen off the bus")
