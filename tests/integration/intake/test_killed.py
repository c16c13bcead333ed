"""Gateway processes killed with -9 in the middle of deliveries, on a real Temporal server: nothing that was answered
202 is lost, and nothing that was delivered opens two incidents.

`MEDEVAC_KILLS` sets how often; the moments are seeded.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from medevac.fleet.node import Node
from simulation import senders
from simulation.layout import INSTANT, Layout
from simulation.world import World
from worker.children import Child, environment, free_port
from worker.connection import MedevacPlugin
from worker.embedded import http_ready, temporal_binary, temporal_ready
from worker.home import SENDER, Home
from worker.installation import find_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.setup import prepare_ledger
from worker.stores import Stores, open_stores
from workflows.messages import node_workflow_id

KILLS = int(os.environ.get("MEDEVAC_KILLS", "3"))
LONG_S = 60.0
AT_ONCE = 4


class Rig:
    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.make(Layout(nodes=64, durations=INSTANT))
        self.settings = Settings(config=self.home.config, data_dir=path)
        self.stores: Stores = open_stores(self.settings.database)
        self.temporal_port, self.gateway_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.gateway_port}"
        self.address = f"127.0.0.1:{self.temporal_port}"
        env = environment(
            TEMPORAL_ADDRESS=self.address,
            TEMPORAL_NAMESPACE="default",
            MEDEVAC_CONFIG=str(self.home.config),
            MEDEVAC_DATA_DIR=str(path),
            MEDEVAC_GATEWAY_PORT=str(self.gateway_port),
        )
        server = (temporal_binary(), "server", "start-dev", "--headless", "--port", str(self.temporal_port))
        files = ("--db-filename", str(path / "temporal.sqlite"), "--log-level", "error")
        self.temporal = Child("temporal", [*server, *files], env, path / "temporal.log")
        self.gateway = Child("gateway", [sys.executable, "-m", "worker.cli", "gateway"], env, path / "gateway.log")

    @property
    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.home.token(SENDER)}"}

    async def up(self) -> None:
        await self.gateway.start()
        await self.gateway.until(lambda: http_ready(f"{self.url}/healthz"), LONG_S)

    async def kill(self) -> None:
        self.gateway.kill()
        await self.gateway.wait()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    prepare_ledger(rig.stores, build_registry(find_config(rig.settings), tmp_path), None)
    yield rig
    await rig.gateway.stop()
    await rig.temporal.stop()
    rig.stores.database.close()


async def delivered(rig: Rig, node: Node) -> None:
    """As a sender does: again and again, until somebody says 202."""
    sent = senders.kmsg_xid(node, 79, datetime.now(UTC))
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        while True:
            try:
                answer = await client.post(
                    rig.url + sent.path, content=sent.body, headers={**sent.headers, **rig.token}
                )
            except httpx.HTTPError:
                await asyncio.sleep(0.05)
                continue
            if answer.status_code == 202:
                return
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.2)


async def heard(rig: Rig, nodes: list[Node]) -> dict[str, tuple[int, set[str]]]:
    """Of each node: how many incidents, and which faults they were told of."""
    client = await Client.connect(rig.address, plugins=[MedevacPlugin()])
    found = {}
    for node in nodes:
        id = node_workflow_id(node.cluster, node.name)
        runs = [run.run_id async for run in client.list_workflows(f"WorkflowId = '{id}'")]
        history = await client.get_workflow_handle(id).fetch_history()
        said = {
            str(event.workflow_execution_signaled_event_attributes.input)
            for event in history.events
            if event.HasField("workflow_execution_signaled_event_attributes")
        }
        found[node.name] = len(runs), {"xid/79" for text in said if "xid/79" in text}
    return found


async def drained(rig: Rig) -> None:
    async with asyncio.timeout(LONG_S):
        while (await asyncio.to_thread(rig.stores.inbox.waiting))[0]:  # noqa: ASYNC110  of another process
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("without_temporal", [False, True], ids=["to-temporal", "to-the-inbox-first"])
async def test_a_killed_gateway_loses_and_doubles_nothing(rig: Rig, without_temporal: bool) -> None:
    chance = random.Random(7)
    with World(rig.home.world) as world:
        nodes = [n for n in world.nodes("sim-a") if n.gpus][: AT_ONCE * (KILLS + 1)]
    if not without_temporal:
        await rig.temporal.start()
        await rig.temporal.until(lambda: temporal_ready(rig.address, 30), LONG_S)
    await rig.up()
    waiting = list(nodes)
    for _ in range(KILLS):
        some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        sending = [asyncio.create_task(delivered(rig, node)) for node in some]
        await asyncio.sleep(chance.uniform(0.0, 0.6))
        await rig.kill()
        await rig.up()
        await asyncio.gather(*sending)
    if without_temporal:
        assert (await asyncio.to_thread(rig.stores.inbox.waiting))[0] > 0
        await rig.temporal.start()
        await rig.temporal.until(lambda: temporal_ready(rig.address, 30), LONG_S)
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        await rig.kill()
        await rig.up()
    await asyncio.gather(*(delivered(rig, node) for node in waiting))
    await drained(rig)
    assert await heard(rig, nodes) == {node.name: (1, {"xid/79"}) for node in nodes}
