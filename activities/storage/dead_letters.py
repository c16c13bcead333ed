"""Payloads that were refused, whole or in part: kept for a person, redacted and bounded, until they are taken."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.redaction import redacted
from activities.storage.statements import insert
from activities.storage.tables import dead_letters
from medevac.model import Model, digest

MOST_BYTES = 256 * 1024
"""Of one payload as kept (compressed). Of a larger one the beginning is kept, and it can't be submitted again."""
BEGINNING = 16 * 1024
MOST_LETTERS = 10_000
LONGEST_REASON = 1_000

KEPT_HEADERS = re.compile(r"content-type|ce-[a-z0-9-]{1,40}|x-amz-sns-(message-type|topic-arn)|x-medevac-[a-z-]{1,40}")


class Letter(Model):
    id: int = 0
    source: str
    sender: str
    why: str
    """Short and from a closed list, as the metrics have it: `unreadable`, `part`, `forbidden`, ..."""
    reason: str
    """One line for people: what and where."""
    size: int
    """Bytes of the payload as it came, or as its sender announced it."""
    whole: bool
    """False when only its beginning is kept."""
    times: int = 1
    first_at: datetime
    at: datetime
    taken_at: datetime | None = None
    """When it was submitted again and taken."""


class Stored(Model):
    letter: Letter
    headers: dict[str, str]
    body: bytes


class DeadLetters:
    def __init__(self, db: Database) -> None:
        self._db = db

    def put(
        self,
        source: str,
        sender: str,
        why: str,
        reason: str,
        headers: Mapping[str, str],
        body: bytes,
        at: datetime,
        size: int | None = None,
    ) -> int:
        """The same refusal of the same payload again is counted, not kept twice. Returns its id.

        `size`: bytes of the payload where `body` is no more than its beginning, as far as they are known.
        """
        safe = redacted(body)
        packed = zlib.compress(safe, 6)
        whole = size is None and len(packed) <= MOST_BYTES
        row = {
            "digest": digest([source, sender, why, reason, digest(safe.decode("latin-1"))]),
            "source": source[:60],
            "sender": sender[:100],
            "why": why,
            "reason": redacted(reason[:LONGEST_REASON].encode()).decode(errors="replace"),
            "headers": {name: value[:500] for name, value in headers.items() if KEPT_HEADERS.fullmatch(name)},
            "body": packed if whole else zlib.compress(safe[:BEGINNING], 6),
            "size": len(body) if size is None else size,
            "whole": whole,
            "times": 1,
            "first_at": at,
            "at": at,
        }
        with self._db.transaction() as connection:
            statement = insert(connection, dead_letters).values(**row)
            again = {"times": dead_letters.c.times + 1, "at": statement.excluded["at"], "taken_at": None}
            statement = statement.on_conflict_do_update(index_elements=["digest"], set_=again)
            id: int = connection.execute(statement.returning(dead_letters.c.id)).scalar_one()
            if id % 100 == 0:
                connection.execute(sa.delete(dead_letters).where(dead_letters.c.id <= id - MOST_LETTERS))
            return id

    def listed(self, source: str | None = None, taken: bool = False, limit: int = 100, after: int = 0) -> list[Letter]:
        """Newest first; `taken` adds those that were submitted again. `after`: only ids below it (0 = all)."""
        columns = [column for column in dead_letters.c if column.name not in ("body", "headers", "digest")]
        query = sa.select(*columns).order_by(dead_letters.c.id.desc()).limit(limit)
        if source is not None:
            query = query.where(dead_letters.c.source == source)
        if not taken:
            query = query.where(dead_letters.c.taken_at.is_(None))
        if after:
            query = query.where(dead_letters.c.id < after)
        with self._db.reading() as connection:
            return [Letter(**row) for row in connection.execute(query).mappings()]

    def get(self, id: int) -> Stored | None:
        with self._db.reading() as connection:
            row = connection.execute(sa.select(dead_letters).where(dead_letters.c.id == id)).mappings().one_or_none()
        if row is None:
            return None
        letter = Letter(**{name: row[name] for name in Letter.model_fields})
        return Stored(letter=letter, headers=row["headers"], body=zlib.decompress(row["body"]))

    def taken(self, id: int, at: datetime) -> None:
        with self._db.transaction() as connection:
            connection.execute(sa.update(dead_letters).where(dead_letters.c.id == id).values(taken_at=at))

    def forget(self, before: datetime) -> int:
        """Retention: how many were deleted."""
        with self._db.transaction() as connection:
            return connection.execute(sa.delete(dead_letters).where(dead_letters.c.at < before)).rowcount

    def waiting(self) -> int:
        with self._db.reading() as connection:
            count = sa.select(sa.func.count()).select_from(dead_letters).where(dead_letters.c.taken_at.is_(None))
            return connection.execute(count).scalar_one()
