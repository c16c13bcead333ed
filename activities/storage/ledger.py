"""The ledger: incidents, what was done in them step by step, approvals, and what is known of a machine's past."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage import alive, past, said, seen
from activities.storage.database import Database
from activities.storage.intents import attempts_of
from activities.storage.seen import SeenEvent
from activities.storage.statements import insert, put_if_absent, took
from activities.storage.tables import approvals, incidents, lines, notes, successors
from medevac.approvals.approval import ApprovalState, ApprovalView
from medevac.events.event import HealthEvent
from medevac.incident import IncidentView, Line, State, StepKey
from medevac.model import Model, digest
from medevac.policy.plan import Attempt, History, Latch, PastIncident


class LedgerLine(Line):
    """A line as it stands in the ledger."""

    flagged: bool
    """Another line says something else under the same key: one of the two is wrong, a person should look."""


class Note(Model):
    """What people (or others) did to a node meanwhile."""

    cluster: str
    node: str
    text: str
    at: datetime


class Successor(Model):
    old_machine: str
    new_machine: str
    incident: str
    at: datetime


class Ledger:
    def __init__(self, db: Database) -> None:
        self._db = db

    # -- incidents ---------------------------------------------------------------------------------------------

    def upsert_incident(self, view: IncidentView) -> bool:
        """False when the ledger has a newer revision, or the incident's end, already; that stays."""
        with self._db.transaction() as connection:
            return _upsert(connection, view)

    def begin_step(
        self,
        key: StepKey,
        step: str,
        due_at: datetime | None,
        view: IncidentView | None = None,
        state: State | None = None,
    ) -> None:
        """Says that a step runs and by when it must have ended, so that the sweep misses it if it doesn't.

        `state` is what the step means for the incident, where it means something: the incident's own row is
        written at phase changes only, and would show a wait that is long over.
        """
        values = {"step": step, "due_at": due_at} | ({"state": state} if state else {})
        with self._db.transaction() as connection:
            if view is not None:
                _upsert(connection, view)
            mine = (incidents.c.id == key.incident) & incidents.c.end.is_(None)
            connection.execute(sa.update(incidents).where(mine).values(**values))

    def incident(self, id: str) -> IncidentView | None:
        with self._db.reading() as connection:
            row = connection.execute(sa.select(incidents).where(incidents.c.id == id)).one_or_none()
            return None if row is None else incident_view(row)

    def incidents(
        self,
        open_only: bool = True,
        cluster: str | None = None,
        node: str | None = None,
        limit: int = 100,
    ) -> list[IncidentView]:
        """Newest first. `node`: its name now, or the one under which the incident began before it was replaced."""
        query = sa.select(incidents).order_by(incidents.c.opened_at.desc(), incidents.c.id).limit(limit)
        if open_only:
            query = query.where(incidents.c.open)
        if cluster is not None:
            query = query.where(incidents.c.cluster == cluster)
        if node is not None:
            began = incidents.c.view["workflow_id"].as_string().endswith(f"/{node}", autoescape=True)
            query = query.where(sa.or_(incidents.c.node == node, began))
        with self._db.reading() as connection:
            return [incident_view(row) for row in connection.execute(query)]

    def overdue(self, now: datetime) -> list[IncidentView]:
        """Open incidents whose step should have ended by now and hasn't: stuck, or their workflow is gone."""
        query = sa.select(incidents).where(incidents.c.open, incidents.c.due_at < now).order_by(incidents.c.due_at)
        with self._db.reading() as connection:
            return [incident_view(row) for row in connection.execute(query)]

    # -- lines -------------------------------------------------------------------------------------------------

    def add_lines(self, added: Iterable[Line]) -> int:
        """How many were new. Same key and meaning: no second line. Other meaning: both are kept, and flagged."""
        with self._db.transaction() as connection:
            return sum(put_line(connection, line) for line in added)

    def lines(self, incident: str) -> list[LedgerLine]:
        """In the order of their times."""
        # Flagged as it is read, not as it is written: two writers at once don't see each other's line.
        same_key = sa.func.count().over(partition_by=(lines.c.step, lines.c.n, lines.c.kind))
        query = (
            sa.select(lines, (same_key > 1).label("flagged"))
            .where(lines.c.incident == incident)
            .order_by(lines.c.at, lines.c.id)
        )
        with self._db.reading() as connection:
            return [
                LedgerLine(
                    key=StepKey(incident=r.incident, step=r.step, n=r.n),
                    at=r.at,
                    kind=r.kind,
                    text=r.text,
                    data=r.data,
                    flagged=bool(r.flagged),
                )
                for r in connection.execute(query)
            ]

    def flagged(self, limit: int = 100) -> list[StepKey]:
        """Keys under which two different things were said."""
        key = (lines.c.incident, lines.c.step, lines.c.n)
        query = sa.select(*key).group_by(*key, lines.c.kind).having(sa.func.count() > 1).distinct().limit(limit)
        with self._db.reading() as connection:
            return [StepKey(incident=r.incident, step=r.step, n=r.n) for r in connection.execute(query)]

    # -- a machine's past --------------------------------------------------------------------------------------

    def history(
        self, incident: str, cluster: str, node: str, machine_id: str | None, now: datetime, pool: str | None = None
    ) -> History:
        """What the next plan must know: by machine, through close, re-open, rename and abort.

        Spares aren't known here; the caller fills them in from the cluster.
        """
        with self._db.reading() as connection:
            return past.history(connection, incident, cluster, node, machine_id, now, pool)

    def attempts_of(self, machines: Iterable[str], now: datetime) -> dict[str, tuple[Attempt, ...]]:
        """By `machine_key`: what was begun on each lately, as the next plan would count it."""
        with self._db.reading() as connection:
            return attempts_of(connection, machines, now - past.ATTEMPTS_WINDOW)

    def past_of(self, machines: Iterable[str], but: Iterable[str], now: datetime) -> dict[str, list[PastIncident]]:
        """By machine id, oldest first: its incidents of the last 30 days, without those that are named in `but`."""
        with self._db.reading() as connection:
            return past.of_machines(connection, machines, set(but), now)

    def add_latch(self, incident: str, machine_id: str | None, latch: Latch) -> None:
        """A veto, reject or expiry. The same one twice is one."""
        with self._db.transaction() as connection:
            past.latch(connection, incident, machine_id, latch)

    def record_successor(self, old_machine: str, new_machine: str, incident: str, at: datetime) -> None:
        """`new_machine` took the place of `old_machine`; a machine id, or `cluster/node` where only that is known."""
        row = {"old_machine": old_machine, "new_machine": new_machine, "incident": incident, "at": at}
        with self._db.transaction() as connection:
            put_if_absent(connection, successors, row)

    def successors(self, since: datetime) -> list[Successor]:
        query = sa.select(successors).where(successors.c.at >= since).order_by(successors.c.at)
        with self._db.reading() as connection:
            return [Successor(**row) for row in connection.execute(query).mappings()]

    def note(self, cluster: str, node: str, text: str, at: datetime) -> None:
        values = {"cluster": cluster, "node": node, "text": text, "at": at}
        with self._db.transaction() as connection:
            put_if_absent(connection, notes, {**values, "digest": digest(values)})

    def notes(self, cluster: str, node: str, since: datetime) -> list[Note]:
        query = (
            sa.select(notes.c.cluster, notes.c.node, notes.c.text, notes.c.at)
            .where(notes.c.cluster == cluster, notes.c.node == node, notes.c.at >= since)
            .order_by(notes.c.at, notes.c.id)
        )
        with self._db.reading() as connection:
            return [Note(**row) for row in connection.execute(query).mappings()]

    # -- events seen -------------------------------------------------------------------------------------------

    def see_events(self, seen_events: Iterable[tuple[HealthEvent, str | None, str]]) -> None:
        """Events with the node each was resolved to (None = nobody knows it) and what became of it."""
        with self._db.transaction() as connection:
            seen.write(connection, seen_events)

    def events_since(self, t: datetime, limit: int = 1_000) -> list[SeenEvent]:
        """Newest first."""
        with self._db.reading() as connection:
            return seen.since(connection, t, limit)

    def heard_of(self, cluster: str, node: str, t: datetime, limit: int = 20) -> list[SeenEvent]:
        """What was said of a node since `t`, newest first."""
        with self._db.reading() as connection:
            return seen.of_node(connection, cluster, node, t, limit)

    def heard_last(self, senders: Iterable[str], t: datetime) -> dict[str, datetime]:
        """When each of these senders was heard last since `t`: said something, or showed that it is alive."""
        names = set(senders)
        with self._db.reading() as connection:
            found = seen.last_by_sender(connection, names, t)
            for name, at in alive.last(connection, names, t).items():
                found[name] = max(at, found.get(name, at))
            return found

    def beats(self, t: datetime, limit: int = 20_000) -> list[seen.Heard]:
        """Alerts since `t` that only inform and name no machine, as heartbeats do; newest first."""
        with self._db.reading() as connection:
            return seen.beats(connection, t, limit)

    def last_of(self, fault: str, t: datetime, limit: int = 1_000) -> list[SeenEvent]:
        """The newest event of this code, about no machine, under each key."""
        with self._db.reading() as connection:
            return seen.last_of(connection, fault, t, limit)

    def unplaced(self, t: datetime, limit: int = 1_000) -> list[SeenEvent]:
        """Latched faults and provider's notices since `t` about machines that no node is known as, newest first."""
        with self._db.reading() as connection:
            return seen.of_no_node(connection, t, limit)

    def forget_events(self, before: datetime) -> int:
        """Retention: how many were deleted."""
        with self._db.transaction() as connection:
            said.prune(connection, before)
            return seen.prune(connection, before)

    # -- approvals ---------------------------------------------------------------------------------------------

    def upsert_approval(self, view: ApprovalView) -> bool:
        """False when the ledger has a decision, or a newer revision, already; that one stays."""
        row = {
            "id": view.id,
            "state": view.state,
            "requested_at": view.requested_at,
            "expires_at": view.expires_at,
            "rev": view.rev,
            "view": view.model_dump(mode="json"),
        }
        with self._db.transaction() as connection:
            statement = insert(connection, approvals).values(**row)
            statement = statement.on_conflict_do_update(
                index_elements=["id"],
                set_={name: statement.excluded[name] for name in row if name != "id"},
                where=sa.and_(approvals.c.state == ApprovalState.PENDING, approvals.c.rev <= statement.excluded.rev),
            )
            return took(connection, statement)

    def approval(self, id: str) -> ApprovalView | None:
        with self._db.reading() as connection:
            return read_approval(connection, id)

    def approval_state(self, id: str) -> ApprovalState | None:
        """Without reading who waits for it, which may be many."""
        with self._db.reading() as connection:
            state = connection.execute(sa.select(approvals.c.state).where(approvals.c.id == id)).scalar_one_or_none()
            return None if state is None else ApprovalState(state)

    def approvals(self, pending_only: bool = True, limit: int = 100) -> list[ApprovalView]:
        """Pending: longest waiting first. All: newest first."""
        query = sa.select(approvals.c.view).limit(limit)
        if pending_only:
            query = query.where(approvals.c.state == ApprovalState.PENDING).order_by(approvals.c.requested_at)
        else:
            query = query.order_by(approvals.c.requested_at.desc())
        with self._db.reading() as connection:
            return [ApprovalView.stored(view) for view in connection.execute(query).scalars()]


