"""Statements that both dialects spell alike but SQLAlchemy keeps in two places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection


def insert(connection: Connection, table: sa.Table) -> Any:
    """`INSERT` that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def put_if_absent(connection: Connection, table: sa.Table, values: dict[str, Any]) -> bool:
    """True when the row was new."""
    return took(connection, insert(connection, table).values(**values).on_conflict_do_nothing())


def took(connection: Connection, statement: Any) -> bool:
    """Whether an insert wrote its row. (Its row count isn't kept on PostgreSQL.)"""
    return connection.execute(statement.returning(sa.literal(1))).first() is not None


def put(connection: Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    """Inserts or replaces whole rows by primary key."""
    listed = list(rows)
    if not listed:
        return
    statement = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    rest = {name: statement.excluded[name] for name in listed[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=rest), listed)
