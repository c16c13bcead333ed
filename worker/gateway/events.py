"""`POST /v1/events/<source>`: one delivery in, what became of each part out."""

from __future__ import annotations

import time
from datetime import datetime

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from medevac.events.event import HealthEvent
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.registry import read
from medevac.model import Model
from worker import metrics
from worker.config import Sender
from worker.gateway.errors import Problem, refusal
from worker.gateway.services import Served, Services
from worker.intake.pipeline import Outcome, PartResult

router = APIRouter(prefix="/v1/events", tags=["events"])

HANDSHAKE_RATE = "600"
"""Deliveries a minute that the CloudEvents handshake grants a sender."""


class Delivered(Model):
    parts: tuple[PartResult, ...]
    truncated: int = 0
    """Parts that the sender says it held back."""


@router.options("/{source}", summary="CloudEvents webhook handshake")
async def handshake(source: str, request: Request, served: Served) -> Response:
    """Grants the asking origin; its deliveries must sign in all the same."""
    _known(served, source)
    origin = request.headers.get("webhook-request-origin", "")
    headers = {"Allow": "POST, OPTIONS"}
    if origin:
        headers |= {"WebHook-Allowed-Origin": origin[:255], "WebHook-Allowed-Rate": HANDSHAKE_RATE}
    return Response(status_code=200, headers=headers)


@router.post(
    "/{source}",
    status_code=202,
    response_model=Delivered,
    summary="Deliver a payload",
    openapi_extra={"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string"}}}}},
    responses={
        400: {"description": "Nothing in it could be read"},
        401: {"description": "Nobody signed in"},
        403: {"description": "The sender may not post this source, or speaks for none of the named clusters"},
        413: {"description": "Too large"},
        415: {"description": "A content encoding that is not read"},
        503: {"description": "Not held durably: deliver again after Retry-After"},
    },
)
async def deliver(source: str, request: Request, served: Served) -> Response:
    """202 means that every part is held durably, or needs nothing; the answer says what became of each."""
    began = time.perf_counter()
    label = source if source in served.sources else "unknown"
    status = 500
    try:
        response = await _deliver(source, request, served)
        status = response.status_code
        return response
    except Exception as error:
        status = getattr(error, "status", 500)
        raise
    finally:
        metrics.DELIVERIES.labels(label, str(status)).inc()
        metrics.DELIVERY_SECONDS.labels(label).observe(time.perf_counter() - began)


async def _deliver(source: str, request: Request, served: Services) -> Response:
    headers = {name.lower(): value for name, value in request.headers.items()}
    sender = served.senders.by_headers(headers)
    _known(served, source)
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Problem(415, f"content-encoding {headers['content-encoding'][:40]} is not read; send it plain")
    body = await _body(request, served.max_body_bytes)
    if sender is None:
        sender = served.senders.by_signature(headers, body)
    if source not in sender.sources:
        raise Problem(403, f"sender {sender.name} may not post {source}; it may post {', '.join(sender.sources)}")
    safe = {name: value for name, value in headers.items() if name not in ("authorization", "cookie")}
    try:
        parsed = await served.threads.run(read, source, Payload(body, safe))
    except ParseError as error:
        raise Problem(400, str(error)) from error
    return await _take(parsed, sender, served)


async def _take(parsed: Parsed, sender: Sender, served: Services) -> Response:
    now = served.now()
    refused = [PartResult(id=part.where, outcome=Outcome.REFUSED, reason=part.reason) for part in parsed.refused]
    stamped = [_stamp(event, sender, now) for event in parsed.events]
    taken = await served.intake.take(stamped, sender.clusters, now)
    answer = Delivered(parts=(*taken, *refused), truncated=parsed.truncated)
    content = answer.model_dump(mode="json")
    if any(part.outcome is Outcome.UNAVAILABLE for part in taken):
        return refusal(503, "not all of it is held durably; deliver it again", **content)
    if refused and not taken:
        return refusal(400, "; ".join(str(part) for part in parsed.refused[:5]), **content)
    if taken and all(part.outcome is Outcome.REFUSED for part in taken):
        return refusal(403, taken[0].reason, **content)
    return JSONResponse(content, status_code=202)


def _stamp(event: HealthEvent, sender: Sender, now: datetime) -> HealthEvent:
    return event.model_copy(update={"sender": sender.name, "received_at": now})


def _known(served: Services, source: str) -> None:
    if source not in served.sources:
        raise Problem(404, f"no source is called {source[:60]}; there are {', '.join(sorted(served.sources))}")


async def _body(request: Request, limit: int) -> bytes:
    """Read no further than the limit, whatever the sender claims."""
    claimed = request.headers.get("content-length", "0")
    if claimed.isascii() and claimed.isdigit() and int(claimed[:15]) > limit:
        raise Problem(413, f"larger than {limit} bytes; send fewer parts at once")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise Problem(413, f"larger than {limit} bytes; send fewer parts at once")
        parts.append(part)
    return b"".join(parts)
