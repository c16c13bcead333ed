"""What the intake reads and writes for one delivery, each in one transaction however many parts it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from activities.storage import seen
from activities.storage.database import Database
from activities.storage.inbox import Item, chunks, drop, put_last, waiting_lanes
from activities.storage.tables import incidents
from medevac.events.event import HealthEvent

Seen = tuple[HealthEvent, str | None, str]
"""An event, the node it was resolved to (None = nobody knows it), and what became of it."""


@dataclass(frozen=True, slots=True)
class Glance:
    open: frozenset[tuple[str, str]]
    """Of the nodes asked about, as (cluster, node), those with an open incident."""
    waiting: frozenset[str]
    """Of the lanes asked about, those in which earlier items still wait."""


class IntakeStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    def glance(self, nodes: Iterable[tuple[str, str]], lanes: Iterable[str]) -> Glance:
        """Raises `Unreadable`."""
        wanted = set(nodes)
        query = sa.select(incidents.c.cluster, incidents.c.node).where(incidents.c.open).distinct()
        found: set[tuple[str, str]] = set()
        with self._db.reading() as connection:
            for names in chunks({name for _, name in wanted}):
                rows = connection.execute(query.where(incidents.c.node.in_(names)))
                found.update((row.cluster, row.node) for row in rows)
            return Glance(frozenset(found & wanted), waiting_lanes(connection, lanes))

    def commit(self, rows: Sequence[Seen], items: Sequence[Item] = ()) -> None:
        """Lines of what was heard, and what is to be held until Temporal takes it: all or nothing."""
        with self._db.transaction() as connection:
            put_last(connection, items)
            seen.write(connection, rows)

    def settle(self, done: Iterable[int], rows: Sequence[Seen]) -> None:
        """Items that were taken leave the inbox, with the lines that say what became of them."""
        with self._db.transaction() as connection:
            drop(connection, done)
            seen.write(connection, rows)
