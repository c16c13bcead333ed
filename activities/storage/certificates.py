"""Proofs of providers: what `medevac provider certify` saw each do on a real machine of this installation."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from pydantic import JsonValue

from activities.storage.database import Database
from activities.storage.machine_tables import certificates
from medevac.fleet.node import Capability
from medevac.model import Model

CERTIFY = "certify"
"""Fault of the intents of a certification: they count for their machine, as reboots, and are no incident's repairs."""
MOST = 100
"""Proofs of one provider that are looked through."""
VERBS = (Capability.REBOOT, Capability.REINSTALL)
"""What a proof can be about, by the name of its step."""


class Certificate(Model):
    provider: str
    at: datetime
    by: str
    machine_id: str
    passed: bool
    proof: dict[str, JsonValue]
    """Each step with what was seen, and the `form` of the provider: a digest of how it was configured."""

    @property
    def form(self) -> str:
        """Empty where it is older than forms, which is a form of its own."""
        return str(self.proof.get("form") or "")

    @property
    def verbs(self) -> dict[Capability, bool]:
        """What was tried on the machine, and whether it was proved."""
        steps = self.proof.get("steps")
        found = {}
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, dict) and step.get("name") in VERBS and isinstance(passed := step.get("passed"), bool):
                found[Capability(str(step["name"]))] = passed
        return found


class Certificates:
    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, certificate: Certificate) -> None:
        with self._db.transaction() as connection:
            connection.execute(sa.insert(certificates).values(**certificate.model_dump()))

    def newest(self, provider: str) -> Certificate | None:
        """However it was configured then."""
        return next(iter(self._all(provider, 1)), None)

    def proved(self, provider: str, form: str) -> frozenset[Capability]:
        """What it was last seen to do as it is configured; nothing where its newest word is a failure: the last word
        counts. What another program, account or address did under its name proves nothing of it. Raises `Unreadable`.
        """
        words = [word for word in self._all(provider, MOST) if word.form == form]
        if not words or not words[0].passed:
            return frozenset()
        said: dict[Capability, bool] = {}
        for word in words:
            said = word.verbs | said
        return frozenset(verb for verb, passed in said.items() if passed)

    def _all(self, provider: str, most: int) -> list[Certificate]:
        """Newest first."""
        query = (
            sa.select(certificates)
            .where(certificates.c.provider == provider)
            .order_by(certificates.c.at.desc())
            .limit(most)
        )
        with self._db.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [Certificate.stored(dict(row)) for row in rows]

    def certified(self, provider: str, form: str) -> bool:
        """Raises `Unreadable`."""
        found = next((word for word in self._all(provider, MOST) if word.form == form), None)
        return found is not None and found.passed
