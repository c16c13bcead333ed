"""Proofs of providers: what `medevac provider certify` saw each do on a real machine of this installation."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from pydantic import JsonValue

from activities.storage.database import Database
from activities.storage.machine_tables import certificates
from medevac.model import Model


class Certificate(Model):
    provider: str
    at: datetime
    by: str
    machine_id: str
    passed: bool
    proof: dict[str, JsonValue]
    """Each step with what was seen."""


class Certificates:
    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, certificate: Certificate) -> None:
        with self._db.transaction() as connection:
            connection.execute(sa.insert(certificates).values(**certificate.model_dump()))

    def newest(self, provider: str) -> Certificate | None:
        """The last word counts: a provider that failed since it passed is not certified."""
        query = (
            sa.select(certificates)
            .where(certificates.c.provider == provider)
            .order_by(certificates.c.at.desc())
            .limit(1)
        )
        with self._db.reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        return None if row is None else Certificate.model_validate(dict(row))

    def certified(self, provider: str) -> bool:
        """Raises `Unreadable`."""
        found = self.newest(provider)
        return found is not None and found.passed
