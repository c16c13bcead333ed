"""Replies that ticket systems post, and inbound mail: kept, shown to people with what they seem to propose, no more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError

from activities.case_words import heard_of
from activities.ports import Said
from activities.storage.cases import Cases
from activities.ticketing import name_of
from activities.tickets import mail_text
from medevac.cases import course
from medevac.cases.case import Case
from medevac.model import Model
from worker.config import TicketSystem
from worker.gateway import bodies
from worker.gateway.authentication import AuthError
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer
from worker.gateway.senders import Senders
from worker.gateway.services import Served, Services
from worker.speakers import Sender

router = APIRouter(prefix="/v1/case-replies", tags=["cases"])

MOST_BYTES = 1_000_000


class Reply(Model):
    """Our own form; a mail gateway may post the whole letter as `message/rfc822` instead, and Jira its own event."""

    ticket: str = Field(min_length=1, max_length=200)
    """The ticket's id over there, or the case's here."""
    id: str = Field(default="", max_length=200)
    """Of the reply; one that is posted twice is one."""
    author: str = Field(default="", max_length=200)
    text: str = Field(max_length=50_000)
    headers: dict[str, str] = {}
    """Of a mail; they tell automatic replies."""


def repliers(systems: Iterable[TicketSystem]) -> Senders:
    """Who signs in how, each under the name of its ticket system."""
    return Senders([
        Sender(
            name=system.name,
            sources=(system.name,),
            clusters=(system.name,),
            bearer=system.replies.bearer,
            basic=system.replies.basic,
            hmac=system.replies.hmac,
        )
        for system in systems
        if system.replies is not None
    ])  # fmt: skip


@router.post(
    "/{system}",
    status_code=202,
    summary="Post a reply of a ticket system",
    openapi_extra={"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string"}}}}},
    responses={401: {"description": "Nobody signed in"}, 403: {"description": "Signed in as another system"}},
)
async def reply(system: str, request: Request, served: Served) -> Answer:
    """202 also where no case has the ticket: others' tickets are nobody's matter here."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    who = served.repliers.by_headers(headers)
    body = await bodies.read(request, MOST_BYTES, "leave attachments out")
    if who is None:
        who = served.repliers.by_signature(headers, body)
    if who.name != system:
        raise AuthError(403, f"{who.name} may not post replies of {system[:60]}")
    ticket, said = _read(headers.get("content-type", ""), body, served.now(), _own(served, system))
    case = await served.threads.run(served.stores.cases.by_ticket, system, ticket) if ticket else None
    if case is None:
        return Answer(answer="no case has this ticket; nothing was done")
    if said is not None and not said.ours:
        await served.threads.run(_keep, served.stores.cases, case, said, served.now())
    await served.engine.follow_case(case.system, case.id)
    return Answer(answer=f"{case.id} has it")


def _keep(cases: Cases, case: Case, said: Said, now: datetime) -> None:
    """Written before it is answered: a reply that we said we have is shown, whatever dies."""
    heard = heard_of(said, case.ours)
    cases.change(case.id, lambda one: course.hear(one, [heard], now), now)


def _own(served: Services, system: str) -> str:
    """Our address in that system, where it has such."""
    for tickets in served.registry.ticket_systems():
        if name_of(tickets) == system:
            return str(getattr(tickets, "own", ""))
    return ""


def _read(kind: str, body: bytes, now: datetime, own: str) -> tuple[str | None, Said | None]:
    """The ticket and what was said; without the latter the ticket system is asked itself."""
    if kind.partition(";")[0].strip().lower() == "message/rfc822":
        message = mail_text.parse(body)
        return mail_text.ticket_of(message), mail_text.said(message, now, own)
    try:
        given: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "the reply is no JSON; post JSON, or a letter as message/rfc822") from None
    if isinstance(given, dict) and isinstance(given.get("issue"), dict):
        # Jira's webhook isn't signed by its content: it only says where to look.
        return str(given["issue"].get("key") or "")[:200] or None, None
    try:
        reply = Reply.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise Problem(422, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from None
    id = reply.id or hashlib.sha256(body).hexdigest()[:32]
    return reply.ticket, Said(
        id=id, at=now.astimezone(UTC), author=reply.author, text=reply.text, ours=False, headers=reply.headers
    )
