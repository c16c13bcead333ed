"""Gateways and the consumer killed with -9 in the middle of deliveries, while a worker heals a simulated fleet on a
real Temporal server: no incident is lost, and none is there twice.

`MEDEVAC_KILLS` sets how often each of the three processes is killed; the moments are seeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa
from moto.server import ThreadedMotoServer

from activities.storage.tables import events
from medevac.fleet.node import Node
from medevac.incident import IncidentView
from simulation import senders
from tests.integration.intake.rig import Process, Rig, delivered, heard, until
from worker.home import Home
from workflows.messages import NODE, node_workflow_id

KILLS = int(os.environ.get("MEDEVAC_KILLS", "14"))
WITHOUT_TEMPORAL = KILLS // 6
"""Of the kills of each gateway; until then all goes to the inbox."""
REGION = "us-east-1"
AWS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}


@pytest.fixture
def queue() -> Iterator[tuple[Any, str, str]]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "sqs", REGION, endpoint_url=endpoint, aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    url = client.create_queue(QueueName="gpu-health")["QueueUrl"]
    yield client, url, endpoint
    server.stop()


@pytest.fixture
async def rig(tmp_path: Path, queue: tuple[Any, str, str]) -> AsyncIterator[Rig]:
    _, url, endpoint = queue
    written = f"queues:\n  - {{name: queue, url: '{url}', region: {REGION}, endpoint: '{endpoint}', source: kmsg, "
    written += "clusters: [sim-a], visibility_s: 3, tries: 1000}\n"
    rig = Rig(tmp_path, Home(tmp_path).demo_policy(), written, nodes=3 * KILLS + 12)
    yield rig
    await rig.close()


@pytest.mark.timeout(2_400)
async def test_killed_gateways_and_consumers_lose_and_double_nothing(rig: Rig, queue: tuple[Any, str, str]) -> None:
    chance = random.Random(7)
    sqs, queue_url, _ = queue
    gateways = [Process(rig, "gateway", f"gateway-{n}") for n in range(2)]
    consumer = Process(rig, "consume", "consumer", **AWS)
    worker = Process(rig, "worker", "worker")
    urls = [gateway.url for gateway in gateways]
    nodes = rig.nodes()[: 3 * KILLS]
    killed: Counter[str] = Counter()

    async def by_http(gateway: Process, mine: list[Node]) -> None:
        await gateway.up()
        for n, node in enumerate(mine):
            if n == WITHOUT_TEMPORAL and gateway is gateways[0]:
                await rig.start_temporal()
                await worker.up()
            sent = senders.kmsg_xid(node, 79, datetime.now(UTC))
            # Two senders report it, each until it is taken.
            sending = [asyncio.create_task(delivered(rig, urls, sent, chance)) for _ in range(2)]
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            assert await gateway.end(signal.SIGKILL) == -signal.SIGKILL
            killed["gateway"] += 1
            await gateway.up()
            await asyncio.gather(*sending)

    def by_queue() -> int:
        """How many statements the consumer has heard."""
        query = sa.select(sa.func.count()).where(events.c.sender == "queue")
        with rig.stores.database.reading() as connection:
            return connection.execute(query).scalar_one()

    async def by_sqs(mine: list[Node]) -> None:
        for node in mine:
            body = senders.kmsg_xid(node, 79, datetime.now(UTC)).body.decode()
            for _ in range(4):
                await asyncio.to_thread(sqs.send_message, QueueUrl=queue_url, MessageBody=body)
            before = await asyncio.to_thread(by_queue)
            await consumer.up()
            # In the middle of a batch: what comes first of it is held, what comes behind it is on its way.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3):
                    while await asyncio.to_thread(by_queue) == before:  # noqa: ASYNC110  of another process
                        await asyncio.sleep(0.02)
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            assert await consumer.end(signal.SIGKILL) == -signal.SIGKILL
            killed["consumer"] += 1
        await consumer.up()

    await asyncio.gather(
        by_http(gateways[0], nodes[:KILLS]), by_http(gateways[1], nodes[KILLS : 2 * KILLS]), by_sqs(nodes[2 * KILLS :])
    )
    assert killed == {"gateway": 2 * KILLS, "consumer": KILLS}

    async def all_taken() -> bool:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = await asyncio.to_thread(sqs.get_queue_attributes, QueueUrl=queue_url, AttributeNames=names)
        return not any(map(int, left["Attributes"].values())) and not rig.stores.inbox.waiting()[0]

    await until(all_taken, "queue and inbox empty")
    client = await rig.client()
    once = {node_workflow_id(node.cluster, node.name): 1 for node in nodes}
    runs: Counter[str] = Counter()

    async def all_listed() -> bool:
        runs.clear()
        async for run in client.list_workflows(f"WorkflowType = '{NODE}'"):
            runs[run.id] += 1
        return len(runs) >= len(once)

    await until(all_listed, "an incident of each node in Temporal")
    assert runs == once

    async def all_written() -> bool:
        return len(await asyncio.to_thread(written)) >= len(nodes)

    def written() -> list[IncidentView]:
        return rig.stores.ledger.incidents(open_only=False, limit=10 * len(nodes))

    await until(all_written, "an incident of each node in the ledger")
    assert Counter(view.workflow_id for view in written()) == once
    for node in chance.sample(nodes, 10):
        [(_, told)] = await heard(client, node)
        assert set(told) == {"fault xid/79"}
