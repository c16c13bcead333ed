"""Silences: made by a person for a while, ended by anybody who may operate."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from medevac.model import Model
from medevac.policy.silences import LONGEST, Holds, Matcher, Silence
from worker.engine import NotRunning, Unavailable
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer, Why
from worker.gateway.naming import doubt
from worker.gateway.people import Right
from worker.gateway.services import Served, Services, SignedIn

router = APIRouter(prefix="/v1/silences", tags=["silences"])

MOST_WOKEN = 1_000


class Wish(Model):
    matcher: Matcher
    reason: Why
    for_s: float = Field(ge=1, le=LONGEST.total_seconds())
    holds: tuple[Holds, ...] = Field(min_length=1, max_length=len(Holds))


class Made(Model):
    silence: Silence
    answer: str


@router.get("", summary="Silences that stand, oldest first; or the latest, also those that are over")
async def silences(
    served: Served,
    person: SignedIn,
    standing: bool = True,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[Silence]:
    if standing:
        return await served.threads.run(served.stores.silences.standing, served.now())
    return await served.threads.run(served.stores.silences.latest, limit)


@router.post("", summary="Hold what would be said or done about some faults, for at most 7 days")
async def add(wish: Wish, served: Served, person: SignedIn) -> Made:
    person.require(Right.OPERATE)
    now = served.now()
    silence = Silence(
        id=f"s-{secrets.token_hex(4)}",
        by=person.id,
        via=person.via,
        reason=wish.reason,
        at=now,
        until=now + timedelta(seconds=wish.for_s),
        matcher=wish.matcher,
        holds=tuple(dict.fromkeys(wish.holds)),
    )
    if not await served.threads.run(served.stores.silences.add, silence):
        raise Problem(409, "a silence of that id is there already; ask again")
    held = " and ".join(silence.holds)
    answer = f"{silence.id}: {held} held for {wish.matcher} until {silence.until:%Y-%m-%d %H:%M} UTC"
    answer += "; what runs already goes on, `medevac hold` and `freeze` stop it"
    m = wish.matcher
    doubtful = await served.threads.run(partial(doubt, served, cluster=m.cluster, pool=m.pool, node=m.node))
    return Made(silence=silence, answer=answer + doubtful)


@router.post("/{id}/end", summary="End a silence now")
async def end(id: str, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    silence = await served.threads.run(served.stores.silences.end, id, person.id, served.now(), person.via)
    if silence is None:
        raise Problem(404, f"there is no silence {id}; `medevac silence list` shows those that stand")
    await _wake(served, silence)
    who = f"ended by {silence.ended_by}" if silence.ended_by else "over by itself"
    return Answer(answer=f"{silence.id} is {who}; what it held is judged again")


async def _wake(served: Services, silence: Silence) -> None:
    """Those that it held look again by themselves within minutes; sooner where Temporal answers."""
    m = silence.matcher
    opened = await served.threads.run(
        served.stores.ledger.incidents, open_only=True, cluster=m.cluster, node=m.node, limit=MOST_WOKEN
    )
    for view in opened:
        if m.pool in (None, view.pool) and (m.fault is None or m.fault in (view.fault, *view.faults)):
            try:
                with suppress(NotRunning):
                    await served.engine.wake(view.workflow_id)
            except Unavailable:
                return
