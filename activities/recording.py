"""Writes to the ledger what workflows hand over: the incident's row, its lines, an approval, latches."""

from __future__ import annotations

from datetime import datetime

from temporalio import activity

from activities import signatures as sig
from activities.storage.ledger import Ledger
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalView
from medevac.incident import Line, StepKey
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
        lines = list(request.lines)
        if request.approval is not None:
            self._ledger.upsert_approval(request.approval)
            lines += [shown_line(view) for view in (*request.seen, request.approval) if tally.seen(view)]
        return sig.Recorded(lines=self._ledger.add_lines(lines) if lines else 0)


def shown_line(view: ApprovalView) -> Line:
    """What those saw who voted on this list, whole: a digest alone tells nobody anything once the list has changed."""
    on_it = [vote for vote in view.votes if vote.shown_hash == view.shown_hash]
    waiters = sorted(view.waiters, key=lambda waiter: waiter.incident)
    return Line.model_validate(
        {
            "key": StepKey(incident=view.id, step=f"shown-{view.shown_hash}"),
            "at": min(vote.at for vote in on_it),
            "kind": "shown",
            "text": f"voted on as {view.shown_hash}: {view.title}, for {len(waiters)} who wait",
            "data": {
                "shown_hash": view.shown_hash,
                "title": view.title,
                "need": view.need.model_dump(mode="json"),
                "waiters": [waiter.model_dump(mode="json") for waiter in waiters],
            },
        }
    )


def latch_of(line: Line) -> Latch:
    """What a `latch` line says: the text is why, the data who, for which faults and until when."""
    faults = line.data.get("faults")
    return Latch(
        why=line.text,
        faults=tuple(str(fault) for fault in faults) if isinstance(faults, list) else (),
        by=str(line.data.get("by") or "unknown"),
        until=datetime.fromisoformat(str(line.data["until"])),
    )
