"""One process at a time: a dated claim in the database, renewed while it is used.

A holder that was stopped for longer than its claim may still do a little beside its successor, so what it does must
bear being done twice.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.statements import insert, took
from activities.storage.tables import leaders


class Leaders:
    def __init__(self, db: Database) -> None:
        self._db = db

    def lead(self, name: str, holder: str, now: datetime, for_s: float) -> bool:
        """True when `holder` leads until `now` + `for_s`. Raises `Unreadable`."""
        row = {"name": name, "holder": holder, "until": now + timedelta(seconds=for_s)}
        with self._db.transaction() as connection:
            statement = insert(connection, leaders).values(**row)
            free = sa.or_(leaders.c.holder == holder, leaders.c.until <= now)
            rest = {key: statement.excluded[key] for key in ("holder", "until")}
            return took(connection, statement.on_conflict_do_update(index_elements=["name"], set_=rest, where=free))

    def holder(self, name: str, now: datetime) -> str | None:
        """Who leads; None where nobody does. Raises `Unreadable`."""
        query = sa.select(leaders.c.holder).where(leaders.c.name == name, leaders.c.until > now)
        with self._db.reading() as connection:
            return connection.execute(query).scalar_one_or_none()

    def resign(self, name: str, holder: str) -> None:
        with self._db.transaction() as connection:
            connection.execute(sa.delete(leaders).where(leaders.c.name == name, leaders.c.holder == holder))
