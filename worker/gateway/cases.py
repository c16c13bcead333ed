"""Cases with providers: what was written, what they answered and what that proposes, and people's word on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from activities.failures import redact
from activities.storage.cases import Gone
from medevac.cases import course
from medevac.cases.case import POSSIBLE_IN, Case
from medevac.model import Model
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer, Reason
from worker.gateway.people import Principal, Right
from worker.gateway.services import Served, Services, SignedIn

router = APIRouter(prefix="/v1/cases", tags=["cases"])


class Text(Model):
    text: str = Field(min_length=1, max_length=5_000)


@router.get("", summary="Cases, newest first")
async def cases(
    served: Served,
    person: SignedIn,
    open_only: Annotated[bool, Query(alias="open")] = True,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[Case]:
    """Those that failed are among the open ones: a person must go on with them."""
    return list(await served.threads.run(served.stores.cases.all, open_only=open_only, limit=limit))


@router.get("/{case}", summary="One case with its letter, replies and proofs")
async def case(case: str, served: Served, person: SignedIn) -> Case:
    found = await served.threads.run(served.stores.cases.get, case)
    if found is None:
        raise _none(case)
    return found


@router.post("/{case}/comment", summary="Write to the provider in the ticket")
async def comment(case: str, order: Text, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    text = redact(order.text, 5_000)
    found = await _change(served, person, case, "comment", lambda one, _: one.commenting(text))
    return Answer(answer=f"{found.id}: it is sent with the next look at the ticket, in a moment")


@router.post("/{case}/close", summary="Close the case and its ticket, by a person's word")
async def close(case: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    why = f"{person.id}{f': {order.reason}' if order.reason else ''}"
    found = await _change(
        served, person, case, "close", lambda one, now: course.close_by_person(one, person.id, why, now)
    )
    return Answer(answer=f"{found.id} is {found.state}; its machines stay as they are")


@router.post("/{case}/retry", summary="Open the ticket after all, now that its hindrance is gone")
async def retry(case: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    found = await _change(served, person, case, "retry", lambda one, now: course.retried(one, person.id, now))
    said = "people are asked about its letter again" if found.denied else "is opened again, unless its ticket is found"
    return Answer(answer=f"{found.id}: {said}")


async def _change(
    served: Services,
    person: Principal,
    case: str,
    order: str,
    how: Callable[[Case, datetime], Case],
) -> Case:
    """Written first; the workflow is only woken."""
    now = served.now()

    def change(one: Case) -> Case:
        if one.state not in POSSIBLE_IN[order]:
            raise Problem(409, f"{one.id} is {one.state} ({one.why}); that can't be done to it now")
        return how(one, now)

    try:
        changed = await served.threads.run(served.stores.cases.change, case, change, now)
    except Gone:
        raise _none(case) from None
    await served.engine.follow_case(changed.system, changed.id)
    return changed


def _none(case: str) -> Problem:
    return Problem(404, f"no case is called {case[:100]}; `medevac case list --all` lists them")
