"""What has changed in the ledger, told by a few columns: whoever shows it reads the whole only of what did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from activities.storage.database import Database
from activities.storage.ledger import incident_view
from activities.storage.statements import chunks
from activities.storage.tables import approvals, incidents
from medevac.approvals.approval import ApprovalState
from medevac.incident import IncidentView


class Changed:
    def __init__(self, db: Database) -> None:
        self._db = db

    def incidents(self, also: Iterable[str] = ()) -> dict[str, str]:
        """Of those that are open, and of `also`: id → a stamp that is another one after each change."""
        c = incidents.c
        columns = sa.select(c.id, c.rev, c.state, c.end)
        return self._stamps(columns, c.open, c.id, also)

    def approvals(self, also: Iterable[str] = ()) -> dict[str, str]:
        """Of those that are pending, and of `also`."""
        c = approvals.c
        columns = sa.select(c.id, c.rev, c.state, sa.null().label("end")).order_by(c.requested_at)
        return self._stamps(columns, c.state == ApprovalState.PENDING, c.id, also)

    def views(self, ids: Iterable[str]) -> dict[str, IncidentView]:
        found: dict[str, IncidentView] = {}
        with self._db.reading() as connection:
            for some in chunks(set(ids)):
                rows = connection.execute(sa.select(incidents).where(incidents.c.id.in_(some)))
                found.update((row.id, incident_view(row)) for row in rows)
        return found

    def _stamps(
        self,
        columns: sa.Select[Any],
        standing: sa.ColumnElement[bool],
        id: sa.ColumnElement[str],
        also: Iterable[str],
    ) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._db.reading() as connection:
            for where in (standing, *(id.in_(some) for some in chunks(set(also)))):
                for row in connection.execute(columns.where(where)):
                    found[str(row[0])] = f"{row[1]}:{row[2]}:{row[3] or ''}"
        return found
