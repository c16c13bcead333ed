"""Silences, as people made them; kept after their end, as everything that was decided."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping

from activities.storage.database import Database
from activities.storage.order_tables import silences as t
from activities.storage.statements import put_if_absent
from medevac.policy.silences import Silence

MOST = 1_000
COLUMNS = ("id", "by", "reason", "at", "until", "ended_at", "ended_by", "via", "ended_via")


class Silences:
    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, silence: Silence) -> bool:
        """False where one of that id is there already; it stays as it is."""
        row = {
            "id": silence.id,
            "by": silence.by,
            "reason": silence.reason,
            "at": silence.at,
            "until": silence.until,
            "ended_at": silence.ended_at,
            "ended_by": silence.ended_by,
            "via": silence.via,
            "ended_via": silence.ended_via,
            "silence": silence.model_dump(mode="json", include={"matcher", "holds"}),
        }
        with self._db.transaction() as connection:
            return put_if_absent(connection, t, row)

    def end(self, id: str, by: str, at: datetime, via: str = "") -> Silence | None:
        """As it is now; None where there is none of that id. One that is over stays as it ended."""
        with self._db.transaction() as connection:
            mine = sa.and_(t.c.id == id, t.c.ended_at.is_(None), t.c.until > at)
            connection.execute(sa.update(t).where(mine).values(ended_at=at, ended_by=by, ended_via=via))
            row = connection.execute(sa.select(t).where(t.c.id == id)).mappings().one_or_none()
            return None if row is None else silence_of(row)

    def standing(self, now: datetime) -> list[Silence]:
        """Oldest first."""
        query = sa.select(t).where(t.c.until > now, t.c.ended_at.is_(None)).order_by(t.c["at"], t.c.id).limit(MOST)
        return self._read(query)

    def latest(self, limit: int = 100) -> list[Silence]:
        """Newest first, also those that are over."""
        return self._read(sa.select(t).order_by(t.c["at"].desc(), t.c.id).limit(limit))

    def _read(self, query: sa.Select[tuple[object, ...]]) -> list[Silence]:
        with self._db.reading() as connection:
            return [silence_of(row) for row in connection.execute(query).mappings()]


def silence_of(row: RowMapping) -> Silence:
    return Silence.stored({name: row[name] for name in COLUMNS} | row["silence"])
