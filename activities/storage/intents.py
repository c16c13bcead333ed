"""The durable word that a call is about to be made. A key that has one is never called again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.engine import Connection

from activities.ports import Verb
from activities.storage.database import Database
from activities.storage.statements import chunks, put_if_absent
from activities.storage.tables import intents
from medevac.faults.classes import FaultClass
from medevac.incident import StepKey
from medevac.model import Model
from medevac.policy.plan import Attempt, Rung


class Intent(Model):
    key: StepKey
    verb: Verb
    cluster: str
    node: str
    machine_id: str
    boot_id: str | None
    rung: Rung
    fault: str
    fault_class: FaultClass
    before: JsonValue = None
    """The machine's state as it was before the call, to tell a proof from what was there already."""
    at: datetime
    sent_at: datetime | None = None
    """Set once the call's answer is known, also when it is that nobody knows."""
    answer: JsonValue = None
    void_at: datetime | None = None
    """Set when the call surely wasn't made: it isn't an attempt, and may be begun anew."""
    void_reason: str | None = None
    outcome: str | None = None

    @property
    def void(self) -> bool:
        return self.void_at is not None


def machine_key(machine_id: str | None, cluster: str, node: str) -> str:
    """What attempts are counted by: the machine, or the node's name where no machine id is known."""
    return machine_id or f"{cluster}/{node}"


class Intents:
    def __init__(self, db: Database) -> None:
        self._db = db

    def begin(
        self,
        key: StepKey,
        verb: Verb,
        cluster: str,
        node: str,
        machine_id: str | None,
        boot_id: str | None,
        rung: Rung,
        fault: str,
        fault_class: FaultClass,
        at: datetime,
        before: JsonValue = None,
    ) -> tuple[Intent, bool]:
        """Inserts or gets. True = it's ours: call now. False = someone has called or may have: wait for proof.

        The row is the attempt that the ladder counts, so intent and count can't come apart. One that was voided
        (surely not sent) is begun anew by exactly one caller.
        """
        intent = Intent(
            key=key,
            verb=verb,
            cluster=cluster,
            node=node,
            machine_id=machine_key(machine_id, cluster, node),
            boot_id=boot_id,
            rung=rung,
            fault=fault,
            fault_class=fault_class,
            before=before,
            at=at,
        )
        row = {**intent.model_dump(mode="python", exclude={"key"}), **_columns(key)}
        with self._db.transaction() as connection:
            if put_if_absent(connection, intents, row):
                return intent, True
            revived = sa.update(intents).where(_is(key), intents.c.void_at.is_not(None)).values(**row)
            if connection.execute(revived).rowcount == 1:
                return intent, True
            found = _get(connection, key)
            if found is None:  # pragma: no cover - rows are never deleted
                raise RuntimeError(f"intent {key} vanished")
            return found, False

    def get(self, key: StepKey) -> Intent | None:
        """Also one that is void."""
        with self._db.reading() as connection:
            return _get(connection, key)

    def sent(self, key: StepKey, answer: JsonValue, at: datetime) -> None:
        """Notes what the system said. The first answer stays."""
        with self._db.transaction() as connection:
            connection.execute(
                sa.update(intents).where(_is(key), intents.c.sent_at.is_(None)).values(sent_at=at, answer=answer)
            )

    def void(self, key: StepKey, reason: str, at: datetime) -> None:
        """The call surely had no effect. Not possible once an answer is known."""
        with self._db.transaction() as connection:
            connection.execute(
                sa.update(intents)
                .where(_is(key), intents.c.sent_at.is_(None), intents.c.void_at.is_(None))
                .values(void_at=at, void_reason=reason)
            )

    def ended(self, key: StepKey, outcome: str) -> None:
        """How the attempt ended (`proved`, `timed_out`, …), for the history that the next plan reads."""
        with self._db.transaction() as connection:
            connection.execute(sa.update(intents).where(_is(key)).values(outcome=outcome))


def attempts(connection: Connection, machine: str, since: datetime) -> tuple[Attempt, ...]:
    """Rungs begun on a machine, oldest first. Asking for a successor and terminating the old one is one attempt."""
    return attempts_of(connection, [machine], since).get(machine, ())


def attempts_of(connection: Connection, machines: Iterable[str], since: datetime) -> dict[str, tuple[Attempt, ...]]:
    """The same of many machines at once, by `machine_key`; those without any are not in it."""
    found: dict[str, list[sa.Row[Any]]] = {}
    for some in chunks(set(machines)):
        query = sa.select(intents).where(intents.c.machine_id.in_(some), intents.c.at >= since)
        ordered = query.where(intents.c.void_at.is_(None)).order_by(intents.c.at, intents.c.n)
        for row in connection.execute(ordered):
            found.setdefault(row.machine_id, []).append(row)
    return {machine: _attempts(rows) for machine, rows in found.items()}


def _attempts(rows: Sequence[sa.Row[Any]]) -> tuple[Attempt, ...]:
    requested = {(row.incident, row.rung) for row in rows if row.verb == Verb.REQUEST}
    return tuple(
        Attempt(
            incident=row.incident,
            rung=Rung(row.rung),
            fault_class=FaultClass(row.fault_class),
            fault=row.fault,
            at=row.at,
            outcome=row.outcome or ("sent" if row.sent_at else "begun"),
        )
        for row in rows
        if not (row.verb == Verb.TERMINATE and (row.incident, row.rung) in requested)
    )


def _columns(key: StepKey) -> dict[str, str | int]:
    return {"incident": key.incident, "step": key.step, "n": key.n}


def _is(key: StepKey) -> sa.ColumnElement[bool]:
    return sa.and_(intents.c.incident == key.incident, intents.c.step == key.step, intents.c.n == key.n)


def _get(connection: Connection, key: StepKey) -> Intent | None:
    row = connection.execute(sa.select(intents).where(_is(key))).mappings().one_or_none()
    if row is None:
        return None
    return Intent(key=key, **{name: value for name, value in row.items() if name not in ("incident", "step", "n")})
