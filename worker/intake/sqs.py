"""`medevac consume`: messages of SQS queues, on the same way as every other delivery.

A message is deleted only when everything in it that could be read is held durably, and the rest lies with the dead
letters. Until then SQS offers it again: to us after a stop, to another consumer after a kill. Messages of one group of
a FIFO queue are taken one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from activities.failures import redact
from activities.registry import ConfigurationError
from medevac.events.parsing import Payload
from worker import metrics
from worker.installation import open_installation
from worker.intake.assembly import build, run_until_stopped
from worker.intake.delivery import Deliveries, Refused, Speaker, Why
from worker.intake.leading import pause
from worker.settings import Settings
from worker.speakers import Queue

log = logging.getLogger(__name__)

WAIT_S = 10
"""Of a long poll; a stop waits for it."""
BATCH = 10
RECEIVERS = 4
AGAIN_S = (5, 10, 30, 60, 120)
"""How long a message that wasn't held is hidden, by how often it came."""
TROUBLE_S = 5.0
UNREADABLE_S = 60.0
"""A queue that could not be received from for so long isn't being heard."""


class SqsConsumer:
    def __init__(
        self,
        queue: Queue,
        client: Any,
        deliveries: Deliveries,
        wait_s: int = WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client`: boto3's, whose calls block."""
        self._queue = queue
        self._client = client
        self._deliveries = deliveries
        self._wait_s = wait_s
        self._speaker = speaker_of(queue)
        self._clock = clock
        self._received_at = clock()
        self._trouble = ""
        # From the start: one that never could be received from must be told as well.
        metrics.RECEIVED.labels(queue.name).set_to_current_time()
        self._pool = ThreadPoolExecutor(RECEIVERS + BATCH, thread_name_prefix=f"sqs-{queue.name}")

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; what was received is ended first."""
        try:
            await asyncio.gather(*(self._receiver(stop) for _ in range(RECEIVERS)))
        finally:
            self._pool.shutdown(wait=False)

    @property
    def unreadable(self) -> str:
        """Since when and why the queue can't be received from; empty while it can."""
        for_s = self._clock() - self._received_at
        if for_s < UNREADABLE_S:
            return ""
        return f"queue {self._queue.name} could not be received from for {for_s:.0f} s: {self._trouble or 'no answer'}"

    async def _receiver(self, stop: asyncio.Event) -> None:
        trouble = ""
        while not stop.is_set():
            try:
                await self.once()
                trouble = ""
            except Exception as error:
                self._trouble = redact(f"{type(error).__name__}: {error}", 300)
                if type(error).__name__ != trouble:
                    log.error("queue %s can't be read: %s", self._queue.name, error)
                trouble = type(error).__name__
                await pause(stop, TROUBLE_S)

    async def once(self) -> int:
        """One receive, and what it brought, to the end. Returns how many messages."""
        answer = await self._call(
            "receive_message",
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=self._wait_s,
            VisibilityTimeout=self._queue.visibility_s,
            AttributeNames=["ApproximateReceiveCount", "MessageGroupId"],
            MessageAttributeNames=["All"],
        )
        self._received_at, self._trouble = self._clock(), ""
        metrics.RECEIVED.labels(self._queue.name).set_to_current_time()
        messages = answer.get("Messages", [])
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for message in messages:
            # Of a queue that isn't FIFO each stands for itself.
            group = message.get("Attributes", {}).get("MessageGroupId") or message["ReceiptHandle"]
            groups.setdefault(group, []).append(message)
        await asyncio.gather(*(self._group(group) for group in groups.values()))
        return len(messages)

    async def _group(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Messages in their order. The first that isn't held lets all behind it wait and come again after it."""
        left = [message["ReceiptHandle"] for message in messages]
        async with self._hidden(left):
            for message in messages:
                count = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
                try:
                    done = await self._take(message, count)
                    if done:
                        await self._call("delete_message", ReceiptHandle=left.pop(0))
                except Exception as error:
                    # It becomes visible again by itself; what it said is folded or joined the second time.
                    log.error("a message of queue %s: %s", self._queue.name, error)
                    done = False
                metrics.MESSAGES.labels(self._queue.name, "deleted" if done else "again").inc()
                if not done:
                    break
        await self._hide(left, AGAIN_S[min(count, len(AGAIN_S)) - 1])

    async def _take(self, message: Mapping[str, Any], count: int) -> bool:
        """True when the message may be deleted."""
        attributes = message.get("MessageAttributes", {})
        headers = {name.lower(): value["StringValue"] for name, value in attributes.items() if "StringValue" in value}
        payload = Payload(message["Body"].encode(), headers)
        try:
            taken = await self._deliveries.take(self._queue.source, payload, self._speaker)
            if taken.held and taken.kept:
                return True
            reason = "not all of it was held"
        except Refused as refused:
            return refused.kept
        except Exception as error:
            log.exception("a message of queue %s could not be taken", self._queue.name)
            reason = f"it could not be taken: {type(error).__name__}"
        if count < self._queue.tries:
            return False
        reason = f"{reason}, {count} times over"
        return await self._deliveries.refuse(self._queue.source, self._speaker.name, Why.TRIES, reason, payload)

    @asynccontextmanager
    async def _hidden(self, receipts: Sequence[str]) -> AsyncIterator[None]:
        """Keeps others from receiving these messages while we are at them; `receipts` may grow shorter meanwhile."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._queue.visibility_s / 3)
                await self._hide(list(receipts), self._queue.visibility_s)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _hide(self, receipts: Sequence[str], seconds: int) -> None:
        for receipt in receipts:
            try:
                await self._call("change_message_visibility", ReceiptHandle=receipt, VisibilityTimeout=seconds)
            except Exception as error:
                log.warning("queue %s: a message could not be kept hidden: %s", self._queue.name, error)

    async def _call(self, name: str, **arguments: Any) -> Any:
        call = partial(getattr(self._client, name), QueueUrl=self._queue.url, **arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def speaker_of(queue: Queue) -> Speaker:
    return Speaker(queue.name, (queue.source,), queue.clusters, queue.cluster_names)


def make_client(queue: Queue, connect_s: int = 5, read_s: int = WAIT_S + 10, attempts: int = 3) -> Any:
    """Raises `ConfigurationError`."""
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigurationError("receiving from SQS needs boto3; install `medevac[aws]`") from None
    return boto3.client(
        "sqs",
        region_name=queue.region or None,
        endpoint_url=queue.endpoint,
        config=Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"mode": "standard", "max_attempts": attempts},
            max_pool_connections=RECEIVERS + BATCH,
        ),
    )


async def run_consume(settings: Settings) -> int:
    installation = open_installation(settings)
    queues = installation.config.queues
    if not queues:
        raise ConfigurationError("the configuration has no `queues`; name one, or don't start `medevac consume`")
    clients = [make_client(queue) for queue in queues]
    parts = await build(settings, installation, "consume")
    consumers = [SqsConsumer(queue, client, parts.deliveries) for queue, client in zip(queues, clients, strict=True)]
    log.info("receiving from %s", ", ".join(queue.name for queue in queues))
    return await run_until_stopped(
        settings,
        parts,
        [consumer.run for consumer in consumers],
        lambda: "; ".join(filter(None, (consumer.unreadable for consumer in consumers))),
    )
