"""A monitor's signs of life, for the ledger: it answered, whether or not it had anything to say."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from activities.ports import Unreadable
from activities.storage import alive
from activities.storage.database import Database
from worker.threads import Threads

log = logging.getLogger(__name__)


class Living:
    """Of one monitor, under the name by which `worker.quiet` expects it."""

    def __init__(self, name: str, database: Database, threads: Threads) -> None:
        self._name = name
        self._database = database
        self._threads = threads

    async def said(self, at: datetime | None = None) -> None:
        """What can't be written is only logged: the next sign comes soon."""
        try:
            await self._threads.run(alive.say, self._database, self._name, at or datetime.now(UTC))
        except Unreadable as error:
            log.error("%s answered, which can't be written down: %s", self._name, error)
