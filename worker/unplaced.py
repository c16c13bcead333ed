"""Machines of which grave things were said and that no node is known as: nothing is done about them, unless told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from activities.storage.ledger import Ledger
from worker.intake.held import UNKNOWN_FOR

LATELY = timedelta(hours=6)


class Unplaced(NamedTuple):
    """One machine, as one sender calls it."""

    sender: str
    name: str
    """Or the GPUs that it named instead; `no machine` where it named nothing."""
    cluster: str | None
    faults: tuple[str, ...]
    at: datetime
    """When it was said last."""
    reason: str

    @property
    def text(self) -> str:
        of = f" of {self.cluster}" if self.cluster else ""
        return f"{self.name}{of} ({', '.join(self.faults)} by {self.sender}, {self.at:%H:%M} UTC: {self.reason})"


def unplaced(ledger: Ledger, now: datetime) -> list[Unplaced]:
    """Of the last hours, newest first; without what is still being tried. Raises `Unreadable`."""
    found: dict[tuple[str, str, str | None], Unplaced] = {}
    for seen in ledger.unplaced(now - LATELY):
        if "; tried again for" in seen.outcome and now - seen.at < UNKNOWN_FOR:
            continue
        event = seen.event
        name = (event.subject or "").strip() or ", ".join(event.gpu_ids) or "no machine"
        key = (event.sender, name.lower(), event.cluster)
        known = found.get(key)
        faults = (*known.faults, event.fault or "?") if known else (event.fault or "?",)
        reason = seen.outcome.removeprefix("from the inbox: ").removeprefix("unknown_node: ").partition(";")[0]
        found[key] = Unplaced(
            event.sender, name, event.cluster, tuple(dict.fromkeys(faults)), known.at if known else seen.at, reason
        )
    return list(found.values())
