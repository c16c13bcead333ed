"""Owners of jobs are told before their pods are evicted, and again how that ended: the node is empty and how their job
comes back, or the job stays after all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ports import Board, Unreadable
from activities.storage.ledger import LedgerLine
from activities.storage.posts import Post
from medevac.incident import End, IncidentView, State
from medevac.policy.plan import Rung
from medevac.policy.stakes import KEEPS_WORK
from medevac.telling.card import At, Card, Field
from medevac.telling.facts import Job
from worker.facts import FactsTaker
from worker.stores import Stores

BEFORE = frozenset({State.PLANNED, State.MARKED, State.WAITING_LEASE, State.WAITING_APPROVAL, State.EVACUATING})
"""From the plan on: that a drain is coming is known before it has a lease."""
STAYS = frozenset({State.OBSERVED, State.HANDED_OVER, State.ENDED})
"""Nothing more is going to leave the node without a new plan."""
GONE = frozenset({End.REPLACED, End.DISPOSED})
TOLD = "owner/"
AFTER = "/after"


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

    def wanted(self, changed: Iterable[IncidentView], quiet: Container[str] = ()) -> list[Wanted]:
        """Those of `changed`, and what was wanted before and isn't said yet.

        Of an incident that is `quiet` no owner is told that a drain is coming; who was told hears how it ended.
        Raises `Unreadable`.
        """
        for view in changed if self._board.tells_owners else ():
            news: list[Wanted] = []
            if view.state not in BEFORE:
                news = self._after(view)
            elif view.rung is not None and Rung(view.rung) not in KEEPS_WORK and view.id not in quiet:
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
        said = self._said(view) if by_owner else {}
        keys = {owner: _round(f"{_of(view)}{owner}", said) for owner in by_owner}
        unsaid = {owner: key for owner, key in keys.items() if key not in said}
        if not unsaid:
            return []
        plan = _decision(view, self._stores.ledger.lines(view.id))
        if view.rung == Rung.WAIT and not plan.get("drain"):
            # It waits for another's repair, or for a check: the work stays.
            return []
        asks = view.state is State.WAITING_APPROVAL or bool(plan.get("approval"))
        return [
            Wanted(key, self._board.channel_of(owner) or "", _told(_leaving(view, owner, by_owner[owner], asks=asks)))
            for owner, key in unsaid.items()
        ]

    def _after(self, view: IncidentView) -> list[Wanted]:
        """To those who were told before, once for each drain that they were told of."""
        late = {key: one.channel for key, one in self._due.items() if key.startswith(_of(view)) and _begins(key)}
        said = self._said(view)
        told = {key: post.channel for key, post in said.items() if _begins(key) and f"{key}{AFTER}" not in said}
        if not told and not late:
            return []
        # That a drain is coming is no news any more where nobody could be told in time; how it ended is.
        for key in late:
            del self._due[key]
        since = max((post.at for key, post in said.items() if not _begins(key)), default=None)
        drains = [
            line
            for line in self._stores.ledger.lines(view.id)
            if line.kind == "step" and line.data.get("step") == "evacuate" and (since is None or line.at > since)
        ]
        if drains:
            card, told = _left(view, drains[-1].data, drains[-1].at), told | late
        elif view.state in STAYS:
            card = _gone(view) if view.end in GONE else _stays(view)
        else:
            return []
        return [Wanted(f"{key}{AFTER}", channel, _told(card)) for key, channel in told.items()]

    def _said(self, view: IncidentView) -> dict[str, Post]:
        found = self._stores.posts.begun_with(self._board.system, _of(view))
        return {key: post for key, post in found.items() if post.reference}


def _of(view: IncidentView) -> str:
    return f"{TOLD}{view.id}/"


def _begins(key: str) -> bool:
    return not key.endswith(AFTER)


def _round(key: str, said: Container[str]) -> str:
    """The key of the next drain to be told of: one whose end was told is over, and a later plan's is another."""
    n = 1
    made = key
    while f"{made}{AFTER}" in said:
        n += 1
        made = f"{key}#{n}"
    return made


def _decision(view: IncidentView, lines: Iterable[LedgerLine]) -> dict[str, Any]:
    """What the ledger keeps of its plan; empty where that isn't written yet."""
    made = [line.data for line in lines if line.kind == "decision" and line.data.get("hash") == view.plan_hash]
    return made[-1] if made else {}


def _told(card: Card) -> Callable[[], Card]:
    return lambda: card


def _leaving(view: IncidentView, owner: str, jobs: list[Job], *, asks: bool) -> Card:
    names = "\n".join(f"{job.name}, {job.gpus} GPUs" for job in jobs)
    when = "as soon as people have said yes; you are told if they don't" if asks else "when its turn comes"
    comes = "is to be emptied" if asks else "will be emptied"
    return Card(
        title=f"{view.node} {comes}: {len(jobs)} of your jobs",
        summary=f"{view.cluster}/{view.node} {comes} for {view.fault} ({view.rung}): {owner}'s jobs leave it",
        fields=(
            Field("Jobs", (names,)),
            Field("Why", (f"{view.fault}: {view.rung}. {view.summary}",)),
            Field("When", (when,)),
            Field("Since", (At(view.opened_at),)),
            Field("What you can do", ("save a checkpoint now; a job that says it is ready leaves at once",)),
        ),
        footnote=(f"medevac incidents {view.id}",),
    )


def _stays(view: IncidentView) -> Card:
    return Card(
        title=f"{view.node}: your jobs stay on it after all",
        summary=f"{view.cluster}/{view.node} is not emptied: {view.summary or view.end or view.state}"[:300],
        fields=(
            Field("Why", (view.summary or f"the incident is {view.end or view.state}",)),
            Field("Your jobs", ("nothing is evicted; before a later plan empties the node, you are told anew",)),
        ),
        footnote=(f"medevac incidents {view.id}",),
    )


def _gone(view: IncidentView) -> Card:
    return Card(
        title=f"{view.node}: the machine is gone, and your jobs with it",
        summary=f"{view.cluster}/{view.node}: {view.end} before it was emptied",
        fields=(
            Field("How it ended", (f"{view.end} at ", At(view.updated_at))),
            Field("Your jobs", ("nothing was evicted; their controllers start them elsewhere",)),
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
