"""What became of a campaign's nodes, and of those beside them, as the ledger and the clusters tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.census import CensusTaker
from activities.storage.campaigns import CampaignRow
from activities.storage.database import Database
from activities.storage.ledger import incident_view
from activities.storage.tables import events, incidents
from medevac.campaigns.progress import Beside, NodeProgress, NodeState
from medevac.campaigns.spec import CHECKED, Act
from medevac.faults.classes import FaultClass
from medevac.fleet.census import node_key
from medevac.incident import End, IncidentView, State, Stop
from medevac.model import Model

REPAIRABLE = tuple(one.value for one in FaultClass if one.repairable)
SETTLES = timedelta(seconds=60)
"""What a job says of a node this soon after the action is an echo of the eviction."""
BEGINS = timedelta(minutes=15)
"""An order that no incident has taken up by then has failed."""
NOT_BEGUN = (State.HEARD, State.PLANNED, State.MARKED, State.WAITING_LEASE, State.WAITING_APPROVAL, State.EVACUATING)
"""Until then nothing has been done to the machine, and an order can be taken back."""


class Change(Model):
    state: NodeState
    why: str = ""
    incident: str | None = None
    withdraw: bool = False
    """The order is still with the node's incident and must be taken back."""
    by: str | None = None
    """The person who left it out."""
    acted: bool = False
    """Left out after the act had been sent."""
    fault: str | None = None
    """Seen already when it was left out or failed, after the act."""


class Seen(Model):
    """Of nodes that are in hand or were acted on, and of those beside."""

    changes: dict[str, Change]
    faults: dict[str, str]
    jobs: dict[str, str]
    beside: Beside
    at_work: dict[str, tuple[str, str]] = {}
    """In hand: the node's incident, and what it does or waits for."""
    unheard: tuple[str, ...] = ()
    """In hand, and no incident shows it: told once more."""
    untouched: tuple[str, ...] = ()
    """In hand, and nothing has been done to the machine yet: the order can be taken back."""


class CampaignWorld:
    def __init__(self, database: Database, census: CensusTaker) -> None:
        self._db = database
        self._census = census

    def see(self, row: CampaignRow, nodes: Sequence[NodeProgress], code: str, now: datetime) -> Seen:
        """Raises `Unreadable`."""
        since = row.began_at or row.at
        with self._db.reading() as connection:
            opened = _opened_since(connection, {one.cluster for one in nodes}, since)
            troubled = _jobs_since(connection, {one.cluster for one in nodes}, since)
        mine: dict[str, IncidentView] = {}
        others: dict[str, list[IncidentView]] = {}
        # An order is no fault of its incident any more once it is carried out; what came after it is.
        known = {one.incident for one in nodes if one.incident}
        for view in opened:
            for name in {view.node, view.workflow_id.rpartition("/")[2]}:
                key = node_key(view.cluster, name)
                if view.id in known or code in view.faults or view.fault == code:
                    mine.setdefault(key, view)
                else:
                    others.setdefault(key, []).append(view)
        changes: dict[str, Change] = {}
        faults: dict[str, str] = {}
        jobs: dict[str, str] = {}
        at_work: dict[str, tuple[str, str]] = {}
        unheard: list[str] = []
        untouched: list[str] = []
        beside_faults = beside_jobs = 0
        beside_s = 0.0
        for one in nodes:
            own, other = mine.get(one.key), others.get(one.key, [])
            if one.state is NodeState.SENT and row.plan.spec.act is Act.CHECK:
                change = _of_checked(one, other)
                if change is not None:
                    changes[one.key] = change
            elif one.state is NodeState.SENT:
                change = _of_sent(one, own, other, code, row.plan.spec.act, now)
                if change is not None:
                    changes[one.key] = change
                elif own is None:
                    unheard.append(one.key)
                else:
                    waits = f", waits for {own.waiting_for}" if own.waiting_for else ""
                    at_work[one.key] = (own.id, f"{own.state}{waits}"[:500])
                if change is None and (own is None or own.state in NOT_BEGUN):
                    untouched.append(one.key)
            if one.state.over and one.over_at is not None:
                until = one.over_at + timedelta(seconds=row.plan.spec.care.window)
                fault = _fault_after(one, own, other, code, until)
                if one.fault is None and fault:
                    faults[one.key] = fault
                job = next((j for at, j in troubled.get(one.key, []) if one.over_at + SETTLES < at <= until), None)
                if one.job is None and job:
                    jobs[one.key] = job
                continue
            end = one.sent_at or now
            beside_s += max(0.0, (end - since).total_seconds())
            beside_faults += sum(view.opened_at <= end for view in other)
            beside_jobs += sum(at <= end for at, _ in troubled.get(one.key, []))
        ours = {one.key for one in nodes if _ours(one, mine.get(one.key), row.plan.spec.act, now)}
        beside = Beside(faults=beside_faults, jobs=beside_jobs, node_s=beside_s, out=self._out(row, ours))
        return Seen(
            changes=changes,
            faults=faults,
            jobs=jobs,
            beside=beside,
            at_work=at_work,
            unheard=tuple(unheard),
            untouched=tuple(untouched),
        )

    def _out(self, row: CampaignRow, ours: set[str]) -> dict[str, float]:
        """Percent of each pool: out of service, by others' doing or for a fault, but not by this campaign."""
        shares: dict[str, float] = {}
        for cluster in {member.cluster for member in row.plan.members}:
            census = self._census.take(cluster, wait_s=2.0)
            for pool in {f"pool:{m.pool}" for m in row.plan.members if m.cluster == cluster}:
                out = (census.out.get(pool, frozenset()) | census.marked.get(pool, frozenset())) - ours
                # One node alone is never a share: in a pool of eight it would be more than the usual tenth.
                if len(out) >= 2 and census.size(pool):
                    shares[pool.removeprefix("pool:")] = 100.0 * len(out) / census.size(pool)
        return shares


