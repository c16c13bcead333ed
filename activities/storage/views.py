"""What people look at: long lists, searches and marks of change, read without making whole models of each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.storage import order_tables as o
from activities.storage import tables as t
from activities.storage.database import Database
from activities.storage.fences import fence_of, read_active
from activities.storage.machine_tables import cases
from activities.storage.silences import silence_of
from medevac.approvals.approval import ApprovalState, ApprovalView, Voided, Vote, Waiter
from medevac.fleet.fence import Fence
from medevac.fleet.thaw_votes import weighed
from medevac.incident import End, State, said_by
from medevac.policy.silences import Silence

LONGEST_LIST = 5_000
BATCH = 1_000
"""Rows that an export reads at a time; between two, others get their turn."""


_STATES = {str(state): state for state in State}
_ENDS = {str(end): end for end in End}


class Listed(NamedTuple):
    """An incident in a list."""

    id: str
    cluster: str
    node: str
    pool: str
    fault: str
    state: State
    end: End | None
    step: str
    waiting_for: str
    summary: str
    owner: str
    opened_at: datetime


class Waiting(NamedTuple):
    """A place in the guard's line."""

    incident: str
    cluster: str
    node: str
    blocked: str
    """Domain whose limit refused it last; empty where a breaker, a freeze or the pace did."""
    turn: datetime


class Said(NamedTuple):
    """One line of the audit: what was said, about whom, when."""

    id: int
    """Of the ledger line; 0 for a vote, a freeze or a silence, which stand elsewhere."""
    at: datetime
    kind: str
    subject: str
    """Incident, approval, campaign, silence or scope."""
    cluster: str
    node: str
    text: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """Everything that is given must fit. Text is taken literally, whatever it holds."""

    since: datetime
    until: datetime
    text: str = ""
    node: str = ""
    person: str = ""


