"""Signs of life of monitors that may have nothing to say: when each answered last.

They lie among what was said last (`said.py`), one row a name, and are forgotten with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.engine import Connection

from activities.storage import said
from activities.storage.database import Database
from activities.storage.said import Said

PREFIX = "alive|"


def say(db: Database, name: str, at: datetime) -> None:
    """Raises `Unreadable`."""
    with db.transaction() as connection:
        said.write(connection, {f"{PREFIX}{name}": Said("alive", at)})


def last(connection: Connection, names: Iterable[str], since: datetime) -> dict[str, datetime]:
    found = said.read(connection, (f"{PREFIX}{name}" for name in names))
    return {key.removeprefix(PREFIX): one.at for key, one in found.items() if one.at >= since}
