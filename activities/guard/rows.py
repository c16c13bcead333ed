"""The guard's state to and from its rows. Only what a decision needs is read, only what changed is written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage import tables as t
from activities.storage.fences import read_active, thawed_since
from activities.storage.ledger import read_approval
from activities.storage.statements import put, put_if_absent
from medevac.approvals.approval import ApprovalState
from medevac.faults.classes import FaultClass
from medevac.fleet.guard_state import (
    LEVEL,
    Approved,
    Breaker,
    ClosingVote,
    Grant,
    Lease,
    Question,
    Queued,
    Sighting,
    State,
)
from medevac.fleet.lease import LeaseRequest
from medevac.fleet.limits import Limits
from medevac.fleet.votes import VOTE_HOLDS

SIGHTINGS_READ = 16
"""The newest of each class; the sum rule never needs more than five of them to be met."""
APPROVAL_HOLDS = timedelta(hours=72)
"""A yes is good for so long: the listed nodes may have to wait for each other."""
UNWRITTEN_QUESTION = timedelta(hours=1)
"""A question that the ledger hasn't heard of by then was never asked; the next request asks a new one."""
KEEP_GRANTS = timedelta(days=30)
KEEP = timedelta(days=7)


def lock(connection: Connection) -> sa.Row[Any]:
    """The guard's row, ours until the transaction ends."""
    row = sa.select(t.guard).where(t.guard.c.name == "guard").with_for_update()
    if (found := connection.execute(row).one_or_none()) is not None:
        return found
    put_if_absent(connection, t.guard, {"name": "guard", "epoch": 0, "question": None, "stamp": ""})
    return connection.execute(row).one()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What one process read or wrote last. Good as long as the guard's row bears the same stamp."""

    stamp: str
    window: timedelta
    leases: Mapping[str, Lease]
    queue: Mapping[str, Queued]
    grants: Mapping[int, Grant]
    breakers: Mapping[tuple[str, str], Breaker]


@dataclass(frozen=True, slots=True)
class Loaded:
    state: State
    stamp: str


def load(
    connection: Connection,
    requests: Iterable[LeaseRequest],
    limits: Limits,
    now: datetime,
    remembered: Remembered | None = None,
    closing: Iterable[tuple[str, str]] = (),
) -> Loaded:
    """`requests` are those to be decided on: of incidents, marks and sightings, only what concerns them is read,
    and the breakers that people want to close."""
    row = lock(connection)
    asking = list(requests)
    window = window_of(limits)
    if remembered is None or (remembered.stamp, remembered.window) != (row.stamp, window):
        remembered = _read(connection, row.stamp, window, now)
    incidents = {request.incident for request in asking}
    grants = {epoch: grant for epoch, grant in remembered.grants.items() if grant.at > now - window}
    voted = [remembered.breakers[key] for key in closing if key in remembered.breakers]
    state = State(
        epoch=row.epoch,
        leases=remembered.leases,
        queue=remembered.queue,
        grants={**grants, **_own_marks(connection, asking)},
        sightings={**_sightings(connection, asking), **seen_since_votes(connection, voted, now)},
        asked={
            r.incident: r.approval
            for r in connection.execute(sa.select(t.asked).where(t.asked.c.incident.in_(incidents)))
        }
        if asking
        else {},
        breakers=remembered.breakers,
        question=_question(connection, row.question, now) if asking else None,
        fences=tuple(read_active(connection)) if asking else (),
        thawed=thawed_since(connection, now - window) if asking else {},
    )
    return Loaded(state, row.stamp)


def remember(state: State, stamp: str, limits: Limits) -> Remembered:
    return Remembered(stamp, window_of(limits), state.leases, state.queue, state.grants, state.breakers)


def window_of(limits: Limits) -> timedelta:
    return timedelta(seconds=max(limits.fleet_window_s, limits.breaker_window_s, limits.marks_window_s))


def _read(connection: Connection, stamp: str, window: timedelta, now: datetime) -> Remembered:
    recent = sa.select(t.grants).where(t.grants.c.at > now - window)
    return Remembered(
        stamp=stamp,
        window=window,
        leases={r.lease_id: _value(Lease, r) for r in connection.execute(sa.select(t.leases))},
        queue={r.lease_id: _value(Queued, r) for r in connection.execute(sa.select(t.queue))},
        grants={r.epoch: _value(Grant, r) for r in connection.execute(recent)},
        breakers={(b.cluster, b.cause): b for b in read_breakers(connection, sa.true())},
    )


def save(connection: Connection, before: State, after: State, now: datetime, asked_now: bool) -> str | None:
    """Writes what differs; the new stamp, or None when nothing did. Without requests, no question was read."""
    values: dict[str, Any] = {}
    if before.epoch != after.epoch:
        values["epoch"] = after.epoch
    if asked_now and before.question != after.question:
        values["question"] = None if after.question is None else {
            "approval": after.question.approval,
            "opened_at": after.question.opened_at.isoformat(),
            "about": dict(after.question.about),
        }  # fmt: skip
    changed = [
        _save(connection, t.leases, before.leases, after.leases),
        _save(connection, t.queue, before.queue, after.queue),
        _save(connection, t.grants, before.grants, after.grants),
        _save(connection, t.breakers, before.breakers, after.breakers),
    ]
    if any(changed):
        values["stamp"] = uuid.uuid4().hex
    if values:
        connection.execute(sa.update(t.guard).where(t.guard.c.name == "guard").values(**values))
    _save(connection, t.sightings, before.sightings, after.sightings)
    news = {i: a for i, a in after.asked.items() if before.asked.get(i) != a}
    put(connection, t.asked, [{"incident": i, "approval": a, "at": now} for i, a in news.items()])
    return values.get("stamp")


