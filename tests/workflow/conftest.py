from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities import signatures as sig
from medevac.events.event import HealthEvent, Kind
from medevac.faults.catalogue import classify
from tests.workflow.scripted import TIMING, Script
from worker.connection import MedevacPlugin
from workflows.approval import ApprovalWorkflow
from workflows.campaign import CampaignWorkflow
from workflows.case import CaseWorkflow
from workflows.messages import NodeInput, node_workflow_id
from workflows.node import NodeWorkflow

TEMPORAL = Path(sys.executable).parent / "temporal"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[WorkflowEnvironment]:
    env = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(TEMPORAL),
        dev_server_startup_timeout=timedelta(seconds=240),
        plugins=[MedevacPlugin()],
        dev_server_extra_args=["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=150"],
    )
    async with env:
        yield env


@pytest.fixture
def script() -> Script:
    return Script()


def scripted_workers(client: Client, script: Script) -> list[Worker]:
    """One for each of the real worker's queues."""
    return [
        Worker(
            client,
            task_queue=queue.value,
            workflows=[NodeWorkflow, ApprovalWorkflow, CampaignWorkflow, CaseWorkflow]
            if queue is sig.Queue.MAIN
            else [],
            activities=script.activities(),
            max_heartbeat_throttle_interval=timedelta(seconds=0.2),
            default_heartbeat_throttle_interval=timedelta(seconds=0.2),
        )
        for queue in sig.Queue
    ]


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: WorkflowEnvironment, script: Script) -> AsyncIterator[Client]:
    """A worker that follows the script, on the queues of the real one."""
    workers = scripted_workers(server.client, script)
    async with workers[0], workers[1], workers[2]:
        yield server.client


def fault(code: str = "xid/79", **changes: Any) -> HealthEvent:
    now = datetime.now(UTC)
    given = {
        "source": "kmsg",
        "id": str(uuid.uuid4()),
        "dedupe_key": code,
        "kind": Kind.FAULT,
        "fault": code,
        "starts_at": now,
        "received_at": now,
        "boot_id": "boot-1",
        **changes,
    }
    return classify(HealthEvent.model_validate(given))


Start = Callable[..., Awaitable["WorkflowHandle[Any, str]"]]


@pytest.fixture
def start(client: Client) -> Start:
    async def start(event: HealthEvent | None = None) -> WorkflowHandle[Any, str]:
        node = f"n-{uuid.uuid4().hex[:8]}"
        return await client.start_workflow(
            NodeWorkflow.run,
            NodeInput(cluster="c", node=node, timing=TIMING),
            id=node_workflow_id("c", node),
            task_queue=sig.Queue.MAIN.value,
            start_signal="report",
            start_signal_args=[event or fault()],
        )

    return start
