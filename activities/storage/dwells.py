"""How long a measurement has been over its threshold: one small state per node, entity and threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.database import Database
from activities.storage.inbox import Item, put_last
from activities.storage.statements import chunks, insert, put
from activities.storage.tables import dwells

T = TypeVar("T")
State = dict[str, Any]
Step = Callable[[State | None], tuple[State | None, T]]
"""Takes the state (None = none yet); returns the one to keep (None = none any more), and a result."""


class DwellKey(NamedTuple):
    cluster: str
    node: str
    entity: str
    name: str


_COLUMNS = [dwells.c[name] for name in DwellKey._fields]


class Dwells:
    def __init__(self, db: Database) -> None:
        self._db = db

    def update_all(
        self, steps: Sequence[tuple[DwellKey, Step[T]]], holds: Callable[[list[T]], Iterable[Item]] = lambda _: ()
    ) -> list[T]:
        """Takes the steps in their order, all in one transaction; one result a step.

        The rows are locked: two samples at once are judged one after the other. What `holds` makes of the results is
        put into the inbox by the same transaction, so that a state never moves on without what it moved on to say.
        """
        # In one order, so that two processes never wait for each other.
        keys = sorted({key for key, _ in steps})
        with self._db.transaction() as connection:
            before = _locked(connection, keys)
            after, results = dict(before), []
            for key, step in steps:
                after[key], result = step(after[key])
                results.append(result)
            put(connection, dwells, [_row(key, after[key]) for key in keys if after[key] not in (None, before[key])])
            for some in chunks(key for key in keys if after[key] is None):
                connection.execute(sa.delete(dwells).where(sa.tuple_(*_COLUMNS).in_(some)))
            put_last(connection, holds(results))
        return results


def _locked(connection: Connection, keys: Sequence[DwellKey]) -> dict[DwellKey, State | None]:
    if keys:
        connection.execute(insert(connection, dwells).on_conflict_do_nothing(), [_row(key, None) for key in keys])
    found: dict[DwellKey, State | None] = {}
    for some in chunks(keys):
        query = sa.select(dwells).where(sa.tuple_(*_COLUMNS).in_(some)).order_by(*_COLUMNS).with_for_update()
        found.update((DwellKey(r.cluster, r.node, r.entity, r.name), r.state) for r in connection.execute(query))
    return found


def _row(key: DwellKey, state: State | None) -> dict[str, Any]:
    return {**key._asdict(), "state": state}
