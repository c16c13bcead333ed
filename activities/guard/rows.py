"""The guard's state to and from its rows. Only what a decision needs is read, only what changed is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.fences import read_active, thawed_since
from activities.storage.ledger import read_approval
from activities.storage.statements import put, put_if_absent
from activities.storage.tables import approvals, asked, breakers, grants, guard, leases, queue, sightings
from medevac.approvals.approval import ApprovalState
from medevac.faults.classes import FaultClass
from medevac.fleet.guard_state import Approved, Breaker, Grant, Lease, Question, Queued, Sighting, State
from medevac.fleet.lease import LeaseRequest
from medevac.fleet.limits import Limits

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
    row = sa.select(guard).where(guard.c.name == "guard").with_for_update()
    if (found := connection.execute(row).one_or_none()) is not None:
        return found
    put_if_absent(connection, guard, {"name": "guard", "epoch": 0, "question": None})
    return connection.execute(row).one()


def load(connection: Connection, requests: Iterable[LeaseRequest], limits: Limits, now: datetime) -> State:
    """`requests` are those to be decided on: of incidents and sightings, only what concerns them is read."""
    row = lock(connection)
    asking = list(requests)
    window = timedelta(seconds=max(limits.fleet_window_s, limits.breaker_window_s, limits.marks_window_s))
    incidents = {request.incident for request in asking}
    own_marks = sa.and_(grants.c.edge == "mark", grants.c.incident.in_(incidents))
    return State(
        epoch=row.epoch,
        leases={r.lease_id: _value(Lease, r) for r in connection.execute(sa.select(leases))},
        queue={r.lease_id: _value(Queued, r) for r in connection.execute(sa.select(queue))},
        grants={
            r.epoch: _value(Grant, r)
            for r in connection.execute(sa.select(grants).where(sa.or_(grants.c.at > now - window, own_marks)))
        },
        sightings=_sightings(connection, asking),
        asked={
            r.incident: r.approval for r in connection.execute(sa.select(asked).where(asked.c.incident.in_(incidents)))
        },
        breakers={(r.cluster, r.cause): _value(Breaker, r) for r in connection.execute(sa.select(breakers))},
        question=_question(connection, row.question, now),
        fences=tuple(read_active(connection)),
        thawed=thawed_since(connection, now - window),
    )


def save(connection: Connection, before: State, after: State, now: datetime) -> None:
    if (before.epoch, before.question) != (after.epoch, after.question):
        question = None if after.question is None else {
            "approval": after.question.approval,
            "opened_at": after.question.opened_at.isoformat(),
            "about": sorted(after.question.about),
        }  # fmt: skip
        connection.execute(sa.update(guard).where(guard.c.name == "guard").values(epoch=after.epoch, question=question))
    _save(connection, leases, "lease_id", before.leases, after.leases)
    _save(connection, queue, "lease_id", before.queue, after.queue)
    put(connection, grants, _changed(before.grants, after.grants))
    put(connection, sightings, _changed(before.sightings, after.sightings))
    put(connection, breakers, _changed(before.breakers, after.breakers))
    changed = {i: a for i, a in after.asked.items() if before.asked.get(i) != a}
    put(connection, asked, [{"incident": i, "approval": a, "at": now} for i, a in changed.items()])


def approved(connection: Connection, request: LeaseRequest, now: datetime) -> Approved | None:
    """The ledger's word, never the request's: a yes that covers this incident with this very plan."""
    view = None if request.approval is None else read_approval(connection, request.approval)
    if view is None or view.result is None or view.result.state is not ApprovalState.APPROVED:
        return None
    if view.result.covers.get(request.incident) != request.plan_hash:
        return None
    if view.result.decided_at < now - APPROVAL_HOLDS:
        return None
    return Approved(view.id, view.fleet_wide)


def forget(connection: Connection, now: datetime) -> None:
    """Rows that no rule looks at any more. Leases aren't among them, however old."""
    connection.execute(sa.delete(grants).where(grants.c.at < now - KEEP_GRANTS))
    connection.execute(sa.delete(sightings).where(sightings.c.at < now - KEEP))
    connection.execute(sa.delete(asked).where(asked.c.at < now - KEEP))
    connection.execute(sa.delete(breakers).where(breakers.c.closed_at < now - KEEP))


def read_leases(connection: Connection, where: sa.ColumnElement[bool]) -> list[Lease]:
    query = sa.select(leases).where(where).order_by(leases.c.until)
    return [_value(Lease, row) for row in connection.execute(query)]


def _question(connection: Connection, stored: dict[str, Any] | None, now: datetime) -> Question | None:
    """The open one; answered, expired or never asked, it is over."""
    if stored is None:
        return None
    question = Question(stored["approval"], datetime.fromisoformat(stored["opened_at"]), frozenset(stored["about"]))
    row = connection.execute(
        sa.select(approvals.c.state, approvals.c.expires_at).where(approvals.c.id == question.approval)
    ).one_or_none()
    if row is None:
        return question if now - question.opened_at < UNWRITTEN_QUESTION else None
    over = row.state != ApprovalState.PENDING or now > row.expires_at + timedelta(minutes=1)
    return None if over else question


def _sightings(connection: Connection, requests: list[LeaseRequest]) -> dict[tuple[str, str, str], Sighting]:
    found: dict[tuple[str, str, str], Sighting] = {}
    queries = [
        sa.select(sightings)
        .where(sightings.c.fault_class == cause)
        .order_by(sightings.c.at.desc())
        .limit(SIGHTINGS_READ)
        for cause in {str(request.fault_class) for request in requests}
    ]
    if requests:
        queries.append(sa.select(sightings).where(sightings.c.node.in_({request.node for request in requests})))
    for query in queries:
        for row in connection.execute(query):
            found[(row.fault_class, row.cluster, row.node)] = _value(Sighting, row)
    return found


def _value(kind: type[Any], row: sa.Row[Any]) -> Any:
    values = {f.name: getattr(row, f.name) for f in fields(kind)}
    if "fault_class" in values:
        values["fault_class"] = FaultClass(values["fault_class"])
    if "votes" in values:
        values["votes"] = tuple(values["votes"])
    return kind(**values)


def _row(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[dict[str, Any]]:
    return [_row(value) for key, value in after.items() if before.get(key) is not value]


def _save(
    connection: Connection, table: sa.Table, key: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    put(connection, table, _changed(before, after))
    gone = [name for name in before if name not in after]
    if gone:
        connection.execute(sa.delete(table).where(table.c[key].in_(gone)))
