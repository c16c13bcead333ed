"""A fault as the gateway hands it to a node's workflow."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, WorkflowHandle

from activities.signatures import PRODUCTION, Queue
from medevac.events.event import HealthEvent, Kind
from medevac.faults.catalogue import classify
from medevac.fleet.node import Node
from workflows.messages import NODE, NodeInput, node_workflow_id


def fault_of(node: Node) -> HealthEvent:
    now = datetime.now(UTC)
    event = HealthEvent(
        source="kmsg",
        sender="sender",
        id=str(uuid.uuid4()),
        dedupe_key=f"{node.name}|xid/79",
        subject=node.name,
        cluster=node.cluster,
        kind=Kind.FAULT,
        fault="xid/79",
        entities=("gpu:4", "pci:0000:9b:00"),
        starts_at=now,
        received_at=now,
        boot_id=node.machine.boot_id,
        summary="GPU has fallen off the bus.",
    )
    return classify(event)


async def report(client: Client, node: Node, workflow: str = NODE, queue: str = Queue.MAIN) -> WorkflowHandle[Any, str]:
    """Starts the workflow with the fault as its first signal. Another workflow than ours gets an id of its own."""
    ours = workflow == NODE
    handle: WorkflowHandle[Any, str] = await client.start_workflow(
        workflow,
        NodeInput(cluster=node.cluster, node=node.name, timing=PRODUCTION),
        id=node_workflow_id(node.cluster, node.name) if ours else f"{workflow}/{uuid.uuid4().hex}",
        task_queue=queue,
        start_signal="report",
        start_signal_args=[fault_of(node)],
        result_type=str,
    )
    return handle
