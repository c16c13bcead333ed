"""`POST /v1/events/<source>`: one delivery in, what became of each part out."""

from __future__ import annotations

import time
from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from medevac.events.parsing import Payload
from medevac.model import Model
from worker import metrics
from worker.gateway import bodies
from worker.gateway.authentication import AuthError
from worker.gateway.errors import Problem, refusal
from worker.gateway.handshakes import NotConfirmed
from worker.gateway.services import Served, Services, speaks
from worker.intake.delivery import Refused, Taken, Why, safe_headers
from worker.intake.part import PartResult
from worker.speakers import Sender

router = APIRouter(prefix="/v1/events", tags=["events"])

HANDSHAKE_RATE = "600"
"""Deliveries a minute that the CloudEvents handshake grants a sender."""
LARGE = 1024 * 1024
"""Bytes. Larger bodies are read and taken two at a time, which bounds what deliveries hold in memory."""

STATUS: Mapping[Why, int] = {
    Why.UNREADABLE: 400,
    Why.PART: 400,
    Why.FORBIDDEN: 403,
    Why.TOO_LARGE: 413,
    Why.ENCODING: 415,
    Why.HANDSHAKE: 403,
    Why.UNKNOWN_SOURCE: 404,
    Why.SLOW: 408,
}


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
        200: {"description": "A subscription's handshake, answered as its sender wants it"},
        400: {"description": "Nothing in it could be read"},
        401: {"description": "Nobody signed in"},
        403: {"description": "The sender may not post this source, or speaks for none of the named clusters"},
        404: {"description": "No such source"},
        408: {"description": "The body did not come in time"},
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
    except AuthError as error:
        status = error.status
        metrics.REFUSALS.labels(label, Why.UNAUTHENTICATED).inc()
        raise
    except Exception as error:
        status = getattr(error, "status", 500)
        raise
    finally:
        metrics.DELIVERIES.labels(label, str(status)).inc()
        metrics.DELIVERY_SECONDS.labels(label).observe(time.perf_counter() - began)


async def _deliver(source: str, request: Request, served: Services) -> Response:
    headers = {name.lower(): value for name, value in request.headers.items()}
    fetches = served.senders.fetches(headers)
    by_headers = served.senders.by_headers
    sender = await served.threads.run(by_headers, headers) if fetches else by_headers(headers)
    safe = safe_headers(headers)
    try:
        async with served.large if _claimed(headers) > LARGE else served.small:
            body = await _body(request, headers, served.max_body_bytes)
            if sender is None:
                sender = await served.threads.run(served.senders.by_signature, headers, body)
            if source not in served.sources:
                unknown = Unread(Why.UNKNOWN_SOURCE, _no_source(served, source), None, body)
                return await _unread(unknown, source, sender, safe, served)
            return await _take(source, Payload(body, safe), sender, served)
    except Unread as unread:
        return await _unread(unread, source, sender, safe, served)
    except Refused as refused:
        parts = [part.model_dump(mode="json") for part in refused.parts]
        return refusal(STATUS[refused.why], str(refused), **({"parts": parts, "truncated": 0} if parts else {}))


class Unread(Exception):
    """Refused before anything of it was looked at. `size`: bytes, where `body` is no more than its beginning."""

    def __init__(self, why: Why, message: str, size: int | None, body: bytes) -> None:
        super().__init__(message)
        self.why = why
        self.size = size
        self.body = body


async def _unread(
    unread: Unread, source: str, sender: Sender | None, headers: Mapping[str, str], served: Services
) -> Response:
    """Kept where its sender is known. Of one who signs the body, and whose body wasn't read, it is only counted."""
    if sender is not None:
        payload = Payload(unread.body, headers)
        await served.deliveries.refuse(source, sender.name, unread.why, str(unread), payload, size=unread.size)
    else:
        metrics.REFUSALS.labels(source if source in served.sources else "unknown", unread.why).inc()
    return refusal(STATUS[unread.why], str(unread))


async def _take(source: str, payload: Payload, sender: Sender, served: Services) -> Response:
    taken = await served.deliveries.take(source, payload, speaks(sender))
    content = Delivered(parts=taken.parts, truncated=taken.truncated).model_dump(mode="json")
    if not taken.held:
        return refusal(503, "not all of it is held durably; deliver it again", **content)
    if taken.handshakes:
        return await _answered(source, taken, payload, sender, served, content)
    return JSONResponse(content, status_code=202)


async def _answered(
    source: str, taken: Taken, payload: Payload, sender: Sender, served: Services, content: dict[str, object]
) -> Response:
    for event in taken.handshakes:
        try:
            answer = await served.handshakes.answer(source, event, payload.body)
        except NotConfirmed as error:
            return refusal(503, f"{error}; ask again", **content)
        except Refused as refused:
            await served.deliveries.refuse(source, sender.name, refused.why, str(refused), payload)
            raise
        if answer is not None:
            return JSONResponse(answer)
    return JSONResponse(content, status_code=202)


def _known(served: Services, source: str) -> None:
    if source not in served.sources:
        raise Problem(404, _no_source(served, source))


def _no_source(served: Services, source: str) -> str:
    return f"no source is called {source[:60]}; there are {', '.join(sorted(served.sources))}"


def _claimed(headers: Mapping[str, str]) -> int:
    """Bytes that the sender announces; one who announces nothing is taken to send much."""
    claimed = headers.get("content-length", "")
    return int(claimed[:15]) if claimed.isascii() and claimed.isdigit() else LARGE + 1


async def _body(request: Request, headers: Mapping[str, str], limit: int) -> bytes:
    """Raises `Unread`."""
    hint = "send fewer parts at once"
    announced = _claimed(headers) if "content-length" in headers else 0
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        # Nothing of the body is kept: secrets in it could not be found to be blanked.
        raise Unread(Why.ENCODING, f"content-encoding {encoding[:40]} is not read; send it plain", announced, b"")
    if announced > limit:
        words = f"larger than {limit} bytes; {hint}"
        raise Unread(Why.TOO_LARGE, words, announced, await bodies.beginning(request))
    try:
        return await bodies.read(request, limit, hint)
    except bodies.TooLarge as error:
        raise Unread(Why.TOO_LARGE, str(error), error.size, error.beginning) from None
    except bodies.Slow as error:
        raise Unread(Why.SLOW, str(error), max(announced, error.size), error.beginning) from None
