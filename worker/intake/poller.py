"""`medevac poll`: monitors that only answer when asked, as gpud's daemons."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from activities.registry import ConfigurationError
from medevac.events.parsing import MAX_PAYLOAD_BYTES, Payload
from medevac.events.transport import NODE_HEADER
from worker import metrics
from worker.installation import open_installation
from worker.intake.assembly import Loop, Parts, build, run_until_stopped
from worker.intake.delivery import Deliveries, Refused, Speaker
from worker.intake.leading import Lead, pause
from worker.intake.living import Living
from worker.settings import Settings
from worker.speakers import Poller, Target
from worker.stores import Stores

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
AT_ONCE = 20
ANSWERED = ("taken", "not_held", "refused")
JSON = {"content-type": "application/json"}


class GpudPoller:
    """Asks each target in turn, evenly over the interval. One that doesn't answer is counted and asked again."""

    def __init__(
        self,
        poller: Poller,
        deliveries: Deliveries,
        client: httpx.AsyncClient,
        may_speak: Callable[[], bool] = lambda: True,
        living: Living | None = None,
    ) -> None:
        self._poller = poller
        self._may_speak = may_speak
        self._living = living
        self._deliveries = deliveries
        self._client = client
        self._silent: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                began = asyncio.get_running_loop().time()
                await self.once()
                rest = self._poller.every_s - (asyncio.get_running_loop().time() - began)
                await pause(stop, max(0.1, rest))
        finally:
            await self._client.aclose()

    async def once(self) -> None:
        slots = asyncio.Semaphore(AT_ONCE)
        outcomes: set[str] = set()

        async def ask(target: Target) -> None:
            async with slots:
                for path in self._poller.paths:
                    outcome = await self._ask(target, path)
                    outcomes.add(outcome)
                    metrics.POLLS.labels(self._poller.name, outcome).inc()

        await asyncio.gather(*(ask(target) for target in self._poller.targets))
        if self._living is not None and not outcomes.isdisjoint(ANSWERED) and self._may_speak():
            await self._living.said()

    async def _ask(self, target: Target, path: str) -> str:
        try:
            body = await read_bounded(self._client, target.url.rstrip("/") + path)
        except (httpx.HTTPError, ValueError) as error:
            if target.url not in self._silent:
                log.warning("%s: %s does not answer: %s", self._poller.name, target.url, type(error).__name__)
            self._silent.add(target.url)
            return "silent"
        self._silent.discard(target.url)
        if not self._may_speak():
            return "late"
        poller = self._poller
        speaker = Speaker(poller.name, (poller.source,), poller.clusters)
        try:
            taken = await self._deliveries.take(
                poller.source, Payload(body, {**JSON, NODE_HEADER: target.node}), speaker
            )
        except Refused as refused:
            log.warning("%s: %s: %s", poller.name, target.url, refused)
            return "refused"
        return "taken" if taken.held else "not_held"


async def read_bounded(client: httpx.AsyncClient, url: str, **asked: Any) -> bytes:
    """The body of a successful answer. Raises `httpx.HTTPError`, or `ValueError` when it is too large."""
    parts, size = [], 0
    async with client.stream("GET", url, timeout=TIMEOUT_S, follow_redirects=False, **asked) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_bytes():
            size += len(part)
            if size > MAX_PAYLOAD_BYTES:
                raise ValueError(f"{url} answers with more than {MAX_PAYLOAD_BYTES} bytes")
            parts.append(part)
    return b"".join(parts)


async def run_poll(settings: Settings) -> int:
    installation = open_installation(settings)
    pollers = installation.config.pollers
    if not pollers:
        raise ConfigurationError("the configuration has no `pollers`; name one, or don't start `medevac poll`")
    parts = await build(settings, installation, "poll")
    for one in pollers:
        verification(one)
    loops = [_leading(one, parts, installation.stores) for one in pollers]
    return await run_until_stopped(settings, parts, loops)


def _leading(poller: Poller, parts: Parts, stores: Stores) -> Loop:
    """Of several processes one asks."""
    lead = Lead(f"poll/{poller.name}", stores.leaders, parts.threads)

    async def ask(stop: asyncio.Event) -> None:
        living = Living(poller.name, stores.database, parts.threads)
        await GpudPoller(poller, parts.deliveries, client_of(poller), lambda: lead.holds, living).run(stop)

    return partial(lead.lead, ask)


def verification(poller: Poller) -> ssl.SSLContext | bool:
    """How the targets' certificates are checked. Raises `ConfigurationError`."""
    if not poller.verify or poller.ca is None:
        return poller.verify
    try:
        return ssl.create_default_context(cafile=str(poller.ca.expanduser()))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"poller {poller.name}: cannot read {poller.ca}: {error}; name a PEM file") from error


def client_of(poller: Poller) -> httpx.AsyncClient:
    """Nothing of the environment (`.netrc`, proxies' passwords) goes where nobody knows who answers."""
    return httpx.AsyncClient(verify=verification(poller), trust_env=poller.verify)
