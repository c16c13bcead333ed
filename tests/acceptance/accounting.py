"""What a test asks at the end: nothing twice, nothing lost, nothing left behind; and what a kill cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionStatus

from activities import signatures as sig
from medevac.incident import IncidentView
from simulation.accounts import MACHINE
from simulation.hazards import Effect
from simulation.reading import Logged
from tests.acceptance.stack import Running

# -- nothing twice ---------------------------------------------------------------------------------------------


def called(effects: Sequence[Logged], incident: str) -> Counter[Effect]:
    """Physical calls for the incident, whatever came of them."""
    return Counter(e.verb for e in effects if e.tag.split("/")[0] == incident)


def applied(effects: Sequence[Logged], incident: str) -> Counter[Effect]:
    """Those that took effect."""
    return called([e for e in effects if e.applied], incident)


def twice(up: Running, view: IncidentView, verbs: Sequence[Effect]) -> list[str]:
    """What an incident's effects were beyond what its way needs: each verb called once, each mark made once."""
    effects, found = up.world.effects(), []
    for what, counted in (("called", called(effects, view.id)), ("took effect", applied(effects, view.id))):
        machine = Counter({verb: n for verb, n in counted.items() if verb in MACHINE})
        if machine != Counter(verbs):
            found.append(f"{what}: {_words(machine)}, not {_words(Counter(verbs))}")
    drains = sum(line.kind == "step" and line.key.step == "evacuate" for line in up.stores.ledger.lines(view.id))
    for verb, most in ((Effect.MARK, 1), (Effect.LIFT, 1), (Effect.NOTICE, drains)):
        if (count := applied(effects, view.id)[verb]) > most:
            found.append(f"{verb.value} took effect {count} times, not {most}")
    return [f"{view.workflow_id} {view.fault}: {text}" for text in found]


def _words(counted: Counter[Effect]) -> str:
    return ", ".join(f"{verb.value} × {n}" for verb, n in sorted(counted.items())) or "nothing"


# -- nothing lost ----------------------------------------------------------------------------------------------


async def lost_lines(up: Running) -> list[str]:
    """Whatever a workflow heard back, or handed over to be written, that the ledger doesn't have; by the histories."""
    client = await up.client()
    problems: list[str] = []
    async for execution in client.list_workflows():
        handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
        events = [event async for event in handle.fetch_history_events()]
        is_open = execution.status is WorkflowExecutionStatus.RUNNING
        for incident, key, kind, text in _said(events, is_open):
            lines = up.stores.ledger.lines(incident)
            if not any((line.key.step, line.key.n, line.kind) == (*key, kind) and text in line.text for line in lines):
                problems.append(f"{execution.id}: no {kind} line of {incident}/{key[0]}/{key[1]}: {text}")
    return problems


def _said(events: Sequence[HistoryEvent], is_open: bool) -> Iterator[tuple[str, tuple[str, int], str, str]]:
    """Incident, key, kind and words of each line that must be there. One that the ledger didn't take in time is still
    held by an open incident, for its next record."""
    asked: dict[int, tuple[str, dict[str, Any]]] = {}
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            given = event.activity_task_scheduled_event_attributes
            asked[event.event_id] = given.activity_type.name, json.loads(given.input.payloads[0].data)
        elif event.HasField("activity_task_completed_event_attributes"):
            ended = event.activity_task_completed_event_attributes
            name, request = asked[ended.scheduled_event_id]
            if name == sig.RECORD.name:
                for line in request.get("lines", ()):
                    yield line["key"]["incident"], _key(line["key"]), line["kind"], line["text"]
                continue
            if "key" not in request:
                continue  # Steps of cases and campaigns, which have rows of their own.
            result = json.loads(ended.result.payloads[0].data)
            step = result.get("step", result)
            if name == sig.ACQUIRE.name:
                step = {"outcome": "done" if result.get("granted") else "blocked"}
            if is_open and step.get("unwritten"):
                continue
            yield request["key"]["incident"], _key(request["key"]), "step", f"{name}: {step['outcome']}"


def _key(key: dict[str, Any]) -> tuple[str, int]:
    return key["step"], key.get("n", 1)


# -- nothing left behind ---------------------------------------------------------------------------------------


def contradictions(up: Running) -> list[str]:
    """Steps of which two attempts ended, one well and the other not.

    Two may well end well: a slow one runs on beside the one that took its place, which says that it was done already.
    """
    problems = []
    for key in up.stores.ledger.flagged():
        lines = [line for line in up.stores.ledger.lines(key.incident) if line.key == key and line.kind == "step"]
        ends = {line.text.split(": ")[1] for line in lines}
        if not lines or not ends <= {"done", "already"}:
            problems.append(f"two things were said under {key}: {[line.text for line in lines]}")
    return problems


def left_behind(up: Running) -> list[str]:
    stores = up.stores
    problems = contradictions(up)
    problems += [f"{lease.incident} still holds a lease" for lease in stores.guard.leases()]
    problems += [f"approval {view.id} is still pending" for view in stores.ledger.approvals(pending_only=True)]
    for view in stores.ledger.approvals(pending_only=False, limit=10_000):
        twice = [voter for voter, count in Counter(vote.voter for vote in view.votes).items() if count > 1]
        problems += [f"{voter} stands twice in approval {view.id}" for voter in twice]
    for breaker in stores.guard.open_breakers():
        problems.append(f"breaker {breaker.cluster}/{breaker.cause} is open: {breaker.reason}")
    return problems


# -- what a kill costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resumed:
    """A step that was running in a worker when it was killed."""

    type: str
    after_s: float | None
    """From the kill to the begin of the next attempt; None = there was none."""


def resumptions(up: Running, killed: dict[int, float]) -> list[Resumed]:
    """Of each step that the killed processes (pid → when) had begun and not ended."""
    running: dict[tuple[int, str, str], dict[str, Any]] = {}
    begun: list[dict[str, Any]] = []
    for note in sorted(up.steps(), key=lambda note: float(note["at"])):
        which = note["pid"], note["run"], note["activity"]
        if note["what"] == "end":
            running.pop(which, None)
        else:
            running[which] = note
            begun.append(note)
    found = []
    for (pid, run, activity), note in running.items():
        if pid in killed:
            later = [
                b["at"]
                for b in begun
                if (b["run"], b["activity"]) == (run, activity) and b["pid"] != pid and b["at"] > killed[pid]
            ]  # fmt: skip
            found.append(Resumed(note["type"], min(later) - killed[pid] if later else None))
    return found


def killed_at_cells(up: Running) -> dict[int, float]:
    return dict(up.hit(index) for index in up.reached())


def table(resumed: Sequence[Resumed]) -> str:
    """Seconds from a kill to the resumed step, by kind of step."""
    rows: list[tuple[str, ...]] = [("step", "killed", "p50 s", "p99 s", "longest s")]
    kinds = sorted({one.type for one in resumed})
    for kind in (*kinds, "all"):
        times = sorted(r.after_s for r in resumed if r.after_s is not None and kind in (r.type, "all"))
        count = sum(kind in (r.type, "all") for r in resumed)
        if times:
            rows.append((kind, str(count), *(f"{_share(times, share):.2f}" for share in (0.5, 0.99, 1.0))))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows)


def _share(times: Sequence[float], share: float) -> float:
    """The least time within which at least this share lies."""
    return times[max(0, -(-int(share * len(times) * 1000) // 1000) - 1)]