def _ours(one: NodeProgress, mine: IncidentView | None, act: Act, now: datetime) -> bool:
    """True where the campaign itself has the node out of service, or had it until just now."""
    match one.state:
        case NodeState.SENT:
            return True
        case NodeState.DONE if act is Act.DRAIN:
            return True
        # A failed act leaves it with a person, in the incident of the order; failures have their own measure.
        case NodeState.FAILED if mine is not None and mine.end is None:
            return True
    # The census is a few seconds old: what came back just now may still look as it did in our hands.
    return one.over_at is not None and now - one.over_at < SETTLES


def _of_checked(one: NodeProgress, others: Iterable[IncidentView]) -> Change | None:
    """A node that is ill is repaired first, and its checks are its incident's. Its own failed check is no such thing:
    that incident may stand there before the result does.
    """
    for view in others:
        own = one.sent_at is not None and view.opened_at >= one.sent_at and (view.fault or "").startswith(CHECKED)
        if view.end is None and not own:
            return Change(state=NodeState.SKIPPED, why=f"incident {view.id} has it")
    return None


def _of_sent(
    one: NodeProgress,
    mine: IncidentView | None,
    others: Iterable[IncidentView],
    code: str,
    act: Act,
    now: datetime,
) -> Change | None:
    """None while its incident is at work, or hasn't begun yet."""
    if mine is None:
        other = next((view for view in others if view.end is None), None)
        if other is not None:
            return Change(state=NodeState.SKIPPED, why=f"incident {other.id} has it", withdraw=True)
        if one.sent_at is not None and now - one.sent_at > BEGINS:
            return Change(state=NodeState.FAILED, why="its incident never began", withdraw=True)
        return None
    if mine.stopped is not None:
        return _left_out(mine, mine.stopped, code)
    done = {"incident": mine.id}
    if mine.end in (End.RETURNED, End.REPLACED) or mine.state is State.PROBATION:
        return Change(state=NodeState.DONE, why=str(mine.end or "returned, in probation"), **done)
    if mine.end is not None:
        return Change(state=NodeState.SKIPPED, why=f"{mine.end}: {mine.summary}"[:500], **done)
    if act is Act.DRAIN and mine.state is State.WATCHING:
        return Change(state=NodeState.DONE, why="drained, and held until the campaign ends", **done)
    if mine.state is State.OBSERVED:
        return Change(state=NodeState.SKIPPED, why=mine.summary[:500], withdraw=True, **done)
    if mine.state is State.HANDED_OVER and not mine.touched:
        return Change(state=NodeState.SKIPPED, why=mine.summary[:500], withdraw=True, **done)
    if mine.state is State.HANDED_OVER:
        return Change(state=NodeState.FAILED, why=mine.summary[:500], withdraw=True, **done)
    if mine.fault is not None and mine.fault != code and mine.state in NOT_BEGUN:
        if mine.order_sent:
            why = f"{mine.fault} came after the act and before its check had passed; incident {mine.id} repairs it"
            return Change(state=NodeState.FAILED, why=why, withdraw=True, fault=mine.fault, **done)
        why = f"it has {mine.fault}, which incident {mine.id} repairs"
        return Change(state=NodeState.SKIPPED, why=why, withdraw=True, **done)
    return None


