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
from medevac.approvals.approval import ApprovalState, ApprovalView
from medevac.fleet.fence import Fence
from medevac.fleet.thaw_votes import weighed
from medevac.incident import End, State

LONGEST_LIST = 5_000
BATCH = 1_000
"""Rows that an export reads at a time; between two, others get their turn."""
DECISIONS = 2_000
"""Approvals, and freezes, that one search looks through."""


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
    """Of the ledger line; 0 for a vote or a freeze, which stand elsewhere."""
    at: datetime
    kind: str
    subject: str
    """Incident, approval, campaign or scope."""
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
            return [ApprovalView.model_validate(view) for view in connection.execute(query).scalars()]

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
        """The same in batches, people's votes and freezes first; ends after `most` lines."""
        yield self.decisions(search)
        before: int | None = None
        while most > 0 and (found := self.said(search, min(BATCH, most), before)):
            yield found
            most -= len(found)
            before = found[-1].id

    def decisions(self, search: Search) -> list[Said]:
        """Votes and freezes of the time: who, when and why. Newest first."""
        a, f = t.approvals.c, t.fences.c
        asked = sa.select(a.view).where(a.requested_at < search.until).order_by(a.requested_at.desc()).limit(DECISIONS)
        frozen = sa.select(t.fences).where(f.at < search.until).order_by(f.id.desc()).limit(DECISIONS)
        found: list[Said] = []
        with self._db.reading() as connection:
            for view in connection.execute(asked).scalars():
                found += _votes(view)
            rows = connection.execute(frozen).all()
        fences = [fence_of(row) for row in rows]
        said: dict[tuple[object, ...], Said] = {}
        for row, fence in zip(rows, fences, strict=True):
            # One word is for all freezes of its scope, and stands with each of them.
            said |= {(one.at, one.kind, one.subject, one.text): one for one in _freeze(fence, fences, row.thawed_at)}
        found += said.values()
        return sorted((one for one in found if _fits(search, one)), key=lambda one: one.at, reverse=True)


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


def _votes(stored: dict[str, Any]) -> Iterator[Said]:
    view = ApprovalView.model_validate(stored)
    one = view.waiters[0] if len(view.waiters) == 1 else None
    for vote in view.votes:
        words = f"{vote.verdict} by {vote.voter} ({vote.via}): {view.title}{f': {vote.reason}' if vote.reason else ''}"
        shown = {"shown_hash": vote.shown_hash, "groups": list(vote.groups)}
        yield Said(0, vote.at, "vote", view.id, one.cluster if one else "", one.node if one else "", words, shown)


def _freeze(fence: Fence, others: Iterable[Fence], thawed_at: datetime | None) -> Iterator[Said]:
    yield Said(0, fence.at, "freeze", fence.scope, "", "", f"frozen by {fence.by}: {fence.reason}", {})
    for vote in fence.thaw_votes:
        why = f": {vote.why}" if vote.why else ""
        yield Said(0, vote.at, "thaw", fence.scope, "", "", f"to be thawed, says {vote.by}{why}", {})
    if thawed_at is not None:
        counted = weighed(fence, others, thawed_at).thaw_votes
        words = f"thawed by {' and '.join(vote.said for vote in counted)}"
        yield Said(0, thawed_at, "thaw", fence.scope, "", "", words, {})


def _fits(search: Search, one: Said) -> bool:
    return (
        search.since <= one.at < search.until
        and search.text.lower() in one.text.lower()
        and (not search.node or search.node == one.node)
        and search.person.lower() in one.text.lower()
    )