def approved(connection: Connection, request: LeaseRequest, now: datetime) -> Approved | None:
    """The ledger's word, never the request's: a yes that covers this incident with this very plan, or its campaign."""
    view = None if request.approval is None else read_approval(connection, request.approval)
    if view is None or view.result is None or view.result.state is not ApprovalState.APPROVED:
        return None
    ordered = request.campaign is not None and request.campaign in view.result.covers
    if not ordered and view.result.covers.get(request.incident) != request.plan_hash:
        return None
    if view.result.decided_at < now - APPROVAL_HOLDS:
        return None
    return Approved(view.id, view.fleet_wide)


def forget(connection: Connection, now: datetime) -> None:
    """Rows that no rule looks at any more. Leases aren't among them, however old."""
    connection.execute(sa.delete(t.grants).where(t.grants.c.at < now - KEEP_GRANTS))
    connection.execute(sa.delete(t.sightings).where(t.sightings.c.at < now - KEEP))
    connection.execute(sa.delete(t.asked).where(t.asked.c.at < now - KEEP))
    connection.execute(sa.delete(t.breakers).where(t.breakers.c.closed_at < now - KEEP))


def read_leases(connection: Connection, where: sa.ColumnElement[bool]) -> list[Lease]:
    query = sa.select(t.leases).where(where).order_by(t.leases.c.until)
    return [_value(Lease, row) for row in connection.execute(query)]


def read_breakers(connection: Connection, where: sa.ColumnElement[bool]) -> list[Breaker]:
    return [_value(Breaker, row) for row in connection.execute(sa.select(t.breakers).where(where))]


def seen_since_votes(
    connection: Connection, breakers: Iterable[Breaker], now: datetime
) -> dict[tuple[str, str, str], Sighting]:
    """What makes a vote lapse. One that is too old has lapsed whatever came after it."""
    found: dict[tuple[str, str, str], Sighting] = {}
    c = t.sightings.c
    for breaker in breakers:
        since = min((vote.at for vote in breaker.votes), default=now)
        query = sa.select(t.sightings).where(c.cluster == breaker.cluster, c.at > max(since, now - VOTE_HOLDS))
        if breaker.cause != LEVEL:
            query = query.where(c.fault_class == breaker.cause)
        for row in connection.execute(query):
            found[(row.fault_class, row.cluster, row.node)] = _value(Sighting, row)
    return found


def _question(connection: Connection, stored: dict[str, Any] | None, now: datetime) -> Question | None:
    """The open one; answered, expired or never asked, it is over."""
    if stored is None:
        return None
    question = Question(stored["approval"], datetime.fromisoformat(stored["opened_at"]), stored["about"])
    row = connection.execute(
        sa.select(t.approvals.c.state, t.approvals.c.expires_at).where(t.approvals.c.id == question.approval)
    ).one_or_none()
    if row is None:
        return question if now - question.opened_at < UNWRITTEN_QUESTION else None
    over = row.state != ApprovalState.PENDING or now > row.expires_at + timedelta(minutes=1)
    return None if over else question


def _own_marks(connection: Connection, requests: list[LeaseRequest]) -> dict[int, Grant]:
    """Marks that these incidents were granted, however long ago: the same request has the same answer."""
    marking = {request.incident for request in requests if request.edge == "mark"}
    if not marking:
        return {}
    query = sa.select(t.grants).where(t.grants.c.edge == "mark", t.grants.c.incident.in_(marking))
    return {row.epoch: _value(Grant, row) for row in connection.execute(query)}


def _sightings(connection: Connection, requests: list[LeaseRequest]) -> dict[tuple[str, str, str], Sighting]:
    found: dict[tuple[str, str, str], Sighting] = {}
    queries = [
        sa.select(t.sightings)
        .where(t.sightings.c.fault_class == cause)
        .order_by(t.sightings.c.at.desc())
        .limit(SIGHTINGS_READ)
        for cause in {str(request.fault_class) for request in requests}
    ]
    if requests:
        queries.append(sa.select(t.sightings).where(t.sightings.c.node.in_({request.node for request in requests})))
    for query in queries:
        for row in connection.execute(query):
            found[(row.fault_class, row.cluster, row.node)] = _value(Sighting, row)
    return found


def _value(kind: type[Any], row: sa.Row[Any]) -> Any:
    values = {f.name: getattr(row, f.name) for f in fields(kind)}
    if "fault_class" in values:
        values["fault_class"] = FaultClass(values["fault_class"])
    if "votes" in values:
        values["votes"] = tuple(_vote(stored, row.opened_at) for stored in values["votes"])
    return kind(**values)


def _vote(stored: str | dict[str, str], opened_at: datetime) -> ClosingVote:
    """A bare name is a vote of which only this is known: it came after the breaker had opened."""
    if isinstance(stored, str):
        return ClosingVote(stored, opened_at)
    return ClosingVote(stored["by"], datetime.fromisoformat(stored["at"]))


def _row(value: Any) -> dict[str, Any]:
    row = {f.name: getattr(value, f.name) for f in fields(value)}
    if "votes" in row:
        row["votes"] = [{"by": vote.by, "at": vote.at.isoformat()} for vote in row["votes"]]
    return row


def _save(connection: Connection, table: sa.Table, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> bool:
    if before is after:
        return False
    new = [_row(value) for key, value in after.items() if before.get(key) is not value]
    put(connection, table, new)
    gone = [key for key in before if key not in after]
    if gone:
        (column,) = table.primary_key.columns  # only rows with a simple key are ever taken away
        connection.execute(sa.delete(table).where(column.in_(gone)))
    return bool(new or gone)
