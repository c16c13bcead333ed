"""What one sender was heard to say of some nodes: for who speaks under the same name after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.tables import events


@dataclass(frozen=True, slots=True)
class Heard:
    node: str
    id: str
    dedupe_key: str
    kind: str


def heard(db: Database, sender: str, cluster: str, nodes: Iterable[str], since: datetime) -> list[Heard]:
    """Oldest first; of some hundred nodes at most. Raises `Unreadable`."""
    key = events.c.event["dedupe_key"].as_string().label("key")
    query = (
        sa.select(events.c.node, events.c.event_id, key, events.c.kind)
        .where(events.c.cluster == cluster, events.c.node.in_(set(nodes)), events.c.at >= since)
        .where(events.c.sender == sender)
        .order_by(events.c.id)
    )
    with db.reading() as connection:
        return [Heard(row.node, row.event_id, row.key, row.kind) for row in connection.execute(query)]
