"""What one sender was heard to say of some nodes: for who speaks under the same name after it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.tables import events


def heard(db: Database, sender: str, cluster: str, nodes: Iterable[str], since: datetime) -> set[str]:
    """Ids of its statements; of some hundred nodes at most. Raises `Unreadable`."""
    query = (
        sa.select(events.c.event_id)
        .where(events.c.cluster == cluster, events.c.node.in_(set(nodes)), events.c.at >= since)
        .where(events.c.sender == sender)
    )
    with db.reading() as connection:
        return set(connection.execute(query).scalars())
