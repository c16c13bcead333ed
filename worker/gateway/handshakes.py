"""Subscriptions that ask whether we want them: answered for senders that signed in, and only at their own hosts."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

import httpx

from medevac.events.event import HealthEvent
from worker import metrics
from worker.gateway.authentication import AuthError
from worker.gateway.sns import SNS_HOST, SnsVerifier
from worker.intake.delivery import Refused, Why
from worker.threads import Threads

log = logging.getLogger(__name__)

HOSTS: Mapping[str, re.Pattern[str]] = {
    "aws": SNS_HOST,
    "oci": re.compile(r"[a-z0-9-]{1,60}(\.[a-z0-9-]{1,60}){0,4}\.oraclecloud\.com"),
}
"""By source: the only hosts at which a subscription is confirmed."""
TIMEOUT_S = 3.0

Fetch = Callable[[str], Awaitable[int]]
"""GETs an address without following redirects; the status."""


class NotConfirmed(Exception):
    """The provider didn't take the confirmation; it asks again when this delivery fails."""


class Handshakes:
    def __init__(self, sns: SnsVerifier, threads: Threads, fetch: Fetch | None = None) -> None:
        self._sns = sns
        self._threads = threads
        self._fetch = fetch or _get

    async def answer(self, source: str, event: HealthEvent, body: bytes) -> dict[str, str] | None:
        """What the answer must say, if anything. Raises `Refused`, `NotConfirmed`."""
        outcome = "refused"
        try:
            answer = await self._answer(source, event, body)
            outcome = "confirmed"
            return answer
        except NotConfirmed:
            outcome = "failed"
            raise
        finally:
            metrics.HANDSHAKES.labels(source, outcome).inc()

    async def _answer(self, source: str, event: HealthEvent, body: bytes) -> dict[str, str] | None:
        if isinstance(code := event.detail.get("validation_code"), str):
            return {"validationResponse": code}
        url = event.detail.get("subscribe_url")
        if not isinstance(url, str):
            return None
        hosts = HOSTS.get(source)
        parts = urlsplit(url)
        if hosts is None or parts.scheme != "https" or parts.port not in (None, 443) or "@" in parts.netloc:
            raise Refused(
                Why.HANDSHAKE, f"a subscription of {source} is not confirmed at {parts.scheme}://{parts.netloc[:80]}"
            )
        if not hosts.fullmatch(parts.hostname or ""):
            raise Refused(
                Why.HANDSHAKE,
                f"{(parts.hostname or '')[:80]} is no host of {source}; the subscription is not confirmed",
            )
        if source == "aws":
            try:
                # Whoever knows the sender's password could else have us confirm a topic of their own.
                await self._threads.run(self._sns.verify, json.loads(body))
            except (AuthError, ValueError) as error:
                raise Refused(Why.HANDSHAKE, f"the subscription is not confirmed: {error}") from error
        try:
            status = await self._fetch(url)
        except httpx.HTTPError as error:
            raise NotConfirmed(f"{parts.hostname} does not answer: {type(error).__name__}") from error
        if not 200 <= status < 300:
            raise NotConfirmed(f"{parts.hostname} answered {status} to the confirmation")
        log.info("confirmed a subscription of %s at %s", source, parts.hostname)
        return None


async def _get(url: str) -> int:
    async with (
        httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client,
        client.stream("GET", url) as answer,
    ):
        return answer.status_code
