"""What the ledger knows about providers, read together for their scorecard. Drills and people's orders don't count.

A machine's place (region, SKU, image) is what the step that acted on it noted, else that of its node now, else of its
successor's, which was asked for in its place; where there is none it stands under `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from activities.ports import Verb
from activities.storage.certificates import CERTIFY
from activities.storage.database import Database
from activities.storage.machine_tables import cases
from activities.storage.tables import incidents, intents, lines, successors
from medevac.cases.case import Case
from medevac.cases.replies import Proposal
from medevac.events.drill import A_DRILL
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.fleet.order import ORDER
from medevac.fleet.places import UNKNOWN, Place, place_of
from medevac.fleet.scorecard import MENDED, Boot, Observed, Repair, Support, Trouble
from medevac.incident import End
from medevac.policy.plan import UNCLEAR, Rung

AnyRow = Row[Any]
Key = tuple[str, str, int]
"""Incident, step and number."""
NEVER = frozenset({"timed_out", "failed"})
MOST = 100_000
"""Rows of a kind that are read; the newest."""


class Scorecards:
    def __init__(self, db: Database) -> None:
        self._db = db

    def observed(self, nodes: Iterable[Node], since: datetime, now: datetime) -> Observed:
        """Of one window. Raises `Unreadable`."""
        with self._db.reading() as connection:
            past = {row.id: row for row in _newest(connection, incidents, incidents.c.opened_at, since)}
            is_drill = sa.and_(lines.c.kind == "decision", lines.c.text.contains(A_DRILL), lines.c.at >= since)
            drills = set(connection.execute(sa.select(lines.c.incident).where(is_drill)).scalars())
            begun = [
                row
                for row in _newest(connection, intents, intents.c.at, since)
                if row.incident not in drills and not row.fault.startswith(ORDER) and row.fault != CERTIFY
            ]
            came = _newest(connection, successors, successors.c.at, since)
            asked = [Case.stored(row.view) for row in _newest(connection, cases, cases.c.opened_at, since)]
            noted = _noted(connection, since)
        places = _Places(nodes, came, noted)
        return Observed(
            days=max((now - since).total_seconds() / 86_400, 1e-6),
            nodes=places.counted,
            boots=tuple(_boots(begun, came, past, places)),
            repairs=tuple(_repairs(begun, past, places)),
            troubles=tuple(
                Trouble(place=places.of(row.machine_id), fault_class=FaultClass(row.fault_class))
                for row in past.values()
                if row.fault_class and row.id not in drills and not (row.fault or "").startswith(ORDER)
            ),
            support=tuple(_support(asked, places)),
        )


class _Places:
    """Where machines stand, or stood when something was done to them."""

    def __init__(self, nodes: Iterable[Node], came: Iterable[AnyRow], noted: Mapping[Key, Place]) -> None:
        self.counted: dict[Place, int] = {}
        self._of: dict[str, Place] = {}
        for node in nodes:
            if not node.gpus:
                continue
            place = place_of(node)
            self.counted[place] = self.counted.get(place, 0) + 1
            self._of |= dict.fromkeys((node.machine.id, f"{node.cluster}/{node.name}"), place)
        self._next = {str(row.old_machine): str(row.new_machine) for row in came}
        self._noted = noted

    def at(self, intent: AnyRow) -> Place:
        """As the step itself noted it, else of the machine."""
        return self._noted.get((intent.incident, intent.step, intent.n)) or self.of(intent.machine_id)

    def of(self, machine: str | None, provider: str = UNKNOWN) -> Place:
        seen: set[str] = set()
        while machine and machine not in self._of and machine not in seen:
            seen.add(machine)
            machine = self._next.get(machine)
        return self._of.get(machine or "", Place(provider))


def _noted(connection: Connection, since: datetime) -> dict[Key, Place]:
    """What each act wrote down of its machine, which may be gone by now."""
    query = (
        sa.select(lines.c.incident, lines.c.step, lines.c.n, lines.c.data)
        .where(lines.c.kind == "step", lines.c.step.startswith("act-"), lines.c.at >= since)
        .order_by(lines.c.at.desc())
        .limit(MOST)
    )
    found: dict[Key, Place] = {}
    for row in connection.execute(query):
        place = row.data.get("result", {}).get("proof", {}).get("place")
        if isinstance(place, list) and len(place) == len(Place._fields):
            found.setdefault((row.incident, row.step, row.n), Place(*map(str, place)))
    return found


def _boots(
    begun: Iterable[AnyRow],
    came: Iterable[AnyRow],
    past: Mapping[str, AnyRow],
    places: _Places,
) -> Iterable[Boot]:
    rows = list(begun)
    joined = {row.incident: row.at for row in came}
    missed = {row.incident for row in rows if row.verb == Verb.TERMINATE and row.outcome in NEVER}
    for row in rows:
        if row.verb != Verb.REQUEST:
            continue
        incident = past.get(row.incident)
        # Where one never came, another of the same incident may have, from elsewhere.
        vain = row.outcome in NEVER or row.outcome == UNCLEAR
        booted = None if vain else joined.get(row.incident)
        over = vain or booted is not None or row.incident in missed or incident is None or not incident.open
        yield Boot(
            place=places.at(row),
            asked_at=row.at,
            booted_at=booted,
            over=over,
            refused=row.void_at is not None,
        )


def _repairs(begun: Iterable[AnyRow], past: Mapping[str, AnyRow], places: _Places) -> Iterable[Repair]:
    tried: dict[str, list[list[AnyRow]]] = {}
    for row in sorted(begun, key=lambda row: row.at):
        rungs = tried.setdefault(row.incident, [])
        # Asking for a successor and ending the old machine are one rung.
        joins = rungs and row.verb == Verb.TERMINATE and rungs[-1][-1].verb == Verb.REQUEST
        if row.void_at is None and joins:
            rungs[-1].append(row)
        elif row.void_at is None:
            rungs.append([row])
    for name, rungs in tried.items():
        incident = past.get(name)
        for calls in rungs:
            last, failed = calls is rungs[-1], any(call.outcome in NEVER for call in calls)
            if last and incident is not None and incident.open and not failed:
                continue  # nobody knows yet
            if any(call.outcome == UNCLEAR for call in calls):
                continue  # and never will: a worker died around the call, which isn't the provider's doing
            mended = last and incident is not None and incident.end is not None and End(incident.end) in MENDED
            yield Repair(place=places.at(calls[0]), rung=Rung(calls[0].rung), mended=mended and not failed)


def _support(asked: Iterable[Case], places: _Places) -> Iterable[Support]:
    for case in asked:
        machine = next((one.was.machine_id for one in case.subjects if one.was.machine_id), None)
        place = places.of(machine, case.provider)
        first = min((one.at for one in case.heard if one.proposal is not Proposal.NOTHING), default=None)
        yield Support(place=place, opened_at=case.opened_at, answered_at=first)


def _newest(
    connection: Connection, table: sa.Table, at: sa.ColumnElement[datetime], since: datetime
) -> Sequence[AnyRow]:
    return connection.execute(sa.select(table).where(at >= since).order_by(at.desc()).limit(MOST)).all()
