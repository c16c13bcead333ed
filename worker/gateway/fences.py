"""Freezes: a fence is written first and read before every destructive call."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, Field

from medevac.fleet.fence import Fence, check_scope
from medevac.fleet.guard_votes import Weighed
from medevac.model import Model
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer, Why
from worker.gateway.naming import doubt
from worker.gateway.people import Right
from worker.gateway.services import Served, SignedIn

router = APIRouter(prefix="/v1/fences", tags=["fences"])


def _known(scope: str) -> str:
    check_scope(scope)
    return scope


Scope = Annotated[str, Field(max_length=300), AfterValidator(_known)]


class Freeze(Model):
    scope: Scope
    reason: Why
    marks: bool = False
    """True freezes protective marks as well."""


class Thaw(Model):
    scope: Scope
    reason: str = Field(default="", max_length=500)


@router.get("", summary="Freezes that stand")
async def fences(served: Served, person: SignedIn) -> list[Fence]:
    return await served.threads.run(served.stores.fences.weighed, served.now())


@router.post("/freeze", summary="Stop every destructive step in a scope, at once")
async def freeze(order: Freeze, served: Served, person: SignedIn) -> Answer:
    person.require(Right.STOP)
    await served.threads.run(
        served.stores.fences.freeze,
        order.scope,
        person.id,
        order.reason,
        marks=order.marks,
        at=served.now(),
        via=person.via,
    )
    doubtful = await served.threads.run(partial(doubt, served, **_parts(order.scope)))
    return Answer(answer=f"{order.scope} is frozen by {person.id}: {order.reason}{doubtful}")


def _parts(scope: str) -> dict[str, str]:
    """What a scope names."""
    match scope.split("/", 2):
        case [("cluster" | "provider") as kind, name]:
            return {kind: name}
        case [("pool" | "node") as kind, cluster, name]:
            return {"cluster": cluster, kind: name}
    return {}


@router.post("/thaw", summary="Lift a freeze")
async def thaw(order: Thaw, served: Served, person: SignedIn) -> Answer:
    person.require(Right.THAW)
    thaw = await served.threads.run(
        served.stores.fences.thaw, order.scope, person.id, at=served.now(), why=order.reason, via=person.via
    )
    if not thaw.found:
        raise Problem(404, f"{thaw}; `medevac fences` lists what is")
    return Answer(answer=str(thaw))


class Closing(Model):
    cluster: str = Field(max_length=100)
    cause: str = Field(max_length=100)


class OpenBreaker(Model):
    cluster: str
    cause: str
    opened_at: datetime
    reason: str
    votes: tuple[str, ...]
    """Who wants it closed, and has seen it as it is."""
    lapsed: tuple[str, ...] = ()
    """Whose word counts no more, and why."""


@router.get("/breakers", summary="Breakers that are open")
async def breakers(served: Served, person: SignedIn) -> list[OpenBreaker]:
    found = await served.threads.run(served.stores.guard.weighed_breakers, served.now())
    return [_shown(weighed) for weighed in found]


def _shown(weighed: Weighed) -> OpenBreaker:
    one = weighed.breaker
    return OpenBreaker(
        cluster=one.cluster,
        cause=one.cause,
        opened_at=one.opened_at,
        reason=one.reason,
        votes=weighed.voters,
        lapsed=weighed.lapsed,
    )


@router.post("/breakers/close", summary="One person's word that a breaker may close; it takes two")
async def close_breaker(order: Closing, served: Served, person: SignedIn) -> Answer:
    person.require(Right.THAW)
    answer = await served.threads.run(
        served.stores.guard.close_breaker, order.cluster, order.cause, person.id, served.now()
    )
    return Answer(answer=answer)