def read_approval(connection: Connection, id: str) -> ApprovalView | None:
    view = connection.execute(sa.select(approvals.c.view).where(approvals.c.id == id)).scalar_one_or_none()
    return None if view is None else ApprovalView.stored(view)


def put_line(connection: Connection, line: Line) -> bool:
    """True when it was new."""
    return put_if_absent(
        connection,
        lines,
        {
            "incident": line.key.incident,
            "step": line.key.step,
            "n": line.key.n,
            "kind": line.kind,
            # Without the time: a retried step says the same thing later.
            "digest": digest({"text": line.text, "data": line.data}),
            "at": line.at,
            "text": line.text,
            "data": line.data,
        },
    )


def _upsert(connection: Connection, view: IncidentView) -> bool:
    row = {
        "id": view.id,
        "cluster": view.cluster,
        "node": view.node,
        "machine_id": view.machine_id,
        "fault": view.fault,
        "fault_class": view.fault_class,
        "state": view.state,
        "end": view.end,
        "open": view.end is None and view.state is not State.ENDED,
        "opened_at": view.opened_at,
        "updated_at": view.updated_at,
        "step": view.step,
        "due_at": view.due_at,
        "rev": view.rev,
        "view": view.model_dump(mode="json"),
    }
    statement = insert(connection, incidents).values(**row)
    statement = statement.on_conflict_do_update(
        index_elements=["id"],
        set_={name: statement.excluded[name] for name in row if name != "id"},
        # An end stands. A workflow restored from an older store counts its own revisions, and may come to a newer one.
        where=sa.and_(incidents.c.rev <= statement.excluded.rev, incidents.c.end.is_(None)),
    )
    return took(connection, statement)


def incident_view(row: sa.Row[tuple[object, ...]]) -> IncidentView:
    view = IncidentView.stored(row.view)
    went_on = {} if row.state == view.state else {"state": State(row.state), "waiting_for": ""}
    return view.model_copy(update={"step": row.step, "due_at": row.due_at, **went_on})
