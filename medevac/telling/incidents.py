"""Incidents as people see them in passing: one card for each, or one for a storm of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from medevac.counted import some
from medevac.faults.catalogue import lookup
from medevac.incident import End, IncidentView, State
from medevac.telling.card import At, Card, Field, Link, Words
from medevac.telling.facts import Links

NAMED = 20
NEEDS_A_PERSON = frozenset({State.HANDED_OVER, State.WAITING_APPROVAL})


def incident_card(view: IncidentView, links: Links) -> Card:
    state = view.end or view.state
    fields = [
        Field("State", (_state(view),)),
        Field("Fault", (", ".join(f"{code} ({lookup(code).name})" for code in view.faults[:3]) or "?",)),
        Field("Where", (f"cluster {view.cluster}, pool {view.pool or '?'}, machine {view.machine_id or '?'}",)),
        Field("Open since", (At(view.opened_at),)),
    ]
    if view.summary:
        fields.insert(1, Field("Why", (view.summary,)))
    if view.hold:
        fields.insert(1, Field("Held", (f"by {view.hold.owner} until ", At(view.hold.until), f": {view.hold.reason}")))
    return Card(
        title=f"{view.node}: {view.fault or 'no open fault'} – {state}",
        summary=f"{view.cluster}/{view.node}: {view.fault or 'no open fault'}, {state}",
        fields=tuple(fields),
        footnote=_more(view.id, links),
    )


def storm_card(fault: str, views: Sequence[IncidentView], links: Links) -> Card:
    """`views` in the order in which they opened."""
    states = Counter(str(view.end or view.state) for view in views)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    still = [view for view in views if view.end is None]
    first = [view for view in still if view.state in NEEDS_A_PERSON] or still or list(views)
    named = some([view.node for view in first], NAMED)
    pools = Counter(f"{view.cluster}/{view.pool or '?'}" for view in views)
    return Card(
        title=f"{len(views)} nodes: {fault} – {len(still)} open",
        summary=f"{len(views)} nodes with {fault}: {counts}",
        fields=(
            Field("States", (counts,)),
            Field("Fault", (f"{fault} ({lookup(fault).name})",)),
            Field("Nodes", (named,)),
            Field("Pools", (", ".join(f"{pool} × {count}" for pool, count in pools.most_common(5)),)),
            Field("Since", (At(min(view.opened_at for view in views)),)),
        ),
        footnote=("told together because there are many; `medevac incidents` lists them",),
    )


def _state(view: IncidentView) -> str:
    if view.end is End.WITHDRAWN:
        return "withdrawn: nothing is wrong any more"
    if view.end is not None:
        return str(view.end)
    rung = f", {view.rung}" if view.rung else ""
    waits = f", waits for {view.waiting_for}" if view.waiting_for else ""
    owner = f", given to {view.owner}" if view.owner else ""
    return f"{view.state}{rung}{waits}{owner}"


def _more(incident: str, links: Links) -> Words:
    if not links.incident:
        return (f"medevac incidents {incident}",)
    return (Link(incident, links.of_incident(incident)),)
