"""The processes that a benchmark measures, on fresh files: Temporal's dev server, workers, a gateway."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client

from simulation.layout import INSTANT, Layout
from simulation.world import World
from worker.children import Child, environment, free_port
from worker.connection import MedevacPlugin
from worker.embedded import http_ready, temporal_ready, temporal_server
from worker.home import SENDER, Home
from worker.installation import find_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.setup import prepare_ledger
from worker.stores import open_stores

POLICY = Path(__file__).parent / "policy.yaml"
READY_S = 60.0
TICK = os.sysconf("SC_CLK_TCK")
UNLIMITED = "1000000"


@dataclass(slots=True)
class Stack:
    home: Home
    client: Client
    env: dict[str, str]
    server: Child
    workers: list[Child] = field(default_factory=list)
    health: dict[str, str] = field(default_factory=dict)
    gateway: Child | None = None
    url: str = ""

    @property
    def world(self) -> World:
        return World(self.home.world)

    @property
    def sender_token(self) -> str:
        return self.home.token(SENDER)

    def child(self, name: str, *argv: str, **env: str) -> Child:
        return Child(name, [sys.executable, "-m", *argv], {**self.env, **env}, self.home.path / f"{name}.log")

    async def worker(self, name: str, **env: str) -> Child:
        port = free_port()
        child = self.child(name, "benchmarks._worker", "ours", MEDEVAC_WORKER_PORT=str(port), **env)
        self.health[name] = f"http://127.0.0.1:{port}/readyz"
        self.workers.append(child)
        await self.revive(child)
        return child

    async def revive(self, child: Child) -> None:
        """Starts it, again if it died, and waits until it polls."""
        await child.wait()
        await child.start()
        await child.until(lambda: http_ready(self.health[child.name]), READY_S)


@asynccontextmanager
async def stack(
    nodes: int, *, gateway: bool = False, layout: Mapping[str, object] | None = None
) -> AsyncIterator[Stack]:
    """Temporal on a SQLite file as `medevac up` has it, the ledger on SQLite, and a simulated fleet of `nodes`."""
    if (task := asyncio.current_task()) is not None:
        # Stopped from outside, a benchmark still stops its processes: they have sessions of their own.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="medevac-bench-") as folder:
        home = Home(Path(folder))
        given = {"durations": INSTANT, "busy": 0.0, "serve_share": 0.0, **(layout or {})}
        home.make(Layout.model_validate({"nodes": nodes, **given}))
        port, gateway_port = free_port(), free_port()
        env = environment(
            TEMPORAL_ADDRESS=f"127.0.0.1:{port}",
            TEMPORAL_NAMESPACE="default",
            MEDEVAC_CONFIG=str(home.config),
            MEDEVAC_DATA_DIR=folder,
            MEDEVAC_TIMING="production",
            MEDEVAC_GATEWAY_PORT=str(gateway_port),
            MEDEVAC_MACHINE_CALLS_PER_S=UNLIMITED,
            MEDEVAC_CHAT_CALLS_PER_S=UNLIMITED,
            MEDEVAC_LOG_LEVEL="warning",
            PYTHONUNBUFFERED="1",
        )
        file = home.path / "temporal.sqlite"
        server = Child("temporal", temporal_server(port, file), env, home.path / "temporal.log")
        made: Stack | None = None
        try:
            await server.start()
            settings = Settings(config=home.config, data_dir=home.path)
            stores = open_stores(settings.database)
            registry = build_registry(find_config(settings), settings.data_dir)
            await asyncio.to_thread(prepare_ledger, stores, registry, POLICY)
            stores.database.close()
            await server.until(lambda: temporal_ready(f"127.0.0.1:{port}", 30), READY_S)
            client = await Client.connect(f"127.0.0.1:{port}", plugins=[MedevacPlugin()])
            made = Stack(home, client, env, server)
            if gateway:
                made.url = f"http://127.0.0.1:{gateway_port}"
                made.gateway = made.child("gateway", "worker.cli", "gateway")
                await made.gateway.start()
                await made.gateway.until(lambda: http_ready(f"{made.url}/readyz"), READY_S)
            yield made
        except BaseException:
            for child in () if made is None else made.workers:
                print(f"-- last lines of {child.name}:\n{child.tail()}", file=sys.stderr)
            raise
        finally:
            others = [] if made is None else [*made.workers, *filter(None, [made.gateway])]
            for child in (*others, server):
                await child.stop()


def cpu_s(*children: Child) -> float:
    """Seconds of processor time that these processes have used, all threads, user and system."""
    total = 0
    for child in children:
        try:
            fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError as error:
            raise SystemExit(
                f"the processor time of {child.name} can't be read ({error}); this needs Linux's /proc"
            ) from None
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of them don't exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1_000) * len(ordered) // 1_000) - 1))]


async def until(condition: Callable[[], bool], timeout_s: float, what: str, poll_s: float = 0.05) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110  of other processes' files
                await asyncio.sleep(poll_s)
    except TimeoutError:
        raise SystemExit(f"{what} within {timeout_s:g} s: not seen") from None
