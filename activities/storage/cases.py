"""Cases as the ledger holds them, the incidents that they are about, and parts that were sent back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage.database import Database
from activities.storage.machine_tables import bad_parts, case_incidents
from activities.storage.machine_tables import cases as t
from activities.storage.statements import put_if_absent
from medevac.cases.case import Case, CaseState
from medevac.model import Model

HOUR = timedelta(hours=1)
TAKES_IN = (CaseState.ASKED, CaseState.OPENING, CaseState.WAITING)
"""States in which a case takes further incidents in."""


class Gone(LookupError):
    """The ledger has no case of that id."""


class BadPart(Model):
    """A serial that was in a case, and left."""

    serial: str
    incident: str
    part: str
    machine_id: str
    why: str
    at: datetime


class Provider(Model):
    """What is known about one provider's cases, when another one is about to be made."""

    introduced: bool
    """It has had a ticket: a person has let one go out before."""
    lately: int
    """Single cases of the last hour."""
    gathering: Case | None
    """The open summary case of the last hour."""


class Cases:
    def __init__(self, db: Database) -> None:
        self._db = db

    def join(
        self,
        incident: str,
        machine_id: str,
        provider: str,
        now: datetime,
        make: Callable[[Provider, Case | None], Case],
    ) -> tuple[Case, bool]:
        """The case of this incident, and whether it is new. One incident is in one open case, whoever asks how often.

        `make` is given what is known of the provider, and the open case about the same machine where there is one
        (or the summary that takes this one in); it answers with the case as it is to be. In one transaction.
        """
        with self._db.transaction() as connection:
            self._alone(connection)
            if (known := self._of_incident(connection, incident)) is not None:
                return known, False
            same = self._of_machine(connection, provider, machine_id)
            about = self._about(connection, provider, now)
            made = make(about, same)
            new = self._read(connection, made.id) is None
            self._write(connection, made, now)
            return made, new

    def change(self, id: str, how: Callable[[Case], Case], now: datetime) -> Case:
        """In one transaction; `how` is pure. Raises `Gone`."""
        with self._db.transaction() as connection:
            case = self._read(connection, id, lock=True)
            if case is None:
                raise Gone(id)
            changed = how(case)
            if changed != case:
                self._write(connection, changed, now)
            return changed

    def get(self, id: str) -> Case | None:
        with self._db.reading() as connection:
            return self._read(connection, id)

    def all(self, open_only: bool = True, limit: int = 100) -> list[Case]:
        """Newest first."""
        query = sa.select(t.c.view).order_by(t.c.opened_at.desc(), t.c.id).limit(limit)
        if open_only:
            query = query.where(t.c.state.in_([state for state in CaseState if state is not CaseState.CLOSED]))
        with self._db.reading() as connection:
            return [Case.stored(view) for view in connection.execute(query).scalars()]

    def by_ticket(self, system: str, ticket: str) -> Case | None:
        """The newest with that ticket, or whose id is that."""
        query = (
            sa.select(t.c.view)
            .where(t.c.system == system, sa.or_(t.c.ticket == ticket, t.c.id == ticket))
            .order_by(t.c.opened_at.desc())
            .limit(1)
        )
        with self._db.reading() as connection:
            view = connection.execute(query).scalar_one_or_none()
            return None if view is None else Case.stored(view)

    def of_incident(self, incident: str) -> list[Case]:
        """Newest first; closed ones too."""
        query = (
            sa.select(t.c.view)
            .join(case_incidents, case_incidents.c.case == t.c.id)
            .where(case_incidents.c.incident == incident)
            .order_by(t.c.opened_at.desc(), t.c.id)
        )
        with self._db.reading() as connection:
            return [Case.stored(view) for view in connection.execute(query).scalars()]

    def first_of(self, provider: str) -> str | None:
        """Of the cases of a provider without a ticket so far, the one that asks, or that has its yes and is being
        opened: the others wait for what becomes of it."""
        query = (
            sa.select(t.c.id)
            .where(t.c.provider == provider, t.c.state.in_([CaseState.ASKED, CaseState.OPENING]))
            .order_by(t.c.opened_at, t.c.id)
            .limit(1)
        )
        with self._db.reading() as connection:
            return connection.execute(query).scalar_one_or_none()

    def introduced(self, provider: str) -> bool:
        """Whether a case of this provider has gone out before: a yes that came to nothing lets no other letter out."""
        with self._db.reading() as connection:
            return self._introduced(connection, provider)

    # -- parts -------------------------------------------------------------------------------------------------

    def remember(self, parts: Iterable[BadPart]) -> None:
        with self._db.transaction() as connection:
            for part in parts:
                put_if_absent(connection, bad_parts, part.model_dump())

    def known_bad(self, serials: Iterable[str], but: str = "") -> list[BadPart]:
        """What of these serials was sent back before, newest first; but for what incident `but` sent back itself."""
        wanted = [serial for serial in serials if serial]
        if not wanted:
            return []
        query = (
            sa.select(bad_parts)
            .where(bad_parts.c.serial.in_(wanted), bad_parts.c.incident != but)
            .order_by(bad_parts.c.at.desc())
            .limit(20)
        )
        with self._db.reading() as connection:
            return [BadPart(**row) for row in connection.execute(query).mappings()]

    # -- rows --------------------------------------------------------------------------------------------------

    def _alone(self, connection: Connection) -> None:
        """Two incidents that open cases at once do so one after the other: their sum is limited."""
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7260512022)"))

    def _of_incident(self, connection: Connection, incident: str) -> Case | None:
        query = (
            sa.select(t.c.view)
            .join(case_incidents, case_incidents.c.case == t.c.id)
            .where(case_incidents.c.incident == incident, t.c.state != CaseState.CLOSED)
            .order_by(t.c.opened_at.desc())
            .limit(1)
        )
        view = connection.execute(query).scalar_one_or_none()
        return None if view is None else Case.stored(view)

    def _of_machine(self, connection: Connection, provider: str, machine_id: str) -> Case | None:
        if not machine_id:
            return None
        query = sa.select(t.c.view).where(t.c.provider == provider, t.c.state.in_(TAKES_IN))
        for view in connection.execute(query).scalars():
            case = Case.stored(view)
            if any(subject.was.machine_id == machine_id and not subject.proof for subject in case.subjects):
                return case
        return None

    def _about(self, connection: Connection, provider: str, now: datetime) -> Provider:
        query = sa.select(t.c.view).where(t.c.provider == provider, t.c.opened_at > now - HOUR)
        lately = [Case.stored(view) for view in connection.execute(query).scalars()]
        return Provider(
            introduced=self._introduced(connection, provider),
            lately=sum(not case.summary for case in lately),
            gathering=next((case for case in lately if case.summary and case.state in TAKES_IN), None),
        )

    def _introduced(self, connection: Connection, provider: str) -> bool:
        query = sa.select(t.c.id).where(t.c.provider == provider, t.c.ticket.is_not(None))
        return connection.execute(query.limit(1)).first() is not None

    def _read(self, connection: Connection, id: str, lock: bool = False) -> Case | None:
        query = sa.select(t.c.view).where(t.c.id == id)
        view = connection.execute(query.with_for_update() if lock else query).scalar_one_or_none()
        return None if view is None else Case.stored(view)

    def _write(self, connection: Connection, case: Case, now: datetime) -> None:
        values = {
            "system": case.system,
            "provider": case.provider,
            "ticket": case.ticket.id if case.ticket else None,
            "state": case.state,
            "updated_at": case.updated_at,
            "view": case.model_dump(mode="json"),
        }
        update = sa.update(t).where(t.c.id == case.id).values(**values, rev=t.c.rev + 1)
        if connection.execute(update).rowcount == 0:
            connection.execute(sa.insert(t).values(id=case.id, opened_at=case.opened_at, rev=1, **values))
        for incident in case.incidents:
            put_if_absent(connection, case_incidents, {"case": case.id, "incident": incident, "at": now})
