"""Policy versions: texts, who wrote them, and which one is in force. One active version per installation."""

from __future__ import annotations

import builtins
import threading
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.database import Database
from activities.storage.statements import put_if_absent
from activities.storage.tables import activations, policies
from medevac.model import digest
from medevac.policy.active import PolicyVersion, policy_hash


class NoPolicy(LookupError):
    """No policy is in force, or there is no such version; the message says what to run."""


class Policies:
    """Whether a change widens, and so needs a second person, is the caller's to judge."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._parsed: dict[tuple[int, datetime | None], PolicyVersion] = {}

    def active(self) -> PolicyVersion:
        """Read afresh each time; only the parsed text is kept. Raises `NoPolicy`, `Unreadable`."""
        with self._db.reading() as connection:
            row = _last(connection)
            if row is None:
                raise NoPolicy("no policy is in force; run `medevac policy apply FILE`")
            key = (row.version, row.at)
            with self._lock:
                if key in self._parsed:
                    return self._parsed[key]
            version = _read(connection, row.version, row)
        with self._lock:
            self._parsed = {**dict(list(self._parsed.items())[-20:]), key: version}
        return version

    def get(self, version: int) -> PolicyVersion:
        with self._db.reading() as connection:
            row = connection.execute(
                sa.select(activations)
                .where(activations.c.version == version)
                .order_by(activations.c.id.desc())
                .limit(1)
            ).one_or_none()
            return _read(connection, version, row)

    def propose(self, text: str, author: str, at: datetime) -> int:
        """Keeps the text, in force or not. The same text is the same version, whoever brings it again.

        Raises `PolicyError`: a wrong policy never gets a version.
        """
        with self._db.transaction() as connection:
            row = {"hash": policy_hash(text), "text": text, "text_digest": digest(text), "author": author, "at": at}
            put_if_absent(connection, policies, row)
            found = sa.select(policies.c.id).where(policies.c.text_digest == row["text_digest"])
            return int(connection.execute(found).scalar_one())

    def activate(self, version: int, by: str | None, at: datetime) -> PolicyVersion:
        """Puts a version in force. `by` is who approved it; None where a narrowing change needs nobody."""
        with self._db.transaction() as connection:
            _read(connection, version, None)
            current = _last(connection)
            if current is None or current.version != version:
                connection.execute(sa.insert(activations).values(version=version, by=by, at=at))
        return self.active()

    def rollback(self, by: str, at: datetime) -> PolicyVersion:
        """Back to the version that was in force before this one. A second rollback undoes the first."""
        with self._db.transaction() as connection:
            current = _last(connection)
            if current is None:
                raise NoPolicy("no policy is in force; there is nothing to roll back to")
            before = connection.execute(
                sa.select(activations.c.version)
                .where(activations.c.version != current.version)
                .order_by(activations.c.id.desc())
                .limit(1)
            ).scalar_one_or_none()
            if before is None:
                raise NoPolicy(f"version {current.version} is the only one that was ever in force")
            connection.execute(sa.insert(activations).values(version=before, by=by, at=at))
        return self.active()

    def applied(self) -> builtins.list[PolicyVersion]:
        """Versions in the order in which they took effect; one that was rolled back to stands there again."""
        with self._db.reading() as connection:
            rows = connection.execute(sa.select(activations).order_by(activations.c.id)).all()
            return [_read(connection, row.version, row) for row in rows]

    def list(self) -> builtins.list[PolicyVersion]:
        """Every version, newest first."""
        with self._db.reading() as connection:
            last = sa.select(sa.func.max(activations.c.id)).group_by(activations.c.version)
            applied = {
                r.version: r for r in connection.execute(sa.select(activations).where(activations.c.id.in_(last)))
            }
            versions = connection.execute(sa.select(policies.c.id).order_by(policies.c.id.desc())).scalars()
            return [_read(connection, v, applied.get(v)) for v in versions]


def _last(connection: Connection) -> sa.Row[tuple[int, int, str | None, datetime]] | None:
    return connection.execute(sa.select(activations).order_by(activations.c.id.desc()).limit(1)).one_or_none()


def _read(
    connection: Connection, version: int, applied: sa.Row[tuple[int, int, str | None, datetime]] | None
) -> PolicyVersion:
    row = connection.execute(sa.select(policies).where(policies.c.id == version)).one_or_none()
    if row is None:
        raise NoPolicy(f"there is no policy version {version}; `medevac policy list` shows them")
    return PolicyVersion(
        version=row.id,
        hash=row.hash,
        text=row.text,
        author=row.author,
        applied_at=applied.at if applied else row.at,
        approved_by=applied.by if applied else None,
    )
