"""The hand-over: all that the next shift must know, from the ledger. Nothing is left out because it is silenced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from activities.failures import redact
from activities.quietly import Quietly
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalView
from medevac.cases.case import Case
from medevac.fleet.fence import Fence
from medevac.fleet.node import Node
from medevac.incident import Hold, IncidentView, State
from medevac.model import Model
from medevac.policy.silences import Silence, Subject
from worker.stores import Stores

MOST = 10_000
PART = 2_900
"""Characters of one message: a chat cuts at 3,000."""
LINE = 500
MESSAGES = 8
"""More of them would only push the first ones out of sight."""
HANDS = frozenset({State.HANDED_OVER, State.HELD, State.WAITING_APPROVAL})


class OpenIncident(Model):
    id: str
    cluster: str
    node: str
    fault: str
    latched: bool
    state: State
    waiting_for: str
    owner: str
    hold: Hold | None
    opened_at: datetime
    summary: str
    silences: tuple[str, ...]
    """Ids of those that fit it. It is listed all the same."""


class NodeOut(Model):
    cluster: str
    node: str
    why: str
    """Our incident, or who else has cordoned it."""
    since: datetime | None
    """When the incident began that it is marked for; None where nobody knows."""


class OpenCampaign(Model):
    id: str
    state: str
    why: str
    requested_by: str


class Awaited(Model):
    """A case at a provider that somebody owes the next word."""

    id: str
    provider: str
    state: str
    why: str
    nodes: tuple[str, ...]
    ticket: str
    since: datetime
    overdue_since: datetime | None
    """When the other side should have answered at the latest, where it hasn't."""


class BreakerOpen(Model):
    scope: str
    reason: str
    since: datetime


class Handover(Model):
    at: datetime
    since: datetime
    opened: int
    """Incidents that began since then; `ended`: how those that ended since then did."""
    ended: dict[str, int]
    incidents: tuple[OpenIncident, ...]
    """Those that a person is needed for first, then the oldest."""
    nodes_out: tuple[NodeOut, ...]
    """Longest out first; before them those of which nobody knows since when."""
    unread: tuple[str, ...]
    """Clusters whose nodes can't be read now."""
    approvals: tuple[ApprovalView, ...]
    silences: tuple[Silence, ...]
    frozen: tuple[Fence, ...]
    breakers: tuple[BreakerOpen, ...]
    campaigns: tuple[OpenCampaign, ...]
    cases: tuple[Awaited, ...]


def take(stores: Stores, nodes: Iterable[Node], now: datetime, since: datetime, unread: Iterable[str] = ()) -> Handover:
    """`nodes` as their clusters have them. Blocking. Raises `Unreadable`."""
    ledger = stores.ledger
    views = ledger.incidents(open_only=True, limit=MOST)
    recent = ledger.incidents(open_only=False, limit=MOST)
    silences = stores.silences.standing(now)
    quietly = Quietly(ledger, stores.policies, stores.silences)
    order = sorted(views, key=lambda view: (view.state not in HANDS, view.opened_at))
    return Handover(
        at=now,
        since=since,
        opened=sum(view.opened_at >= since for view in recent),
        ended=dict(Counter(str(view.end) for view in recent if view.end and view.updated_at >= since)),
        incidents=tuple(_incident(view, quietly.subjects(view, silences, now), silences) for view in order),
        nodes_out=tuple(_out(nodes, {view.id: view for view in views})),
        unread=tuple(unread),
        approvals=tuple(ledger.approvals(pending_only=True, limit=MOST)),
        silences=tuple(silences),
        frozen=tuple(stores.fences.active()),
        breakers=tuple(
            BreakerOpen(scope=f"{one.cluster}/{one.cause}", reason=one.reason, since=one.opened_at)
            for one in stores.guard.open_breakers()
        ),
        campaigns=tuple(
            OpenCampaign(id=one.id, state=str(one.state), why=one.why, requested_by=one.requested_by)
            for one in stores.campaigns.all(open_only=True)
        ),
        cases=tuple(
            sorted(
                (_case(case, now) for case in stores.cases.all(open_only=True, limit=1_000)),
                key=lambda case: case.overdue_since or now,
            )
        ),
    )


def _out(nodes: Iterable[Node], by_id: Mapping[str, IncidentView]) -> list[NodeOut]:
    found = []
    for node in nodes:
        if node.marked_by is None and node.schedulable:
            continue
        view = by_id.get(node.marked_by or "")
        why = node.marked_by or f"cordoned by {node.foreign_cordon or 'somebody'}"
        found.append(NodeOut(cluster=node.cluster, node=node.name, why=why, since=view.opened_at if view else None))
    return sorted(found, key=lambda out: (out.since.isoformat() if out.since else "", out.cluster, out.node))