def _left_out(mine: IncidentView, stop: Stop, code: str) -> Change:
    """A person's word about this node: it says nothing of the act, and what the node shows after the act still does."""
    when = " after the act" if stop.acted else ""
    return Change(
        state=NodeState.SKIPPED,
        why=f"left out by {stop.by}{when}{f': {stop.reason}' if stop.reason else ''}"[:500],
        incident=mine.id,
        withdraw=mine.end is None,
        by=stop.by,
        acted=stop.acted,
        fault=_shown(mine, code) if stop.acted else None,
    )


def _shown(mine: IncidentView, code: str) -> str | None:
    """A fault of the node's own in the incident that carries the order."""
    return mine.fault if mine.fault != code else None


def _fault_after(
    one: NodeProgress, mine: IncidentView | None, others: Iterable[IncidentView], code: str, until: datetime
) -> str | None:
    after = one.over_at
    if after is None:
        return None
    if (
        mine is not None
        and mine.end is None
        and mine.state not in (State.PROBATION, State.WATCHING)
        and after < mine.updated_at <= until
        # That a person has it in hand is no fault of the node's, and that its act failed is counted as such.
        and ((one.state is NodeState.DONE and mine.stopped is None) or _shown(mine, code))
    ):
        return mine.fault or "unknown"
    return next((view.fault or "unknown" for view in others if after < view.opened_at <= until), None)


def _opened_since(connection: Connection, clusters: set[str], since: datetime) -> list[IncidentView]:
    """Incidents of nodes' own faults, newest first; those that are open from before are among them."""
    query = (
        sa.select(incidents)
        .where(incidents.c.cluster.in_(clusters))
        .where(sa.or_(incidents.c.opened_at >= since, incidents.c.open))
        .where(sa.or_(incidents.c.fault_class.in_(REPAIRABLE), incidents.c.fault_class.is_(None)))
        .order_by(incidents.c.opened_at.desc())
        .limit(50_000)
    )
    return [incident_view(row) for row in connection.execute(query)]


def _jobs_since(connection: Connection, clusters: set[str], since: datetime) -> dict[str, list[tuple[datetime, str]]]:
    """What jobs said went wrong with them, by node."""
    query = (
        sa.select(events.c.cluster, events.c.node, events.c.at, events.c.fault)
        .where(events.c.at >= since, events.c.cluster.in_(clusters), events.c.node.is_not(None))
        .where(events.c.fault_class == FaultClass.APPLICATION.value, events.c.kind == "fault")
        .order_by(events.c.at)
        .limit(50_000)
    )
    found: dict[str, list[tuple[datetime, str]]] = {}
    for row in connection.execute(query):
        found.setdefault(node_key(row.cluster, row.node), []).append((row.at, row.fault or "job"))
    return found
