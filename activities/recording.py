"""Writes to the ledger what workflows hand over: the incident's row, its lines, an approval, latches."""

from __future__ import annotations

from datetime import datetime

from temporalio import activity

from activities import signatures as sig
from activities.storage.ledger import Ledger
from medevac.incident import Line
from medevac.policy.plan import Latch


class RecordingActivities:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @activity.defn(name=sig.RECORD.name, no_thread_cancel_exception=True)
    def record(self, request: sig.RecordRequest) -> sig.Recorded:
        """Only upserts: written twice, it stands once. An older row never overwrites a newer one."""
        if request.view is not None:
            self._ledger.upsert_incident(request.view)
        for line in request.lines:
            if line.kind == "latch":
                machine_id = line.data.get("machine_id")
                self._ledger.add_latch(line.key.incident, str(machine_id) if machine_id else None, latch_of(line))
        if request.approval is not None:
            self._ledger.upsert_approval(request.approval)
        return sig.Recorded(lines=self._ledger.add_lines(request.lines) if request.lines else 0)


def latch_of(line: Line) -> Latch:
    """What a `latch` line says: the text is why, the data who, for which faults and until when."""
    faults = line.data.get("faults")
    return Latch(
        why=line.text,
        faults=tuple(str(fault) for fault in faults) if isinstance(faults, list) else (),
        by=str(line.data.get("by") or "unknown"),
        until=datetime.fromisoformat(str(line.data["until"])),
    )
