"""Deliveries that are held durably until someone has taken them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa
from pydantic import JsonValue

from activities.storage.database import Database
from activities.storage.statements import put_if_absent
from activities.storage.tables import inbox
from medevac.model import Model


class Item(Model):
    key: str
    """Of the delivery: put twice, it is held once while it waits."""
    at: datetime
    body: JsonValue
    id: int = 0
    """Given by the inbox."""


class Inbox:
    """At least once: an item is offered again until it is `done`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, items: Iterable[Item]) -> int:
        """Holds them all or none; returns how many weren't held yet."""
        with self._db.transaction() as connection:
            return sum(put_if_absent(connection, inbox, {"key": i.key, "at": i.at, "body": i.body}) for i in items)

    def oldest(self, limit: int = 100) -> list[Item]:
        with self._db.reading() as connection:
            rows = connection.execute(sa.select(inbox).order_by(inbox.c.id).limit(limit))
            return [Item(id=r.id, key=r.key, at=r.at, body=r.body) for r in rows]

    def done(self, ids: Iterable[int]) -> None:
        with self._db.transaction() as connection:
            connection.execute(sa.delete(inbox).where(inbox.c.id.in_(list(ids))))

    def waiting(self) -> tuple[int, datetime | None]:
        """How many, and since when the oldest."""
        with self._db.reading() as connection:
            count, since = connection.execute(sa.select(sa.func.count(), sa.func.min(inbox.c.at))).one()
            return count, since
