"""Payloads that were refused: what they were, and submitting them again after a fix."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response

from activities.storage.dead_letters import Letter
from medevac.model import Model
from worker.gateway.errors import Problem, refusal
from worker.gateway.events import STATUS, Delivered
from worker.gateway.people import Right
from worker.gateway.services import Served, SignedIn
from worker.intake.delivery import Refused

router = APIRouter(prefix="/v1/dead-letters", tags=["events"])

Id = Annotated[int, Path(ge=1, le=2**62)]
SHOWN = 64 * 1024


class Opened(Model):
    letter: Letter
    headers: dict[str, str]
    body: str
    """Redacted, and cut where it is long."""


@router.get("", summary="Refused payloads, newest first")
async def dead_letters(
    served: Served,
    person: SignedIn,
    source: Annotated[str | None, Query(max_length=60)] = None,
    taken: Annotated[bool, Query(description="Those submitted again and taken as well.")] = False,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    before: Annotated[int, Query(ge=0, le=2**62, description="Only ids below it.")] = 0,
) -> list[Letter]:
    return await served.threads.run(served.stores.dead_letters.listed, source, taken, limit, before)


@router.get("/{id}", summary="One refused payload")
async def dead_letter(id: Id, served: Served, person: SignedIn) -> Opened:
    stored = await served.threads.run(served.stores.dead_letters.get, id)
    if stored is None:
        raise Problem(404, f"no dead letter has the id {id}")
    body = stored.body[:SHOWN].decode("utf-8", errors="replace")
    return Opened(letter=stored.letter, headers=stored.headers, body=body)


@router.post(
    "/{id}/retry",
    status_code=202,
    response_model=Delivered,
    summary="Submit it again, as its sender",
    responses={409: {"description": "Its sender is no more, or it isn't whole"}, 503: {"description": "Not held"}},
)
async def retry(id: Id, served: Served, person: SignedIn) -> Response:
    """As what its sender may post and speak for *now*. Refused again, it stays."""
    person.require(Right.OPERATE)
    stored = await served.threads.run(served.stores.dead_letters.get, id)
    if stored is None:
        raise Problem(404, f"no dead letter has the id {id}")
    speaker = served.speaker(stored.letter.sender)
    if speaker is None:
        raise Problem(409, f"no sender is called {stored.letter.sender[:100]} any more")
    try:
        taken = await served.deliveries.again(stored, speaker)
    except Refused as refused:
        parts = [part.model_dump(mode="json") for part in refused.parts]
        return refusal(STATUS.get(refused.why, 409), f"refused again: {refused}", parts=parts)
    content = Delivered(parts=taken.parts, truncated=taken.truncated).model_dump(mode="json")
    if not taken.held:
        return refusal(503, "not held durably; try again", **content)
    return JSONResponse(content, status_code=202)
