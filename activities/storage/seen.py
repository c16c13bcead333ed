"""Events that were heard: bounded rows, kept for a while, without evidence or a sender's free detail."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.statements import chunks
from activities.storage.tables import events
from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import FaultClass
from medevac.model import Model

LONGEST = 200
MOST_ENTITIES = 16
_GRAVE = (Kind.FAULT, Kind.PLANNED)
_WORSE = (FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.PLANNED)


class SeenEvent(Model):
    event: HealthEvent
    """As heard, without detail and evidence, its texts cut short."""
    node: str | None
    """Name that the inventory resolved it to; None where it knew none."""
    outcome: str
    at: datetime


def write(connection: Connection, seen: Iterable[tuple[HealthEvent, str | None, str]]) -> None:
    rows = [_row(event, node, outcome) for event, node, outcome in seen]
    if rows:
        connection.execute(sa.insert(events), rows)


def since(connection: Connection, t: datetime, limit: int) -> list[SeenEvent]:
    query = sa.select(events).where(events.c.at >= t).order_by(events.c.at.desc(), events.c.id.desc()).limit(limit)
    return [_seen(r) for r in connection.execute(query)]


def of_node(connection: Connection, cluster: str, node: str, t: datetime, limit: int) -> list[SeenEvent]:
    query = sa.select(events).where(events.c.cluster == cluster, events.c.node == node, events.c.at >= t)
    found = connection.execute(query.order_by(events.c.at.desc(), events.c.id.desc()).limit(limit))
    return [_seen(r) for r in found]


class Heard(NamedTuple):
    sender: str
    cluster: str | None
    fault: str | None
    at: datetime


def last_by_sender(connection: Connection, senders: Iterable[str], t: datetime) -> dict[str, datetime]:
    """When each sender was heard last since `t`, whatever it said."""
    query = sa.select(events.c.sender, sa.func.max(events.c.at).label("at")).where(events.c.at >= t)
    found = connection.execute(query.where(events.c.sender.in_(sorted(set(senders)))).group_by(events.c.sender))
    return {row.sender: row.at for row in found}


def beats(connection: Connection, t: datetime, limit: int) -> list[Heard]:
    """Alerts that only inform and name no machine, as heartbeats do; newest first."""
    query = sa.select(events.c.sender, events.c.cluster, events.c.fault, events.c.at).where(
        events.c.at >= t, events.c.kind == "info", events.c.fault.like("alert/%"), events.c.node.is_(None)
    )
    return [Heard(*row) for row in connection.execute(query.order_by(events.c.at.desc()).limit(limit))]


def last_of(connection: Connection, fault: str, t: datetime, limit: int) -> list[SeenEvent]:
    """The newest event of this code, about no machine, under each key."""
    # Of no cluster and no node: that is where the index finds them.
    nowhere = sa.and_(events.c.cluster.is_(None), events.c.node.is_(None))
    query = sa.select(events).where(nowhere, events.c.fault == fault, events.c.at >= t)
    found: dict[str, SeenEvent] = {}
    for r in connection.execute(query.order_by(events.c.at.desc(), events.c.id.desc()).limit(limit)):
        seen = _seen(r)
        found.setdefault(seen.event.dedupe_key, seen)
    return list(found.values())


def of_no_node(connection: Connection, t: datetime, limit: int) -> list[SeenEvent]:
    """Faults and notices that would have led to something, about machines that nobody knew, newest first; without what
    was brought to its node later."""
    nowhere = sa.and_(events.c.at >= t, events.c.node.is_(None))
    grave = sa.and_(events.c.kind.in_(_GRAVE), events.c.fault_class.in_(_WORSE))
    unknown = sa.or_(events.c.outcome.like("unknown_node%"), events.c.outcome.like("from the inbox: unknown_node%"))
    query = sa.select(events).where(nowhere, grave, unknown).order_by(events.c.at.desc(), events.c.id.desc())
    found = [_seen(r) for r in connection.execute(query.limit(limit))]
    placed: set[tuple[str, str]] = set()
    for ids in chunks({seen.event.id for seen in found}):
        known = sa.select(events.c.sender, events.c.event_id).where(events.c.at >= t, events.c.node.is_not(None))
        placed |= {(r.sender, r.event_id) for r in connection.execute(known.where(events.c.event_id.in_(ids)))}
    return [seen for seen in found if (seen.event.sender, seen.event.id) not in placed]


def prune(connection: Connection, before: datetime) -> int:
    return connection.execute(sa.delete(events).where(events.c.at < before)).rowcount


def _seen(row: sa.Row[Any]) -> SeenEvent:
    return SeenEvent(event=HealthEvent.stored(row.event), node=row.node, outcome=row.outcome, at=row.at)


def _row(event: HealthEvent, node: str | None, outcome: str) -> dict[str, object]:
    short = bounded(event)
    return {
        "at": event.received_at or datetime.now(UTC),
        "source": short.source,
        "sender": short.sender,
        "event_id": short.id,
        "cluster": short.cluster,
        "node": node,
        "kind": short.kind,
        "fault": short.fault,
        "fault_class": short.fault_class,
        "outcome": outcome[:LONGEST],
        "digest": short.digest,
        "event": short.model_dump(mode="json", exclude_defaults=True),
    }


def bounded(event: HealthEvent) -> HealthEvent:
    """The event without what a sender may make as long as it likes."""
    cut = {
        name: value[:LONGEST]
        for name in ("source", "sender", "id", "dedupe_key", "subject", "cluster", "fault", "boot_id", "marker")
        if isinstance(value := getattr(event, name), str)
    }
    entities = tuple(entity[:LONGEST] for entity in event.entities[:MOST_ENTITIES])
    rest = {"summary": event.summary[:LONGEST], "entities": entities, "evidence": (), "detail": {}}
    return event.model_copy(update={**cut, **rest})
