"""What is known of a machine's past: its incidents, its attempts, what people said no to, whose place it took."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.fences import read_active
from activities.storage.intents import attempts, machine_key
from activities.storage.statements import chunks, put_if_absent
from activities.storage.tables import incidents, latches, successors
from medevac.faults.classes import FaultClass
from medevac.fleet.fence import Edge, scopes_of, strongest
from medevac.model import digest
from medevac.policy.plan import History, Latch, PastIncident

ATTEMPTS_WINDOW = timedelta(days=7)
INCIDENTS_WINDOW = timedelta(days=30)
SUCCESSOR_WINDOW = timedelta(hours=24)


def history(
    connection: Connection, incident: str, cluster: str, node: str, machine_id: str | None, now: datetime,
    pool: str | None,
) -> History:  # fmt: skip
    machine = machine_key(machine_id, cluster, node)
    nameless = sa.and_(incidents.c.machine_id.is_(None), incidents.c.cluster == cluster, incidents.c.node == node)
    own = connection.execute(sa.select(incidents.c.open).where(incidents.c.id == incident)).one_or_none()
    past = connection.execute(
        sa.select(incidents)
        .where(
            sa.or_(incidents.c.machine_id == machine, nameless),
            incidents.c.id != incident,
            incidents.c.opened_at >= now - INCIDENTS_WINDOW,
        )
        .order_by(incidents.c.opened_at)
    ).all()
    held = connection.execute(
        sa.select(latches).where(latches.c.machine_id == machine, latches.c.until > now).order_by(latches.c.id)
    ).all()
    before = connection.execute(
        sa.select(incidents)
        .join(successors, successors.c.incident == incidents.c.id)
        .where(
            successors.c.new_machine.in_([machine, f"{cluster}/{node}"]),
            successors.c.at >= now - SUCCESSOR_WINDOW,
            successors.c.incident != incident,
        )
        .order_by(successors.c.at.desc())
        .limit(1)
    ).one_or_none()
    fence = strongest(read_active(connection), scopes_of(cluster, node, pool), Edge.DESTRUCTIVE)
    return History(
        attempts=attempts(connection, machine, now - ATTEMPTS_WINDOW),
        incidents=tuple(_incident(row) for row in past),
        latches=tuple(Latch(why=r.why, faults=tuple(r.faults), by=r.by, until=r.until) for r in held),
        succeeds=None if before is None else _incident(before),
        this_incident_ended=own is not None and not own.open,
        frozen=None if fence is None else f"{fence.scope} by {fence.by}: {fence.reason}",
    )


def of_machines(
    connection: Connection, machines: Iterable[str], but: Collection[str], now: datetime
) -> dict[str, list[PastIncident]]:
    found: dict[str, list[PastIncident]] = {}
    for some in chunks(set(machines)):
        rows = connection.execute(
            sa.select(incidents)
            .where(incidents.c.machine_id.in_(some), incidents.c.opened_at >= now - INCIDENTS_WINDOW)
            .order_by(incidents.c.opened_at)
        )
        for row in rows:
            if row.id not in but:
                found.setdefault(row.machine_id, []).append(_incident(row))
    return found


def latch(connection: Connection, incident: str, machine_id: str | None, said: Latch) -> None:
    """The same one twice is one."""
    if machine_id is None:
        row = connection.execute(sa.select(incidents).where(incidents.c.id == incident)).one_or_none()
        machine_id = incident if row is None else machine_key(row.machine_id, row.cluster, row.node)
    values = {**said.model_dump(), "faults": list(said.faults), "machine_id": machine_id, "incident": incident}
    put_if_absent(connection, latches, {**values, "digest": digest(values)})


def _incident(row: sa.Row[tuple[object, ...]]) -> PastIncident:
    return PastIncident(
        incident=row.id,
        fault=row.fault or "unknown",
        fault_class=FaultClass(row.fault_class or FaultClass.UNKNOWN),
        opened_at=row.opened_at,
        end=row.end,
        ended_at=None if row.end is None else row.updated_at,
    )
