"""How long a measurement has been over its threshold: one small state per node, entity and threshold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.statements import put_if_absent
from activities.storage.tables import dwells

T = TypeVar("T")
State = dict[str, Any]


class Dwells:
    def __init__(self, db: Database) -> None:
        self._db = db

    def update(
        self, cluster: str, node: str, entity: str, name: str, fn: Callable[[State | None], tuple[State | None, T]]
    ) -> T:
        """Gives `fn` the state (None = none yet), keeps the one that it returns, and hands on its other result.

        One transaction with the row locked: two samples at once are judged one after the other.
        """
        key = {"cluster": cluster, "node": node, "entity": entity, "name": name}
        where = sa.and_(*(dwells.c[column] == value for column, value in key.items()))
        with self._db.transaction() as connection:
            put_if_absent(connection, dwells, {**key, "state": None})
            before = connection.execute(sa.select(dwells.c.state).where(where).with_for_update()).scalar_one()
            state, result = fn(before)
            if state is None:
                connection.execute(sa.delete(dwells).where(where))
            elif state != before:
                connection.execute(sa.update(dwells).where(where).values(state=state))
        return result
