"""Reads of incidents, and people's orders to them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic import Field, StringConstraints

from activities.storage.views import LONGEST_LIST
from medevac.incident import Hold, IncidentView, Line
from medevac.model import Model
from worker import metrics
from worker.engine import Declined, NotRunning, Unavailable
from worker.gateway.errors import Problem
from worker.gateway.people import Principal, Right
from worker.gateway.services import Served, Services, SignedIn
from workflows.messages import AssignRequest, By, HoldRequest, Order

router = APIRouter(prefix="/v1/incidents", tags=["incidents"])

Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=100)]
"""Two requests with one key are one order: repeat a request that got no answer with the key it had."""

Why = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""A reason that is needed: the others, and the next shift, go by it."""

LONGEST_HOLD = timedelta(days=7)


class Incident(Model):
    incident: IncidentView
    lines: tuple[Line, ...]


class HoldOrder(Model):
    reason: Why
    for_s: float = Field(default=3_600, gt=0, le=LONGEST_HOLD.total_seconds())


class Reason(Model):
    reason: str = Field(default="", max_length=500)


class Assignment(Model):
    owner: str = Field(min_length=1, max_length=100)
    reason: str = Field(default="", max_length=500)


class Answer(Model):
    answer: str
    """What is true now, in one line."""


@router.get("", summary="Incidents, newest first")
async def incidents(
    served: Served,
    person: SignedIn,
    open_only: Annotated[bool, Query(alias="open")] = True,
    cluster: str | None = None,
    node: str | None = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST_LIST)] = 100,
) -> list[IncidentView]:
    return list(
        await served.threads.run(
            served.stores.ledger.incidents, open_only=open_only, cluster=cluster, node=node, limit=limit
        )
    )


@router.post("/{incident:path}/hold", summary="Stop before the next step, until a time")
async def hold(incident: str, order: HoldOrder, served: Served, person: SignedIn, key: Key = None) -> Answer:
    person.require(Right.STOP)
    until = served.now() + timedelta(seconds=order.for_s)
    held = Hold(owner=person.id, reason=order.reason, until=until, via=person.via)
    return await _tell(served, incident, "hold", HoldRequest(hold=held), person, key)


@router.post("/{incident:path}/resume", summary="Go on after a hold; plan again after a hand-over")
async def resume(incident: str, order: Reason, served: Served, person: SignedIn, key: Key = None) -> Answer:
    person.require(Right.OPERATE)
    return await _tell(served, incident, "resume", By(who=person.id, reason=order.reason, via=person.via), person, key)


@router.post("/{incident:path}/abort", summary="Stop for good; the answer says what was still stopped")
async def abort(incident: str, order: Reason, served: Served, person: SignedIn, key: Key = None) -> Answer:
    person.require(Right.OPERATE)
    return await _tell(served, incident, "abort", By(who=person.id, reason=order.reason, via=person.via), person, key)


@router.post("/{incident:path}/assign", summary="Give it to a person")
async def assign(incident: str, order: Assignment, served: Served, person: SignedIn, key: Key = None) -> Answer:
    person.require(Right.OPERATE)
    request = AssignRequest(owner=order.owner, by=By(who=person.id, reason=order.reason, via=person.via))
    return await _tell(served, incident, "assign", request, person, key)


@router.post("/{incident:path}/confirm-repaired", summary="Say that it is repaired; verify decides")
async def confirm(incident: str, order: Reason, served: Served, person: SignedIn, key: Key = None) -> Answer:
    person.require(Right.OPERATE)
    return await _tell(
        served, incident, "confirm_repaired", By(who=person.id, reason=order.reason, via=person.via), person, key
    )


@router.get("/{incident:path}", summary="One incident with its ledger lines")
async def incident(incident: str, served: Served, person: SignedIn) -> Incident:
    view = await _view(served, incident)
    lines = await served.threads.run(served.stores.ledger.lines, incident)
    return Incident(incident=view, lines=tuple(lines))


async def _view(served: Services, incident: str) -> IncidentView:
    view = await served.threads.run(served.stores.ledger.incident, incident)
    if view is None:
        raise Problem(404, f"no incident is called {incident[:100]}; `medevac incidents --all` lists them")
    return view


async def _tell(
    served: Services, incident: str, update: str, request: Order, person: Principal, key: str | None
) -> Answer:
    view = await _view(served, incident)
    request = request.model_copy(update={"incident": view.id})
    if view.end is not None:
        raise Problem(409, f"{incident} has ended ({view.end}); nothing is left to {update.replace('_', ' ')}")
    update_id = f"{update}:{incident}:{person.id}:{key or uuid.uuid4().hex}"
    outcome = "done"
    try:
        return Answer(answer=await served.engine.tell(view.workflow_id, update, request, update_id))
    except (Declined, NotRunning, Unavailable) as error:
        outcome = type(error).__name__.lower()
        raise
    finally:
        metrics.UPDATES.labels(update, outcome).inc()
