"""What the intake reads and writes for one delivery, each in one transaction however many parts it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from activities.storage import said, seen
from activities.storage.database import Database
from activities.storage.inbox import Item, drop, put_last, waiting_lanes
from activities.storage.said import Said
from activities.storage.statements import chunks
from activities.storage.tables import incidents
from medevac.events.event import HealthEvent

Seen = tuple[HealthEvent, str | None, str]
"""An event, the node it was resolved to (None = nobody knows it), and what became of it."""


@dataclass(frozen=True, slots=True)
class Glance:
    open: Mapping[tuple[str, str], datetime]
    """Of the nodes asked about, as (cluster, node), those with an open incident, and since when."""
    waiting: frozenset[str]
    """Of the lanes asked about, those in which earlier items still wait."""
    said: Mapping[str, Said]
    """What was said last under each of the keys asked about."""


class IntakeStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    def glance(self, nodes: Iterable[tuple[str, str]], lanes: Iterable[str], keys: Iterable[str] = ()) -> Glance:
        """Raises `Unreadable`."""
        wanted = set(nodes)
        since = sa.func.max(incidents.c.opened_at).label("since")
        query = sa.select(incidents.c.cluster, incidents.c.node, since).where(incidents.c.open)
        query = query.group_by(incidents.c.cluster, incidents.c.node)
        found: dict[tuple[str, str], datetime] = {}
        with self._db.reading() as connection:
            for names in chunks({name for _, name in wanted}):
                rows = connection.execute(query.where(incidents.c.node.in_(names)))
                found.update({(row.cluster, row.node): row.since for row in rows if (row.cluster, row.node) in wanted})
            return Glance(found, waiting_lanes(connection, lanes), said.read(connection, keys))

    def commit(self, rows: Sequence[Seen], items: Sequence[Item] = (), heard: Mapping[str, Said] | None = None) -> None:
        """All or nothing: lines of what was heard, what is held until Temporal takes it, and what was said last."""
        with self._db.transaction() as connection:
            put_last(connection, items)
            seen.write(connection, rows)
            said.write(connection, heard or {})

    def settle(self, done: Iterable[int], rows: Sequence[Seen]) -> None:
        """Items that were taken leave the inbox, with the lines that say what became of them."""
        with self._db.transaction() as connection:
            drop(connection, done)
            seen.write(connection, rows)
