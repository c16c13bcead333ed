"""Owners of jobs are told before their pods are evicted, and again when the node is empty: how their job comes back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ports import Board, Unreadable
from medevac.incident import IncidentView, State
from medevac.policy.plan import Rung
from medevac.telling.card import At, Card, Field
from medevac.telling.facts import Job
from worker.facts import FactsTaker
from worker.stores import Stores

BEFORE = frozenset({State.PLANNED, State.MARKED, State.WAITING_LEASE, State.WAITING_APPROVAL, State.EVACUATING})
"""From the plan on: that a drain is coming is known before it has a lease."""
KEEPS_WORK = frozenset({Rung.WAIT, Rung.RESTART_AGENT, Rung.RMA, Rung.ESCALATE})
TOLD = "owner/"


@dataclass(frozen=True, slots=True)
class Wanted:
    key: str
    channel: str
    compose: Callable[[], Card]


class Owners:
    def __init__(self, stores: Stores, board: Board, facts: FactsTaker) -> None:
        self._stores = stores
        self._board = board
        self._facts = facts
        self._due: dict[str, Wanted] = {}

    def of(self, view: IncidentView) -> tuple[str, ...]:
        """Owners of the jobs on its node; none where they can't be read: then the usual channel has it."""
        if not self._board.tells_owners:
            return ()
        try:
            return tuple(sorted({job.owner for job in self._facts.teams(view.cluster, view.node) if job.owner}))
        except Unreadable:
            return ()

    def wanted(self, changed: Iterable[IncidentView]) -> list[Wanted]:
        """Those of `changed`, and what was wanted before and isn't said yet."""
        for view in changed if self._board.tells_owners else ():
            if view.rung is None:
                continue
            news: list[Wanted] = []
            if view.state not in BEFORE:
                news = self._after(view)
            elif Rung(view.rung) not in KEEPS_WORK:
                news = self._before(view)
            self._due |= {one.key: one for one in news}
        return list(self._due.values())

    def posted(self, key: str) -> None:
        self._due.pop(key, None)

    def _before(self, view: IncidentView) -> list[Wanted]:
        try:
            jobs = self._facts.teams(view.cluster, view.node)
        except Unreadable:
            return []
        by_owner: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            if job.owner and self._board.channel_of(job.owner):
                by_owner[job.owner].append(job)
        keys = {f"{TOLD}{view.id}/{owner}": owner for owner in by_owner}
        known = self._stores.posts.of(self._board.system, keys)
        return [
            Wanted(key, self._board.channel_of(owner) or "", _told(_leaving(view, owner, by_owner[owner])))
            for key, owner in keys.items()
            if key not in known or not known[key].reference
        ]

    def _after(self, view: IncidentView) -> list[Wanted]:
        """To those who were told before, once: the drain's own line says how it ended."""
        told = self._stores.posts.begun_with(self._board.system, f"{TOLD}{view.id}/")
        said = {key.removesuffix("/after") for key, post in told.items() if key.endswith("/after") and post.reference}
        left = [post for key, post in told.items() if not key.endswith("/after") and key not in said]
        if not left:
            return []
        ended = [
            line
            for line in self._stores.ledger.lines(view.id)
            if line.kind == "step" and line.data.get("step") == "evacuate"
        ]
        if not ended:
            return []
        return [
            Wanted(f"{post.key}/after", post.channel, _told(_left(view, ended[-1].data, ended[-1].at))) for post in left
        ]


def _told(card: Card) -> Callable[[], Card]:
    return lambda: card


def _leaving(view: IncidentView, owner: str, jobs: list[Job]) -> Card:
    names = "\n".join(f"{job.name}, {job.gpus} GPUs" for job in jobs)
    return Card(
        title=f"{view.node} will be emptied: {len(jobs)} of your jobs",
        summary=f"{view.cluster}/{view.node} will be emptied for {view.fault} ({view.rung}): {owner}'s jobs leave it",
        fields=(
            Field("Jobs", (names,)),
            Field("Why", (f"{view.fault}: {view.rung}. {view.summary}",)),
            Field("Since", (At(view.opened_at),)),
            Field("What you can do", ("save a checkpoint now; a job that says it is ready leaves at once",)),
        ),
        footnote=(f"medevac incidents {view.id}",),
    )


def _left(view: IncidentView, data: dict[str, Any], at: datetime) -> Card:
    result = data.get("result")
    result = result if isinstance(result, dict) else {}
    outcome, reason = str(result.get("outcome", "?")), str(result.get("reason", ""))
    return Card(
        title=f"{view.node}: your jobs have left it" if outcome == "done" else f"{view.node}: the drain is {outcome}",
        summary=f"{view.cluster}/{view.node}: drain {outcome}; {reason}"[:300],
        fields=(
            Field("How it ended", (f"{outcome} at ", At(at))),
            Field("Your jobs", (reason or "evicted; their controllers start them elsewhere",)),
        ),
        footnote=(f"medevac incidents {view.id}",),
    )
