"""What was said last under each key and is held: by Temporal, or by the inbox. Shared by every process that hears.

And what each watcher has raised on a node (`raised.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.statements import chunks, insert
from activities.storage.tables import said


class Said(NamedTuple):
    words: str
    at: datetime
    """By the clock of the process that heard it."""


def read(connection: Connection, keys: Iterable[str]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    for some in chunks(set(keys)):
        rows = connection.execute(sa.select(said).where(said.c.key.in_(some)))
        found.update((row.key, Said(row.words, row.at)) for row in rows)
    return found


def write(connection: Connection, heard: Mapping[str, Said]) -> None:
    """The latest counts: one that was heard earlier but is written later changes nothing."""
    if not heard:
        return
    statement = insert(connection, said)
    statement = statement.on_conflict_do_update(
        index_elements=["key"],
        set_={"words": statement.excluded.words, "at": statement.excluded["at"]},
        where=statement.excluded["at"] >= said.c.at,
    )
    # In one order, so that two processes never wait for each other.
    rows = [{"key": key, "words": one.words, "at": one.at} for key, one in sorted(heard.items())]
    connection.execute(statement, rows)


def prune(connection: Connection, before: datetime) -> int:
    return connection.execute(sa.delete(said).where(said.c.at < before)).rowcount
