"""Deliveries that are held durably until someone has taken them, in lanes that each keep their order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.engine import Connection

from activities.storage.database import Database
from activities.storage.statements import chunks, insert, put_if_absent
from activities.storage.tables import inbox
from medevac.model import Model


class Item(Model):
    key: str
    """Of the delivery: put twice, it is held once while it waits."""
    at: datetime
    body: JsonValue
    lane: str = ""
    due_at: datetime | None = None
    """None = at once. A lane is looked at when the latest of its items is due."""
    family: str = ""
    """Items that must keep the order in which they came, whatever their turns: statements and what takes them back."""
    turn: float = 0.0
    """Order within the lane, lowest first; of equal ones the first that came."""
    id: int = 0
    """Given by the inbox."""


class Inbox:
    """At least once: an item is offered again until it is `done`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, items: Iterable[Item]) -> int:
        """Holds them all or none; returns how many weren't held yet."""
        with self._db.transaction() as connection:
            return sum(put_if_absent(connection, inbox, _row(item)) for item in items)

    def oldest(self, limit: int = 100) -> list[Item]:
        with self._db.reading() as connection:
            return [_item(row) for row in connection.execute(sa.select(inbox).order_by(inbox.c.id).limit(limit))]

    def heads(self, now: datetime, per_lane: int = 20, limit: int = 1_000) -> list[Item]:
        """The first items of each lane that is due: a long lane keeps no other waiting."""
        ranked = sa.select(
            inbox.c.id,
            sa.func.row_number().over(partition_by=inbox.c.lane, order_by=(inbox.c.turn, inbox.c.id)).label("n"),
            sa.func.max(inbox.c.due_at).over(partition_by=inbox.c.lane).label("lane_due"),
        ).subquery()
        due = sa.or_(ranked.c.lane_due.is_(None), ranked.c.lane_due <= now)
        # Bodies only of those few: a storm's backlog is long.
        query = sa.select(inbox).join(ranked, ranked.c.id == inbox.c.id).where(due, ranked.c.n <= per_lane)
        query = query.order_by(ranked.c.n, inbox.c.id).limit(limit)
        with self._db.reading() as connection:
            return [_item(row) for row in connection.execute(query)]

    def done(self, ids: Iterable[int]) -> None:
        with self._db.transaction() as connection:
            drop(connection, ids)

    def postpone(self, lanes: Iterable[str], until: datetime) -> None:
        with self._db.transaction() as connection:
            for some in chunks(set(lanes)):
                connection.execute(sa.update(inbox).where(inbox.c.lane.in_(some)).values(due_at=until))

    def waiting(self) -> tuple[int, datetime | None]:
        """How many, and since when the oldest."""
        with self._db.reading() as connection:
            count, since = connection.execute(sa.select(sa.func.count(), sa.func.min(inbox.c.at))).one()
            return count, since


def put_last(connection: Connection, items: Iterable[Item]) -> None:
    """Like `put`, but the latest of one key counts. It keeps its turn while it is the last of its family that waits;
    else it comes after what its family has said since."""
    latest: dict[str, Item] = {}
    for item in items:
        latest.pop(item.key, None)
        latest[item.key] = item
    for some in chunks(latest.values()):
        last = _last_of(connection, {item.family for item in some})
        again, moved = [], []
        for item in some:
            key, turn = last.get(item.family, ("", item.turn))
            if key == item.key:
                again.append({"its_key": key, "its_at": item.at, "its_body": item.body})
                continue
            moved.append(_row(item.model_copy(update={"turn": max(turn, item.turn)})))
            last[item.family] = item.key, max(turn, item.turn)
        if again:
            here = {name: sa.bindparam(f"its_{name}", type_=inbox.c[name].type) for name in ("at", "body")}
            mine = inbox.c.key == sa.bindparam("its_key", type_=inbox.c.key.type)
            connection.execute(sa.update(inbox).where(mine).values(here), again)
        if moved:
            connection.execute(sa.delete(inbox).where(inbox.c.key.in_([row["key"] for row in moved])))
            statement = insert(connection, inbox)
            rest = {name: statement.excluded[name] for name in ("at", "body", "lane", "due_at", "family", "turn")}
            # Another process may have put the same one since the delete.
            connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_=rest), moved)


def _last_of(connection: Connection, families: Iterable[str]) -> dict[str, tuple[str, float]]:
    query = sa.select(inbox.c.family, inbox.c.key, inbox.c.turn).where(inbox.c.family.in_(families))
    rows = connection.execute(query.order_by(inbox.c.turn, inbox.c.id))
    return {row.family: (row.key, row.turn) for row in rows}


def drop(connection: Connection, ids: Iterable[int]) -> None:
    for some in chunks(ids):
        connection.execute(sa.delete(inbox).where(inbox.c.id.in_(some)))


def waiting_lanes(connection: Connection, lanes: Iterable[str]) -> frozenset[str]:
    """Those of `lanes` that hold something."""
    found: set[str] = set()
    for some in chunks(set(lanes)):
        found.update(connection.execute(sa.select(inbox.c.lane).where(inbox.c.lane.in_(some)).distinct()).scalars())
    return frozenset(found)


def _row(item: Item) -> dict[str, object]:
    return item.model_dump(exclude={"id"})


def _item(row: sa.Row[tuple[object, ...]]) -> Item:
    return Item(id=row.id, key=row.key, at=row.at, body=row.body, lane=row.lane, due_at=row.due_at)
