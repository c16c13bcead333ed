"""Freezes: rows that are read immediately before every destructive call."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.database import Database
from activities.storage.tables import fences
from medevac.fleet.fence import Edge, Fence, Thaw, check_scope, scopes_of, strongest

FRESH_S = 1.0
THAW_PEOPLE = 2


class Fences:
    """One read serves all calls of this process within a second. What can't be read is never "no fence"."""

    def __init__(self, db: Database, thaw_people: int = THAW_PEOPLE) -> None:
        self._db = db
        self._thaw_people = thaw_people
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._known: list[Fence] = []

    def freeze(self, scope: str, by: str, reason: str, marks: bool = False, at: datetime | None = None) -> Fence:
        """One person may always stop. `marks` stops marking too.

        Where others froze the scope already, or want to thaw it, this is a freeze of its own: no word to go on that was
        given before it lifts it.
        """
        check_scope(scope)
        at = at or datetime.now(UTC)
        with self._db.transaction() as connection:
            for fence in read_active(connection):
                same = (fence.scope, fence.by, fence.reason) == (scope, by, reason)
                if same and fence.marks >= marks and not fence.thaw_votes:
                    return fence
            row = {"scope": scope, "by": by, "reason": reason, "marks": marks, "at": at, "thaw_votes": []}
            epoch = connection.execute(sa.insert(fences).values(**row).returning(fences.c.id)).scalar_one()
        self._forget()
        return Fence(epoch=epoch, scope=scope, by=by, reason=reason, marks=marks, at=at)

    def thaw(self, scope: str, by: str, at: datetime | None = None) -> Thaw:
        """One person's word to go on; it takes `thaw_people` distinct ones, of whom the freezer may be one."""
        check_scope(scope)
        at = at or datetime.now(UTC)
        votes: list[tuple[str, ...]] = []
        with self._db.transaction() as connection:
            rows = connection.execute(
                sa.select(fences).where(fences.c.scope == scope, fences.c.thawed_at.is_(None)).with_for_update()
            ).all()
            for row in rows:
                votes.append(tuple(dict.fromkeys([*row.thaw_votes, by])))
                thawed_at = at if len(votes[-1]) >= self._thaw_people else None
                connection.execute(
                    sa.update(fences)
                    .where(fences.c.id == row.id)
                    .values(thaw_votes=list(votes[-1]), thawed_at=thawed_at)
                )
        self._forget()
        # Of several freezes the one that most is missing for.
        least = min(votes, key=len, default=())
        return Thaw(
            scope=scope,
            found=bool(rows),
            thawed=bool(rows) and len(least) >= self._thaw_people,
            by=least,
            need=self._thaw_people,
        )

    def active(self) -> list[Fence]:
        """All that hold now, freshly read, oldest first."""
        with self._db.reading() as connection:
            return read_active(connection)

    def blocking(
        self,
        cluster: str,
        node: str,
        pool: str | None = None,
        provider: str | None = None,
        edge: Literal["destructive", "mark"] = "destructive",
    ) -> Fence | None:
        """The fence that stops this call, at most a second old. Raises `Unreadable`: then nothing is done."""
        return strongest(self._recent(), scopes_of(cluster, node, pool, provider), Edge(edge))

    def _recent(self) -> list[Fence]:
        with self._lock:
            # The age counts from before the read: a fence written while it ran may not be in it.
            now = time.monotonic()
            if now - self._read_at > FRESH_S:
                self._known = self.active()
                self._read_at = now
            return self._known

    def _forget(self) -> None:
        with self._lock:
            self._read_at = float("-inf")


def read_active(connection: Connection) -> list[Fence]:
    rows = connection.execute(sa.select(fences).where(fences.c.thawed_at.is_(None)).order_by(fences.c.id))
    return [
        Fence(
            epoch=r.id,
            scope=r.scope,
            by=r.by,
            reason=r.reason,
            marks=r.marks,
            at=r.at,
            thaw_votes=tuple(r.thaw_votes),
        )
        for r in rows
    ]


def thawed_since(connection: Connection, since: datetime) -> dict[str, datetime]:
    """Scope → when it was last thawed; grants in it are paced for a while."""
    rows = connection.execute(
        sa.select(fences.c.scope, sa.func.max(fences.c.thawed_at).label("at"))
        .where(fences.c.thawed_at >= since)
        .group_by(fences.c.scope)
    )
    return {r.scope: r.at for r in rows}
