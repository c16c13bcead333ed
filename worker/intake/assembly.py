"""What every intake process is made of, and how one that isn't the gateway runs until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from activities.signatures import TIMINGS
from worker.connection import connect
from worker.engine import TemporalEngine
from worker.installation import Installation
from worker.intake.delivery import Deliveries
from worker.intake.drainer import Drainer
from worker.intake.fold import Fold
from worker.intake.inventory import Inventory
from worker.intake.pipeline import Intake
from worker.probe import probe_server
from worker.settings import Settings
from worker.threads import Threads

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    engine: TemporalEngine
    inventory: Inventory
    intake: Intake
    deliveries: Deliveries
    drainer: Drainer
    threads: Threads


async def build(settings: Settings, installation: Installation, name: str) -> Parts:
    threads = Threads()
    timing = TIMINGS[settings.timing]
    # Lazy: a process that starts before Temporal holds what it hears in the inbox, rather than dying in a loop.
    engine = TemporalEngine(await connect(name, lazy=True), timing, settings.signal_timeout_s)
    inventory = Inventory(installation.registry.clusters, settings.inventory_s)
    stores = installation.stores
    intake = Intake(inventory=inventory, stores=stores, engine=engine, fold=Fold(timing.fold_s), threads=threads)
    deliveries = Deliveries(intake, stores.dead_letters, threads)
    return Parts(engine, inventory, intake, deliveries, Drainer(intake, inventory, stores, threads), threads)


Loop = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until the event is set, and ends what it began."""


async def run_until_stopped(
    settings: Settings, parts: Parts, loops: Sequence[Loop], unready: Callable[[], str] = lambda: ""
) -> int:
    """Until SIGTERM or SIGINT (0), or until a loop ends by itself (1). `unready`: what `/readyz` says, if anything."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = probe_server(settings.worker_host, settings.intake_port, lambda: "", unready)
    running = [asyncio.ensure_future(loop(stop)) for loop in loops]
    helpers = [asyncio.create_task(server.serve()), asyncio.create_task(parts.drainer.run())]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in running if task.done()]
    for task in ended:
        log.error("an intake loop ended by itself: %s", task.exception() or "no error given")
    failed = bool(ended) and not stop.is_set()
    stop.set()
    with suppress(TimeoutError):
        async with asyncio.timeout(settings.shutdown_s):
            await asyncio.gather(*running, return_exceptions=True)
    server.should_exit = True
    helpers[1].cancel()
    await asyncio.gather(*helpers, stopping, return_exceptions=True)
    await parts.intake.close()
    parts.threads.close()
    return 1 if failed else 0
