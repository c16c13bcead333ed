"""Statements that both dialects spell alike but SQLAlchemy keeps in two places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

T = TypeVar("T")
CHUNK = 500
"""Values in one statement, well below what the databases allow."""


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    listed = list(values)
    for i in range(0, len(listed), CHUNK):
        yield listed[i : i + CHUNK]


def insert(connection: Connection, table: sa.Table) -> Any:
    """`INSERT` that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return _insert(connection.dialect.name, table)


def put_if_absent(connection: Connection, table: sa.Table, values: dict[str, Any]) -> bool:
    """True when the row was new."""
    return took(connection, insert(connection, table).values(**values).on_conflict_do_nothing())


def took(connection: Connection, statement: Any) -> bool:
    """Whether an insert wrote its row. (Its row count isn't kept on PostgreSQL.)"""
    return connection.execute(statement.returning(sa.literal(1))).first() is not None


def put(connection: Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    """Inserts or replaces whole rows by primary key."""
    listed = list(rows)
    if listed:
        connection.execute(_replacing(connection.dialect.name, table, tuple(listed[0])), listed)


@cache
def _replacing(dialect: str, table: sa.Table, columns: tuple[str, ...]) -> Any:
    statement = _insert(dialect, table)
    keys = [column.name for column in table.primary_key]
    excluded = statement.excluded
    rest = {name: excluded[name] for name in columns if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)


def _insert(dialect: str, table: sa.Table) -> Any:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
