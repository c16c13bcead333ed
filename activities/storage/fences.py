"""Freezes: rows that are read immediately before every destructive call."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.database import Database
from activities.storage.tables import fences
from medevac.fleet.fence import Edge, Fence, Thaw, ThawVote, check_scope, scopes_of, strongest
from medevac.fleet.thaw_votes import THAW_PEOPLE, weighed

FRESH_S = 1.0


class Fences:
    """One read serves all calls of this process within a second. What can't be read is never "no fence"."""

    def __init__(self, db: Database, thaw_people: int = THAW_PEOPLE) -> None:
        self._db = db
        self._thaw_people = thaw_people
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._known: list[Fence] = []

    def freeze(
        self, scope: str, by: str, reason: str, marks: bool = False, at: datetime | None = None, via: str = ""
    ) -> Fence:
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
            row = {"scope": scope, "by": by, "reason": reason, "marks": marks, "at": at, "via": via, "thaw_votes": []}
            epoch = connection.execute(sa.insert(fences).values(**row).returning(fences.c.id)).scalar_one()
        self._forget()
        return Fence(epoch=epoch, scope=scope, by=by, reason=reason, marks=marks, at=at, via=via)

    def thaw(self, scope: str, by: str, at: datetime | None = None, why: str = "", via: str = "") -> Thaw:
        """One person's word to go on; it takes `thaw_people` distinct ones that count, and the freezer may be one."""
        check_scope(scope)
        vote = ThawVote(by=by, at=at or datetime.now(UTC), why=why, via=via)
        with self._db.transaction() as connection:
            rows = connection.execute(
                sa.select(fences).where(fences.c.scope == scope, fences.c.thawed_at.is_(None)).with_for_update()
            ).all()
            voted = [one.model_copy(update={"thaw_votes": (*one.thaw_votes, vote)}) for one in map(fence_of, rows)]
            now = [weighed(one, voted, vote.at) for one in voted]
            for one, counted in zip(voted, now, strict=True):
                connection.execute(
                    sa.update(fences)
                    .where(fences.c.id == one.epoch)
                    .values(
                        thaw_votes=[vote.model_dump(mode="json") for vote in one.thaw_votes],
                        thawed_at=vote.at if len(counted.thaw_votes) >= self._thaw_people else None,
                    )
                )
        self._forget()
        # Of several freezes the one that most is missing for.
        least = min(now, key=lambda one: len(one.thaw_votes), default=None)
        return Thaw(
            scope=scope,
            found=least is not None,
            thawed=least is not None and len(least.thaw_votes) >= self._thaw_people,
            by=tuple(vote.by for vote in least.thaw_votes) if least else (),
            need=self._thaw_people,
            lapsed=least.lapsed if least else (),
        )

    def active(self) -> list[Fence]:
        """All that hold now, freshly read, oldest first."""
        with self._db.reading() as connection:
            return read_active(connection)

    def weighed(self, now: datetime) -> list[Fence]:
        """The same, each with the votes to thaw it that count now, and why the others don't."""
        found = self.active()
        return [weighed(fence, found, now) for fence in found]

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
    return [fence_of(row) for row in rows]


def fence_of(row: sa.Row[Any]) -> Fence:
    return Fence(
        epoch=row.id,
        scope=row.scope,
        by=row.by,
        reason=row.reason,
        marks=row.marks,
        at=row.at,
        via=row.via,
        thaw_votes=tuple(_vote(stored, row.at) for stored in row.thaw_votes),
    )


def _vote(stored: str | dict[str, str], frozen_at: datetime) -> ThawVote:
    """A bare name is a vote of which only this is known: it came after the freeze."""
    return ThawVote(by=stored, at=frozen_at) if isinstance(stored, str) else ThawVote.stored(stored)


def thawed_since(connection: Connection, since: datetime) -> dict[str, datetime]:
    """Scope → when it was last thawed; grants in it are paced for a while."""
    rows = connection.execute(
        sa.select(fences.c.scope, sa.func.max(fences.c.thawed_at).label("at"))
        .where(fences.c.thawed_at >= since)
        .group_by(fences.c.scope)
    )
    return {r.scope: r.at for r in rows}
