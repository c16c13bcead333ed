"""The gateway process."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import signal
import time
from contextlib import suppress

import uvicorn

from medevac.events.registry import sources
from worker.cards import Cards
from worker.gateway.app import create_app
from worker.gateway.case_replies import repliers
from worker.gateway.handshakes import Handshakes
from worker.gateway.people import People
from worker.gateway.senders import Senders
from worker.gateway.services import Services
from worker.gateway.slack import door
from worker.gateway.slack_socket import listen
from worker.gateway.sns import SnsVerifier
from worker.installation import Installation, open_installation
from worker.intake.assembly import build
from worker.intake.delivery import Speaker
from worker.intake.drainer import Drainer
from worker.intake.sqs import speaker_of
from worker.intake.watching import SOURCES as WATCHED
from worker.probe import QuietServer
from worker.settings import Settings
from worker.vote_keys import signer

log = logging.getLogger(__name__)


async def build_services(settings: Settings, installation: Installation) -> tuple[Services, Drainer]:
    parts = await build(settings, installation, "gateway")
    config, sns = installation.config, SnsVerifier()
    others = [speaker_of(queue) for queue in config.queues]
    others += [Speaker(one.name, (one.source,), one.clusters) for one in config.pollers]
    others += [Speaker(one.name, WATCHED, one.clusters) for one in config.watchers]
    services = Services(
        installation=config.installation,
        sources=sources(),
        senders=Senders(config.senders, sns=sns),
        repliers=repliers(config.tickets),
        people=People(config.people),
        intake=parts.intake,
        deliveries=parts.deliveries,
        handshakes=Handshakes(sns, parts.threads),
        inventory=parts.inventory,
        stores=installation.stores,
        engine=parts.engine,
        registry=installation.registry,
        threads=parts.threads,
        cards=Cards(installation.registry, installation.stores),
        signer=signer(settings, config),
        scorecard=config.scorecard,
        max_body_bytes=settings.max_body_bytes,
        speakers={one.name: one for one in others},
        console=config.console,
        session_key=session_key(settings),
    )
    return services, parts.drainer


def session_key(settings: Settings) -> bytes:
    """Of the vote key, which all gateways share and nobody else has; without one, sessions end with the process."""
    if settings.vote_key is None:
        return secrets.token_bytes(32)
    return hmac.new(settings.vote_key.get_secret_value().encode(), b"console sessions", hashlib.sha256).digest()


async def run_gateway(settings: Settings) -> int:
    """Until SIGTERM or SIGINT: then deliveries that were begun are answered first."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    services, drainer = await build_services(settings, open_installation(settings))
    app = create_app(services)
    app.state.slack = slack = door(services)
    listening = asyncio.create_task(listen(slack), name="slack") if slack else None
    server = QuietServer(
        uvicorn.Config(
            app,
            host=settings.gateway_host,
            port=settings.gateway_port,
            log_level="warning",
            access_log=False,
            server_header=False,
            # The console believes a trusted proxy by its real address only, not by one that a request claims.
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=20,
            limit_concurrency=500,
        )
    )
    draining = asyncio.create_task(drainer.run(), name="inbox")
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    began = time.monotonic()
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    app.state.console.close()
    await serving
    stopping.cancel()
    draining.cancel()
    with suppress(asyncio.CancelledError):
        await draining
    if slack is not None and listening is not None:
        listening.cancel()
        await asyncio.wait([listening])
        await slack.settled()
    await services.intake.close()
    services.threads.close()
    if stop.is_set():
        return 0
    log.error("the gateway ended by itself after %.0f s", time.monotonic() - began)
    return 1
