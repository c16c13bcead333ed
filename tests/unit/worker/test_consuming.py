"""A queue that can't be received from is said at `/readyz`, in the cloud's own words, until the next receive."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from worker.gateway.services import Services
from worker.intake import sqs
from worker.intake.sqs import UNREADABLE_S, SqsConsumer
from worker.probe import probe_server
from worker.speakers import Queue

QUEUE = Queue(name="aws", url="https://sqs.example/1/q", clusters=("sim-a",))


class Cloud:
    """boto3's client, as far as a receive without messages needs it."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.denies = True
        self._asked, self._stop, self._loop = 0, stop, asyncio.get_running_loop()

    def receive_message(self, **_: Any) -> dict[str, Any]:
        if not self.denies:
            return {}
        self._asked += 1
        if self._asked > 3:
            self._loop.call_soon_threadsafe(self._stop.set)
        raise PermissionError("AccessDenied: not authorized to perform sqs:receivemessage")


async def get(server: Any, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=server.config.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://consume") as client:
        return await client.get(path)


async def test_a_queue_that_cannot_be_received_from_is_not_ready_and_no_reason_to_start_anew(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "TROUBLE_S", 0.01)
    stop, now = asyncio.Event(), [0.0]
    cloud = Cloud(stop)
    consumer = SqsConsumer(QUEUE, cloud, services.deliveries, wait_s=0, clock=lambda: now[0])
    server = probe_server("127.0.0.1", 0, lambda: "", lambda: consumer.unreadable)
    async with asyncio.timeout(20):
        await consumer._receiver(stop)
    assert (await get(server, "/readyz")).status_code == 200, "a hiccup is nobody's business"
    now[0] = UNREADABLE_S + 1
    unready = await get(server, "/readyz")
    assert unready.status_code == 503
    assert "queue aws could not be received from for 61 s: PermissionError: AccessDenied" in unready.text
    assert (await get(server, "/healthz")).status_code == 200, "starting it anew would mend nothing"
    cloud.denies = False
    await consumer.once()
    assert (await get(server, "/readyz")).status_code == 200
