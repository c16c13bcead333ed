"""Real gateways, consumers and workers over a real Temporal server, one ledger and a simulated fleet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import httpx
from temporalio.client import Client

from medevac.fleet.node import Node
from simulation import senders
from simulation.layout import INSTANT, Layout
from simulation.world import World
from worker.children import Child, environment, free_port
from worker.connection import MedevacPlugin
from worker.embedded import temporal_ready, temporal_server
from worker.home import SENDER, Home
from worker.installation import find_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.setup import prepare_ledger
from worker.stores import Stores, open_stores
from workflows.messages import node_workflow_id

LONG_S = 300.0


class Forks:
    """`preloaded`, and the processes that it has made."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self.alive: set[int] = set()

    async def start(self, argv: list[str], env: dict[str, str], log: Path) -> int:
        pid = await self._ask({"start": argv, "env": env, "log": str(log)})
        self.alive.add(pid)
        return pid

    async def end(self, pid: int, by: signal.Signals) -> int:
        """Its exit status, once it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, by)
        status = await self._ask({"wait": pid})
        self.alive.discard(pid)
        return status

    async def gone(self, pid: int) -> bool:
        return bool(await self._ask({"gone": pid}))

    async def _ask(self, order: Mapping[str, object]) -> int:
        async with self._lock:
            if self._process is None:
                argv = [sys.executable, "-m", "tests.integration.intake.preloaded"]
                pipe = asyncio.subprocess.PIPE
                self._process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            return int(await self._process.stdout.readline())

    async def close(self) -> None:
        for pid in list(self.alive):
            await self.end(pid, signal.SIGKILL)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()


class Rig:
    def __init__(self, path: Path, policy: Path | None = None, queue: str = "", nodes: int = 64) -> None:
        self.home = Home(path)
        self.home.make(Layout(nodes=nodes, durations=INSTANT, busy=0.0, serve_share=0.0))
        if queue:
            with self.home.config.open("a") as config:
                config.write(queue)
        self.settings = Settings(config=self.home.config, data_dir=path)
        self.stores: Stores = open_stores(self.settings.database)
        prepare_ledger(self.stores, build_registry(find_config(self.settings), path), policy)
        self.address = f"127.0.0.1:{free_port()}"
        server = temporal_server(int(self.address.rpartition(":")[2]), path / "temporal.sqlite")
        self.temporal = Child("temporal", server, environment(), path / "temporal.log")
        self.forks = Forks()
        # Made once: a client reads the machine's certificates, which takes longer than a delivery.
        self.http = httpx.AsyncClient(timeout=LONG_S, trust_env=False)
        self.token = {"Authorization": f"Bearer {self.home.token(SENDER)}"}

    async def start_temporal(self) -> None:
        await self.temporal.start()
        await self.temporal.until(lambda: temporal_ready(self.address, 30), LONG_S)

    async def close(self) -> None:
        await self.http.aclose()
        await self.forks.close()
        await self.temporal.stop()
        self.stores.database.close()

    async def client(self) -> Client:
        return await Client.connect(self.address, plugins=[MedevacPlugin()])

    def nodes(self) -> list[Node]:
        with World(self.home.world) as world:
            return [node for node in world.nodes() if node.gpus]


class Process:
    """One `medevac` process, in the same place whenever it is started anew."""

    def __init__(self, rig: Rig, command: str, name: str, **env: str) -> None:
        self._rig = rig
        self._command = command
        self._port = port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = rig.home.path / f"{name}.log"
        self._env = environment(
            TEMPORAL_ADDRESS=rig.address,
            TEMPORAL_NAMESPACE="default",
            MEDEVAC_CONFIG=str(rig.home.config),
            MEDEVAC_DATA_DIR=str(rig.home.path),
            MEDEVAC_GATEWAY_PORT=str(port),
            MEDEVAC_WORKER_PORT=str(port),
            MEDEVAC_INTAKE_PORT=str(port),
            **env,
        )
        self.pid = 0

    async def up(self) -> None:
        self.pid = await self._rig.forks.start([self._command], self._env, self.log)
        async with asyncio.timeout(LONG_S):
            while not await self._listens():
                assert not await self._rig.forks.gone(self.pid), self.log.read_text()[-2_000:]
                await asyncio.sleep(0.02)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        return True

    async def end(self, by: signal.Signals) -> int:
        return await self._rig.forks.end(self.pid, by)


async def delivered(rig: Rig, urls: list[str], sent: senders.Delivery, chance: random.Random) -> httpx.Response:
    """As a sender behind a load balancer does: again and again, until somebody says 202."""
    while True:
        try:
            url = chance.choice(urls) + sent.path
            answer = await rig.http.post(url, content=sent.body, headers={**sent.headers, **rig.token})
        except httpx.HTTPError:
            await asyncio.sleep(0.05)
            continue
        if answer.status_code == 202:
            return answer
        assert answer.status_code == 503, answer.text
        await asyncio.sleep(0.2)


async def heard(client: Client, node: Node) -> list[tuple[str, list[str]]]:
    """Of each incident that the node ever had, what it was told, in order."""
    id = node_workflow_id(node.cluster, node.name)
    found = []
    async for run in client.list_workflows(f"WorkflowId = '{id}'"):
        told = []
        history = await client.get_workflow_handle(id, run_id=run.run_id).fetch_history()
        for event in history.events:
            if event.HasField("workflow_execution_signaled_event_attributes"):
                signalled = event.workflow_execution_signaled_event_attributes
                if signalled.signal_name == "report":
                    said = json.loads(signalled.input.payloads[0].data)
                    told.append(f"{said['kind']} {said['fault']}")
        found.append((run.run_id, told))
    return found


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(LONG_S):
            while not await condition():  # noqa: ASYNC110  of other processes
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {LONG_S:.0f} s: {what}") from None
