"""Whether all ended well: the ledger's word held against the world's own log of effects.

Run in a process of its own, after the engine: `python -m simulation.verdict --ledger URL --world PATH [--json]`.
Exit 0 = all well, 1 = something isn't, 2 = ledger or world can't be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from activities.ports import Unreadable
from activities.storage.database import Database, SchemaError
from medevac.fleet.node import Capability
from medevac.incident import End, IncidentView, State
from medevac.model import Model
from simulation import accounts
from simulation.evidence import Evidence, gather
from simulation.hazards import Effect, Manner
from simulation.reading import Injected
from simulation.world import World

HINDERS = frozenset({Manner.REFUSE, Manner.TIMEOUT_BEFORE, Manner.LIE})
"""What an engine can't be blamed for; it gets over the others by itself."""


class Case(Model):
    """One injected fault and how it ended."""

    node: str
    fault: str
    incident: str = ""
    ended: str = ""
    truth: str
    """What the machine really is."""
    remedies: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Verdict(Model):
    well: bool
    cases: tuple[Case, ...]
    problems: tuple[str, ...]
    calls: int
    """Physical calls, and how many of them began a transition."""
    applied: int


def judge(evidence: Evidence) -> Verdict:
    cases = tuple(_case(evidence, fault) for fault in evidence.faults)
    problems = (*accounts.problems(evidence), *_fleet(evidence))
    return Verdict(
        well=not problems and not any(case.problems for case in cases),
        cases=cases,
        problems=problems,
        calls=len(evidence.effects),
        applied=sum(effect.applied for effect in evidence.effects),
    )


# -- each fault ------------------------------------------------------------------------------------------------


def _case(evidence: Evidence, fault: Injected) -> Case:
    incident = evidence.incident_of(fault)
    gone = evidence.until(fault.machine_id) is not None
    truth = "machine gone" if gone else "still faulty" if fault.present else f"cured by {fault.cured_by or 'hand'}"
    if not fault.present and fault.cured_at is None and not gone:
        truth = "away, will come back"
    case = Case(node=fault.node, fault=fault.code, truth=truth)
    if incident is None:
        return case.model_copy(update={"problems": ("nobody opened an incident",)})
    applied = (e for e in evidence.effects if e.tag == incident.id and e.applied and e.verb in accounts.MACHINE)
    return case.model_copy(
        update={
            "incident": incident.id,
            "ended": str(incident.end or incident.state),
            "remedies": tuple(effect.verb.value for effect in applied),
            "problems": tuple(_ended_wrong(evidence, fault, incident, gone=gone)),
        }
    )


def _ended_wrong(evidence: Evidence, fault: Injected, incident: IncidentView, *, gone: bool) -> Iterator[str]:
    match incident.end:
        case End.RETURNED | End.WITHDRAWN if gone:
            yield f"said to be {incident.end}, but the machine is gone"
        case End.RETURNED | End.WITHDRAWN if fault.present:
            yield f"said to be {incident.end}, but {fault.code} is still there"
        case End.REPLACED:
            if not gone:
                yield "said to be replaced, but the old machine still runs"
            if not any(bill.requested_by == incident.id and bill.until is None for bill in evidence.bills):
                yield "said to be replaced, but there is no successor"
        case End.DISPOSED if not gone:
            yield "said to be disposed of, but the machine still runs"
        case None if incident.state is State.HANDED_OVER:
            if _curable(evidence, fault) and not _in_trouble(evidence, incident):
                yield "handed over, though one of the provider's remedies would have cured it"
        case None if incident.state is State.OBSERVED:
            if any(
                effect.tag == incident.id and effect.applied
                for effect in evidence.effects
                if effect.verb is not Effect.CHAT
            ):
                yield "only observed, yet something was touched"
        case None:
            yield f"has no end: {incident.state}{f', {incident.waiting_for}' if incident.waiting_for else ''}"
        case _:
            pass


def _curable(evidence: Evidence, fault: Injected) -> bool:
    """Whether one of the machine's remedies would have ended it for good."""
    able = evidence.capabilities.get(fault.machine_id, frozenset())
    replaced = not fault.behaviour.successor_never_joins and not fault.behaviour.successor_faulty
    by_verb = any(effect.value in able for effect in fault.cure)
    return by_verb or (replaced and {Capability.REPLACE, Capability.TERMINATE} <= able)


def _in_trouble(evidence: Evidence, incident: IncidentView) -> bool:
    """Whether the world stood in the way: a call that had no effect, was refused, or a budget that held."""
    return any(
        effect.manner in HINDERS or {"refused", "budget"} & effect.detail.keys()
        for effect in evidence.effects
        if effect.tag.split("/")[0] == incident.id and effect.verb not in (Effect.CHAT, Effect.LIFT)
    )


# -- the fleet as it stands ------------------------------------------------------------------------------------


def _fleet(evidence: Evidence) -> Iterator[str]:
    faulty = {fault.machine_id for fault in evidence.faults if fault.present}
    observed = {
        (incident.cluster, incident.node)
        for incident in evidence.incidents.values()
        if incident.state is State.OBSERVED
    }
    for node in evidence.nodes:
        if node.foreign_cordon or node.hands_off or (node.cluster, node.name) in observed:
            continue
        name = f"{node.cluster}/{node.name}"
        holder = evidence.incidents.get(node.marked_by or "")
        sick = node.machine.id in faulty or not node.ready
        if sick and node.schedulable:
            yield f"{name} is sick and takes work"
        elif (
            not sick
            and node.marked_by
            and (holder is None or holder.end is not None or holder.state is not State.HANDED_OVER)
        ):
            yield f"{name} is healthy, but still marked by {node.marked_by}"


# -- the command -----------------------------------------------------------------------------------------------


def table(verdict: Verdict) -> str:
    head = ("node", "fault", "ended", "truth", "remedies", "incident")
    rows = [
        (c.node, c.fault, c.ended or "-", c.truth, " ".join(c.remedies) or "-", c.incident or "-")
        for c in verdict.cases
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    wrong = [f"{case.node} {case.fault}: {problem}" for case in verdict.cases for problem in case.problems]
    lines += [f"WRONG  {problem}" for problem in (*wrong, *verdict.problems)]
    lines.append(
        f"{verdict.calls} physical calls, {verdict.applied} took effect. {'All well.' if verdict.well else 'Not well.'}"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.verdict", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ledger", required=True, help="URL of the ledger, e.g. sqlite:////path/ledger.sqlite")
    parser.add_argument("--world", required=True, type=Path, help="file of the simulated world")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    given = parser.parse_args(arguments)
    try:
        db = Database(given.ledger)
        db.check()
        with World(given.world) as world:
            verdict = judge(gather(db, world))
        db.close()
    except (Unreadable, SchemaError, OSError, ValueError) as error:
        print(f"verdict: {error}", file=sys.stderr)
        return 2
    print(json.dumps(verdict.model_dump(mode="json")) if given.json else table(verdict))
    return 0 if verdict.well else 1


if __name__ == "__main__":
    sys.exit(main())
