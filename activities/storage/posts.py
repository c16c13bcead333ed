"""Where each message stands in a chat, what it said last, and whether anything may still change it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.order_tables import posts as t
from activities.storage.statements import chunks, put, put_if_absent
from medevac.model import Model

TAKEN = "taken"


class Post(Model):
    key: str
    """What it is about: `incident/<id>`, `approval/<id>`, `storm/...`."""
    system: str
    channel: str
    reference: str
    """What the chat calls the message; its thread's where it has none of its own."""
    digest: str
    """Of what it says. Begins with `in ` and another post's key where it is told together with others there."""
    at: datetime
    over: bool
    """Nothing changes it any more."""


class Posts:
    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, system: str, key: str) -> Post | None:
        with self._db.reading() as connection:
            row = connection.execute(sa.select(t).where(t.c.system == system, t.c.key == key)).one_or_none()
            return None if row is None else Post(**row._mapping)

    def of(self, system: str, keys: Iterable[str]) -> dict[str, Post]:
        found: dict[str, Post] = {}
        with self._db.reading() as connection:
            for some in chunks(set(keys)):
                rows = connection.execute(sa.select(t).where(t.c.system == system, t.c.key.in_(some))).mappings()
                found.update((row["key"], Post(**row)) for row in rows)
        return found

    def standing(self, system: str) -> dict[str, Post]:
        """Those that may still change."""
        query = sa.select(t).where(t.c.system == system, sa.not_(t.c.over))
        with self._db.reading() as connection:
            return {row["key"]: Post(**row) for row in connection.execute(query).mappings()}

    def told_in(self, system: str, key: str) -> list[Post]:
        """What is told together in the post `key`, over or not."""
        query = sa.select(t).where(t.c.system == system, t.c.digest == f"in {key}")
        with self._db.reading() as connection:
            return [Post(**row) for row in connection.execute(query).mappings()]

    def begun_with(self, system: str, start: str) -> dict[str, Post]:
        query = sa.select(t).where(t.c.system == system, t.c.key.startswith(start, autoescape=True))
        with self._db.reading() as connection:
            return {row["key"]: Post(**row) for row in connection.execute(query).mappings()}

    def drop(self, system: str, key: str) -> None:
        """One that was begun and surely never sent."""
        with self._db.transaction() as connection:
            connection.execute(sa.delete(t).where(t.c.system == system, t.c.key == key, t.c.reference == ""))

    def put(self, posts: Iterable[Post]) -> None:
        with self._db.transaction() as connection:
            put(connection, t, [post.model_dump() for post in posts])

    def take(self, system: str, key: str, at: datetime) -> bool:
        """True the first time: a request that comes again under the same key is a replay."""
        row = {"key": key, "system": system, "channel": "", "reference": "", "digest": TAKEN, "at": at, "over": True}
        with self._db.transaction() as connection:
            return put_if_absent(connection, t, row)

    def forget(self, before: datetime, *, taken_before: datetime) -> int:
        """Retention of what is over; takings are needed only as long as a request may come again."""
        old = sa.or_(t.c["at"] < before, sa.and_(t.c.digest == TAKEN, t.c["at"] < taken_before))
        with self._db.transaction() as connection:
            return connection.execute(sa.delete(t).where(t.c.over, old)).rowcount
