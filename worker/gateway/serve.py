"""The gateway process."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import suppress

import uvicorn

from activities.signatures import TIMINGS
from medevac.events.registry import sources
from worker.connection import connect
from worker.engine import TemporalEngine
from worker.gateway.app import create_app
from worker.gateway.handshakes import Handshakes
from worker.gateway.people import People
from worker.gateway.senders import Senders
from worker.gateway.services import Services
from worker.gateway.sns import SnsVerifier
from worker.installation import Installation, open_installation
from worker.intake.delivery import Deliveries
from worker.intake.drainer import Drainer
from worker.intake.fold import Fold
from worker.intake.inventory import Inventory
from worker.intake.pipeline import Intake
from worker.probe import QuietServer
from worker.settings import Settings
from worker.threads import Threads

log = logging.getLogger(__name__)


async def build_services(settings: Settings, installation: Installation) -> Services:
    threads = Threads()
    timing = TIMINGS[settings.timing]
    # Lazy: a gateway that starts before Temporal says that it isn't ready, rather than dying in a loop.
    engine = TemporalEngine(await connect("gateway", lazy=True), timing, settings.signal_timeout_s)
    inventory = Inventory(installation.registry.clusters, settings.inventory_s)
    stores = installation.stores
    intake = Intake(inventory=inventory, stores=stores, engine=engine, fold=Fold(timing.fold_s), threads=threads)
    sns = SnsVerifier()
    return Services(
        installation=installation.config.installation,
        sources=sources(),
        senders=Senders(installation.config.senders, sns=sns),
        people=People(installation.config.people),
        intake=intake,
        deliveries=Deliveries(intake, stores.dead_letters, threads),
        handshakes=Handshakes(sns, threads),
        inventory=inventory,
        stores=stores,
        engine=engine,
        registry=installation.registry,
        threads=threads,
        max_body_bytes=settings.max_body_bytes,
    )


async def run_gateway(settings: Settings) -> int:
    """Until SIGTERM or SIGINT: then deliveries that were begun are answered first."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    services = await build_services(settings, open_installation(settings))
    server = QuietServer(
        uvicorn.Config(
            create_app(services),
            host=settings.gateway_host,
            port=settings.gateway_port,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=20,
            limit_concurrency=500,
        )
    )
    drainer = Drainer(services.intake, services.inventory, services.stores, services.threads)
    draining = asyncio.create_task(drainer.run(), name="inbox")
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    began = time.monotonic()
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    stopping.cancel()
    draining.cancel()
    with suppress(asyncio.CancelledError):
        await draining
    services.threads.close()
    if stop.is_set():
        return 0
    log.error("the gateway ended by itself after %.0f s", time.monotonic() - began)
    return 1