def _incident(view: IncidentView, subjects: list[Subject], silences: list[Silence]) -> OpenIncident:
    latched = any(one.fault_class.latched for one in subjects if one.fault_class)
    return OpenIncident(
        id=view.id,
        cluster=view.cluster,
        node=view.node,
        fault=view.fault or "unknown",
        latched=latched or bool(view.fault_class and view.fault_class.latched),
        state=view.state,
        waiting_for=view.waiting_for,
        owner=view.owner,
        hold=view.hold,
        opened_at=view.opened_at,
        summary=view.summary,
        silences=tuple(one.id for one in silences if any(one.matcher.fits(subject) for subject in subjects)),
    )


def _case(case: Case, now: datetime) -> Awaited:
    return Awaited(
        id=case.id,
        provider=case.provider,
        state=str(case.state),
        why=case.why,
        nodes=tuple(f"{subject.cluster}/{subject.node}" for subject in case.subjects),
        ticket=case.ticket.id if case.ticket else "",
        since=case.last_reply_at or case.opened_at,
        overdue_since=case.due_at if case.overdue(now) else None,
    )


# -- in words ------------------------------------------------------------------------------------------------------


def words(found: Handover) -> list[str]:
    """One line a thing, the most pressing first."""
    return list(_lines(found))


def messages(head: str, found: Handover) -> list[str]:
    """For a chat: as many messages as it takes, each within what any chat takes, the most pressing first.

    Beyond `MESSAGES` the last says how much more there is.
    """
    texts: list[list[str]] = [[head]]
    lines = [redact(line, LINE) for line in words(found)]
    for done, line in enumerate(lines):
        if _size([*texts[-1], line]) > PART:
            if len(texts) == MESSAGES:
                texts[-1].append(f"… and {len(lines) - done} lines more: `medevac handover` shows all")
                break
            texts.append([f"{head}, {len(texts) + 1}"])
        texts[-1].append(line)
    return ["\n".join(text) for text in texts]


def _size(lines: Iterable[str]) -> int:
    """Of characters as they are sent: some chats escape three of them."""
    return sum(len(line) + 1 + 4 * sum(line.count(one) for one in "&<>") for line in lines)


def _lines(found: Handover) -> Iterator[str]:
    ended = ", ".join(f"{count} {end}" for end, count in found.ended.items()) or "none"
    needy = [one for one in found.incidents if one.state in HANDS]
    yield f"since {found.since:%Y-%m-%d %H:%M} UTC: {found.opened} incidents began; ended: {ended}"
    yield (
        f"{len(found.incidents)} open incidents, {len(needy)} of them wait for a person; "
        f"{len(found.nodes_out)} nodes out of service"
    )
    yield f"{len(found.frozen)} freezes, {len(found.breakers)} open breakers, {len(found.silences)} silences"
    yield f"{len(found.approvals)} questions wait for a vote"
    yield f"{len(found.campaigns)} campaigns, {len(found.cases)} cases at providers"
    for fence in found.frozen:
        yield f"  frozen: {fence.scope} by {fence.by}: {fence.reason}"
    for breaker in found.breakers:
        yield f"  breaker {breaker.scope}: {breaker.reason}"
    for question in found.approvals:
        groups = " or ".join(tally.voters(question, found.at))
        yield f"  {question.title}: {groups}, until {question.expires_at:%m-%d %H:%M} UTC; {question.id}"
    yield from (_incident_line(one, found.at) for one in needy)
    for campaign in found.campaigns:
        because = f", {campaign.why}" if campaign.why else ""
        yield f"  campaign {campaign.id} of {campaign.requested_by}: {campaign.state}{because}"
    for silence in found.silences:
        yield f"  {silence.id} {' and '.join(silence.holds)}: {silence}"
    for case in found.cases:
        ticket = case.ticket or "no ticket yet"
        waited = age(found.at - case.since)
        late = f", overdue for {age(found.at - case.overdue_since)}" if case.overdue_since else ""
        yield f"  case {case.id} at {case.provider} ({ticket}): {case.state}, {waited} without a reply{late}"
    yield from (f"  {why}" for why in found.unread)
    if others := [one for one in found.incidents if one.state not in HANDS]:
        yield "incidents that wait for no person:"
        yield from (_incident_line(one, found.at) for one in others)
    if found.nodes_out:
        yield "nodes out of service:"
    for out in found.nodes_out:
        yield f"  {out.cluster}/{out.node}: {age(found.at - out.since) if out.since else 'unknown time'}; {out.why}"


def _incident_line(one: OpenIncident, now: datetime) -> str:
    hold = f"; held by {one.hold.owner} until {one.hold.until:%m-%d %H:%M}: {one.hold.reason}" if one.hold else ""
    silenced = f"; silenced ({', '.join(one.silences)})" if one.silences else ""
    waits = f", waits for {one.waiting_for}" if one.waiting_for else ""
    return (
        f"  {one.cluster}/{one.node}: {one.fault}, {one.state}{waits}; owner {one.owner or 'nobody'}; "
        f"{age(now - one.opened_at)}{hold}{silenced}; {one.id}"
    )


def age(span: timedelta) -> str:
    """`3 h`, `2 d 4 h`, `12 min`."""
    minutes = max(0, int(span.total_seconds() // 60))
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 48 else f"{hours // 24} d {hours % 24} h"
