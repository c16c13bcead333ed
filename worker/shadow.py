"""The shadow report: what people did while medevac only observed, beside what it would have done, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from medevac.incident import Line
from medevac.model import Model
from worker.handover import age
from worker.meanwhile import MEANWHILE
from worker.stores import Stores

MOST = 5_000
FIRST_LOOK = "as the incident left it"
"""How the first look of a watched incident begins: what was found, not what somebody did."""


class Said(Model):
    at: datetime
    text: str


class Shadow(Model):
    """One observed incident."""

    incident: str
    cluster: str
    node: str
    fault: str
    opened_at: datetime
    end: str
    """Empty while it is open."""
    would: tuple[Said, ...]
    """Each time that it would have done something else."""
    did: tuple[Said, ...]
    first_hand_s: float | None
    """From medevac's first answer to the first thing that somebody did."""


class ShadowReport(Model):
    at: datetime
    since: datetime
    nodes: tuple[Shadow, ...]
    untouched: int
    """Of these, those that nobody did anything about."""


def take(stores: Stores, now: datetime, since: datetime) -> ShadowReport:
    """Blocking. Of incidents that were open at any time since then. Raises `Unreadable`."""
    found = []
    for view in stores.ledger.incidents(open_only=False, limit=MOST):
        if (view.end is not None and view.updated_at < since) or view.opened_at > now:
            continue
        lines = stores.ledger.lines(view.id)
        would = tuple(_would(lines))
        if not would:
            continue
        noted = stores.ledger.notes(view.cluster, view.node, view.opened_at)
        until = view.updated_at if view.end is not None else now
        did = {line.text: line.at for line in lines if line.kind == MEANWHILE and not line.text.startswith(FIRST_LOOK)}
        did |= {note.text: note.at for note in noted if note.at <= until and note.text not in did}
        hands = tuple(Said(at=at, text=text) for text, at in sorted(did.items(), key=lambda one: one[1]))
        found.append(
            Shadow(
                incident=view.id,
                cluster=view.cluster,
                node=view.node,
                fault=view.fault or (view.faults[0] if view.faults else "unknown"),
                opened_at=view.opened_at,
                end=str(view.end or ""),
                would=would,
                did=hands,
                first_hand_s=(hands[0].at - would[0].at).total_seconds() if hands else None,
            )
        )
    found.sort(key=lambda one: (one.cluster, one.node, one.opened_at))
    return ShadowReport(at=now, since=since, nodes=tuple(found), untouched=sum(not one.did for one in found))


def _would(lines: Iterable[Line]) -> Iterator[Said]:
    last = ""
    for line in lines:
        if line.kind == "decision" and (text := str(line.data.get("would") or "")):
            if text != last:
                yield Said(at=line.at, text=text)
            last = text


def words(found: ShadowReport) -> list[str]:
    return list(_lines(found))


def _lines(found: ShadowReport) -> Iterator[str]:
    yield (
        f"since {found.since:%Y-%m-%d %H:%M} UTC: {len(found.nodes)} observed incidents; "
        f"nobody did anything about {found.untouched} of them"
    )
    for one in found.nodes:
        yield f"{one.cluster}/{one.node}  {one.fault}  {one.end or 'open'}  {one.opened_at:%m-%d %H:%M}  {one.incident}"
        for said in one.would:
            yield f"  medevac would, {said.at:%m-%d %H:%M}: {said.text}"
        for said in one.did:
            yield f"  people did, {said.at:%m-%d %H:%M} ({age(said.at - one.would[0].at)} later): {said.text}"
        if not one.did:
            yield "  people did: nothing that shows on the node"
