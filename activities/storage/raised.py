"""What a watcher has raised on each node and not taken back, written down before it is said.

The ledger's line comes after Temporal's answer; a process that is killed in between would leave a fault that nobody
knows to take back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from activities.storage import said
from activities.storage.database import Database
from activities.storage.said import Said


def raised(db: Database, sender: str, cluster: str, nodes: Iterable[str]) -> dict[str, frozenset[str]]:
    """Condition types by node; nothing for a node without any. Raises `Unreadable`."""
    keys = {_key(sender, cluster, node): node for node in nodes}
    with db.reading() as connection:
        found = said.read(connection, keys)
    return {keys[key]: frozenset(one.words.split(" ")) for key, one in found.items() if one.words}


def keep(db: Database, sender: str, cluster: str, nodes: Mapping[str, Collection[str]], now: datetime) -> None:
    """In place of what was there. Raises `Unreadable`."""
    rows = {_key(sender, cluster, node): Said(" ".join(sorted(types)), now) for node, types in nodes.items()}
    with db.transaction() as connection:
        said.write(connection, rows)


def _key(sender: str, cluster: str, node: str) -> str:
    return f"raised|{sender}|{cluster}|{node}"