class Views:
    def __init__(self, db: Database) -> None:
        self._db = db

    # -- incidents ---------------------------------------------------------------------------------------------

    def incidents(
        self, *, open_only: bool = True, text: str = "", state: str = "", limit: int = 200
    ) -> tuple[list[Listed], int]:
        """Newest first, at most `LONGEST_LIST`; and how many there are of them."""
        i = t.incidents.c
        where: list[sa.ColumnElement[bool]] = [i.open] if open_only else []
        if state:
            where.append(i.state == state)
        if text:
            named = (i.node, i.id, i.fault, i.cluster)
            where.append(sa.or_(*(column.contains(text, autoescape=True) for column in named)))
        # Taken from the view by the database: to decode thousands of whole views takes longer than all the rest.
        words = [i.view[name].as_string() for name in ("pool", "waiting_for", "summary", "owner", "state")]
        columns = (i.id, i.cluster, i.node, i.fault, i.state, i.end, i.step, i.opened_at, *words)
        query = sa.select(*columns).where(*where).order_by(i.opened_at.desc(), i.id).limit(min(limit, LONGEST_LIST))
        with self._db.reading() as connection:
            found = [_listed(row) for row in connection.execute(query)]
            count = connection.execute(sa.select(sa.func.count()).select_from(t.incidents).where(*where)).scalar_one()
        return found, count

    def by_node(self) -> dict[tuple[str, str], Listed]:
        """The newest open incident of each node, by cluster and name."""
        return {(one.cluster, one.node): one for one in reversed(self.incidents(limit=LONGEST_LIST)[0])}

    def approvals_of(self, incident: str) -> list[ApprovalView]:
        """Those that asked for this incident: its own, and the fleet-wide one that it was last told to wait for."""
        a = t.approvals.c
        last = sa.select(t.asked.c.approval).where(t.asked.c.incident == incident).scalar_subquery()
        own = sa.or_(a.id.startswith(f"{incident}-", autoescape=True), a.id.startswith(f"{incident}/", autoescape=True))
        query = sa.select(a.view).where(sa.or_(own, a.id == last)).order_by(a.requested_at).limit(50)
        with self._db.reading() as connection:
            return [ApprovalView.stored(view) for view in connection.execute(query).scalars()]

    def queue(self, limit: int = 500) -> list[Waiting]:
        q = t.queue.c
        query = sa.select(q.incident, q.cluster, q.node, q.blocked, q.turn).order_by(q.turn).limit(limit)
        with self._db.reading() as connection:
            return [Waiting(*row) for row in connection.execute(query)]

    # -- marks of change ---------------------------------------------------------------------------------------

    def marks(self) -> dict[str, str]:
        """Topic → words that are others once something of it has changed. Aggregates only, cheap enough to poll."""
        i, n, c = t.incidents.c, o.campaign_nodes.c, o.campaigns.c
        steps = (
            sa.select(i.state, i.step, sa.func.count(), sa.func.sum(i.rev), sa.func.max(i.updated_at))
            .add_columns(sa.func.max(i.due_at))
            .where(i.open)
            .group_by(i.state, i.step)
            .order_by(i.state, i.step)
        )
        running = sa.select(c.id).where(c.ended_at.is_(None))
        nodes = (
            sa.select(n.campaign, n.state, sa.func.count())
            .where(n.campaign.in_(running))
            .group_by(n.campaign, n.state)
            .order_by(n.campaign, n.state)
        )
        silenced = sa.select(sa.func.count(), sa.func.max(o.silences.c.ended_at))
        pending = sa.select(sa.func.count(), sa.func.sum(t.approvals.c.rev), sa.func.max(t.approvals.c.requested_at))
        with self._db.reading() as connection:
            return {
                "incidents": _words(connection, steps),
                "lines": _words(connection, sa.select(sa.func.max(t.lines.c.id))),
                "approvals": _words(connection, pending.where(t.approvals.c.state == ApprovalState.PENDING)),
                "campaigns": _words(connection, sa.select(c.id, c.state, c.updated_at).order_by(c.at.desc()).limit(100))
                + _words(connection, nodes),
                "silences": _words(connection, silenced),
                "cases": _words(connection, sa.select(sa.func.count(), sa.func.sum(cases.c.rev))),
                "guard": _words(connection, sa.select(t.guard.c.stamp))
                + _words(connection, sa.select(sa.func.count(), sa.func.max(t.queue.c.turn)))
                + str([(fence.epoch, fence.thaw_votes) for fence in read_active(connection)]),
            }

    # -- audit -------------------------------------------------------------------------------------------------

    def said(self, search: Search, limit: int, before: int | None = None) -> list[Said]:
        """Lines, those written last first; `before` is the id of the last one that was seen already."""
        line, i = t.lines.c, t.incidents.c
        where = [line.at >= search.since, line.at < search.until]
        if before is not None:
            where.append(line.id < before)
        if search.text:
            where.append(line.text.contains(search.text, autoescape=True))
        if search.node:
            began = i.view["workflow_id"].as_string().endswith(f"/{search.node}", autoescape=True)
            where.append(sa.or_(i.node == search.node, began))
        if search.person:
            data = sa.cast(line.data, sa.Text)
            where.append(sa.or_(*(c.contains(search.person, autoescape=True) for c in (line.text, data))))
        query = (
            sa.select(line.id, line.at, line.kind, line.incident, i.cluster, i.node, line.text, line.data)
            .select_from(t.lines.outerjoin(t.incidents, i.id == line.incident))
            .where(*where)
            .order_by(line.id.desc())
            .limit(limit)
        )
        with self._db.reading() as connection:
            return [Said(r[0], r[1], r[2], r[3], r[4] or "", r[5] or "", r[6], r[7]) for r in connection.execute(query)]

    def export(self, search: Search, most: int) -> Iterator[list[Said]]:
        """The same in batches, people's decisions first, all of them; ends after `most` lines."""
        before: int | None = None
        yield from self._decisions(search)
        while most > 0 and (found := self.said(search, min(BATCH, most), before)):
            yield found
            most -= len(found)
            before = found[-1].id

    def said_at(self, line: int) -> datetime | None:
        """When the line of that id was said; None where there is none."""
        with self._db.reading() as connection:
            return connection.execute(sa.select(t.lines.c.at).where(t.lines.c.id == line)).scalar_one_or_none()

    def decisions(self, search: Search) -> list[Said]:
        """Votes, freezes and silences of the time: who, when, how and why. Newest first, all of them."""
        found = (one for batch in self._decisions(search) for one in batch)
        return sorted(found, key=lambda one: one.at, reverse=True)

    def _decisions(self, search: Search) -> Iterator[list[Said]]:
        """In batches, each newest first."""
        for batch in (self._stops(search), *self._silenced(search), *self._voted(search)):
            fitting = [one for one in batch if _fits(search, one)]
            if fitting:
                yield sorted(fitting, key=lambda one: one.at, reverse=True)

    def _voted(self, search: Search) -> Iterator[list[Said]]:
        """A question is voted on between its beginning and its end, so only those of the time are read."""
        a = t.approvals.c
        columns = (a.requested_at, a.id, a.view["title"].as_string(), a.view["votes"], a.view["voided"])
        query = (
            sa.select(*columns, a.view[("waiters", 0)], a.view[("waiters", 1)])
            .where(a.requested_at < search.until, a.expires_at >= search.since)
            .order_by(a.requested_at.desc(), a.id)
            .limit(BATCH)
        )
        after: tuple[datetime, str] | None = None
        while True:
            page = query
            if after is not None:
                same = sa.and_(a.requested_at == after[0], a.id > after[1])
                page = query.where(sa.or_(a.requested_at < after[0], same))
            with self._db.reading() as connection:
                rows = connection.execute(page).all()
            yield [one for row in rows for one in _votes(*row[1:])]
            if len(rows) < BATCH:
                return
            after = rows[-1][0], rows[-1][1]

    def _stops(self, search: Search) -> list[Said]:
        """Of freezes all are read: what counts of one depends on the others."""
        with self._db.reading() as connection:
            query = sa.select(t.fences).where(t.fences.c.at < search.until).order_by(t.fences.c.id.desc())
            rows = connection.execute(query).all()
        fences = [fence_of(row) for row in rows]
        said: dict[tuple[object, ...], Said] = {}
        for row, fence in zip(rows, fences, strict=True):
            # One word is for all freezes of its scope, and stands with each of them.
            said |= {(one.at, one.kind, one.subject, one.text): one for one in _freeze(fence, fences, row.thawed_at)}
        return list(said.values())

    def _silenced(self, search: Search) -> Iterator[list[Said]]:
        s = o.silences.c
        query = (
            sa.select(o.silences)
            .where(s["at"] < search.until, sa.or_(s["at"] >= search.since, s.ended_at >= search.since))
            .order_by(s["at"].desc(), s.id)
        )
        with self._db.reading() as connection:
            rows = connection.execute(query).mappings().all()
        yield [one for row in rows for one in _silence(silence_of(row))]


