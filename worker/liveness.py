"""Alive means polling: a worker process that Temporal has not seen poll lately is dead, whatever it feels."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from worker import metrics

log = logging.getLogger(__name__)

POLL_AGE = timedelta(seconds=80)
"""A poll lasts up to 60 s, so one that works is never older than this."""
ASK_EVERY_S = 10.0
FRESH_S = 45.0
"""How long an answer counts while Temporal can't be asked."""


class Liveness:
    def __init__(self, client: Client, queues: dict[str, tuple[TaskQueueType.ValueType, ...]]) -> None:
        """`queues`: what this process polls, by kind of task."""
        self._client = client
        self._queues = queues
        self._seen_at = time.monotonic()
        self._trouble = "not seen polling yet"

    @property
    def trouble(self) -> str:
        """Empty while all queues are polled by this process; else which is not, or why nobody knows."""
        if self._trouble:
            return self._trouble
        age = time.monotonic() - self._seen_at
        return f"Temporal could not be asked for {age:.0f} s" if age > FRESH_S else ""

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                self._trouble = await self._look()
                self._seen_at = time.monotonic()
            except RPCError as error:
                log.warning("cannot ask Temporal whether this worker polls: %s", error)
            await asyncio.sleep(ASK_EVERY_S if not self._trouble else 1.0)

    async def _look(self) -> str:
        idle = []
        for queue, kinds in self._queues.items():
            polled = all([await self._polled(queue, kind) for kind in kinds])
            metrics.POLLERS.labels(queue).set(polled)
            if not polled:
                idle.append(queue)
        return f"not polling {', '.join(idle)}" if idle else ""

    async def _polled(self, queue: str, kind: TaskQueueType.ValueType) -> bool:
        answer = await self._client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
            ),
            timeout=timedelta(seconds=5),
        )
        oldest = datetime.now(UTC) - POLL_AGE
        return any(
            poller.identity == self._client.identity and poller.last_access_time.ToDatetime(tzinfo=UTC) >= oldest
            for poller in answer.pollers
        )