def _listed(row: Any) -> Listed:
    id, cluster, node, fault, state, end, step, opened_at, pool, waiting_for, summary, owner, began_as = row
    # The row goes on within a phase, the view is of its beginning: what it waited for may be over.
    waits = waiting_for or "" if began_as == state else ""
    return Listed(
        id, cluster, node, pool or "", fault or "", _STATES[state], _ENDS[end] if end else None, step,
        waits, summary or "", owner or "", opened_at,
    )  # fmt: skip


def _words(connection: Connection, query: sa.Executable) -> str:
    return str([tuple(row) for row in connection.execute(query)])


def _votes(id: str, title: str, votes: Any, voided: Any, first: Any, second: Any) -> Iterator[Said]:
    """`first`, `second`: of those who wait, where there are any; one alone says which node it is about."""
    one = Waiter.stored(first) if first and not second else None
    lost = [Voided.stored(each) for each in voided or ()]
    counted = [(Vote.stored(each), "") for each in votes or ()]
    for vote, why in [*counted, *((each.vote, each.why) for each in lost)]:
        words = f"{vote.verdict} by {vote.voter} ({vote.via}): {title}{f': {vote.reason}' if vote.reason else ''}"
        void = f"; it counts no longer: {why}" if why else ""
        shown = {"shown_hash": vote.shown_hash, "groups": list(vote.groups), "voided": bool(why)}
        yield Said(0, vote.at, "vote", id, one.cluster if one else "", one.node if one else "", f"{words}{void}", shown)


def _freeze(fence: Fence, others: Iterable[Fence], thawed_at: datetime | None) -> Iterator[Said]:
    by = said_by(fence.by, fence.via)
    yield Said(0, fence.at, "freeze", fence.scope, "", "", f"frozen by {by}: {fence.reason}", {})
    for vote in fence.thaw_votes:
        why = f": {vote.why}" if vote.why else ""
        said = said_by(vote.by, vote.via)
        yield Said(0, vote.at, "thaw", fence.scope, "", "", f"to be thawed, says {said}{why}", {})
    if thawed_at is not None:
        counted = weighed(fence, others, thawed_at).thaw_votes
        words = f"thawed by {' and '.join(vote.said for vote in counted)}"
        yield Said(0, thawed_at, "thaw", fence.scope, "", "", words, {})


def _silence(one: Silence) -> Iterator[Said]:
    m = one.matcher
    where = one.id, m.cluster or "", m.node or ""
    held = f"{' and '.join(one.holds)} held for {m} until {one.until:%Y-%m-%d %H:%M} UTC"
    yield Said(0, one.at, "silence", *where, f"silenced by {said_by(one.by, one.via)}: {held}: {one.reason}", {})
    if one.ended_at is not None:
        by = said_by(one.ended_by or "?", one.ended_via)
        yield Said(0, one.ended_at, "silence", *where, f"ended early by {by}: {held}", {})


def _fits(search: Search, one: Said) -> bool:
    return (
        search.since <= one.at < search.until
        and search.text.lower() in one.text.lower()
        and (not search.node or search.node == one.node)
        and search.person.lower() in one.text.lower()
    )
