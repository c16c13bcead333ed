"""Monitors that must be asked: gpud, and an Alertmanager that held alerts back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from medevac.fleet.node import Node
from simulation import senders
from simulation.world import World
from tests.unit.worker.conftest import SENDER, StubEngine
from worker.config import Poller, Target
from worker.gateway import services as services_module
from worker.gateway.services import Services
from worker.intake import poller as polling
from worker.intake.poller import GpudPoller, asks_back

NOW = datetime.now(UTC)
UNHEALTHY = [
    {
        "component": "accelerator-nvidia-error-xid",
        "states": [
            {
                "time": "2026-03-01T12:00:00Z",
                "name": "error_xid",
                "health": "Unhealthy",
                "reason": "XID 79 (GPU has fallen off the bus) detected on 0000:9b:00",
            }
        ],
    }
]


def poller(*targets: Target) -> Poller:
    return Poller(name="gpud", clusters=("sim-a",), targets=targets, every_s=3600)


def answering(handler: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(handler))


async def test_a_gpud_answer_is_about_the_node_that_was_asked(
    services: Services, engine: StubEngine, node: Node
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "broken":
            return httpx.Response(500)
        if request.url.host == "huge":
            return httpx.Response(200, content=b"x" * (polling.MAX_PAYLOAD_BYTES + 1))
        return httpx.Response(200, json=UNHEALTHY if request.url.host == "sick" else "no component")

    targets = [Target(url=f"https://{host}:15132", node=node.name) for host in ("broken", "huge", "odd", "sick")]
    asking = GpudPoller(poller(*targets), services.deliveries, answering(handler))
    before = polled()
    await asking.once()
    await asking.once()
    assert {(name, event.sender) for _, name, event in engine.reported} == {(node.name, "gpud")}
    assert polled() - before == {"silent": 4, "refused": 2, "taken": 2}


def polled() -> Counter[str]:
    """Of the whole process: other tests poll as well."""
    name = "medevac_polls_total"
    outcomes = ("silent", "refused", "taken")
    return Counter({o: int(REGISTRY.get_sample_value(name, {"poller": "gpud", "outcome": o}) or 0) for o in outcomes})


async def test_a_poller_stops_when_it_is_told(services: Services, node: Node) -> None:
    asked = asyncio.Event()

    def handler(request: httpx.Request) -> httpx.Response:
        asked.set()
        return httpx.Response(200, json=[])

    stop = asyncio.Event()
    asking = GpudPoller(poller(Target(url="https://n:1", node=node.name)), services.deliveries, answering(handler))
    running = asyncio.create_task(asking.run(stop))
    await asked.wait()
    stop.set()
    async with asyncio.timeout(10):
        await running


@pytest.mark.parametrize("reachable", [True, False])
async def test_alerts_that_were_held_back_are_asked_for(
    client: httpx.AsyncClient,
    services: Services,
    engine: StubEngine,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    reachable: bool,
) -> None:
    shown, hidden = [n for n in world.nodes("sim-a") if n.gpus][:2]
    listed = [
        {**json.loads(senders.alertmanager_xid(n, 79, NOW).body)["alerts"][0], "status": {"state": "active"}}
        for n in (shown, hidden)
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://alertmanager:9093/api/v2/alerts"
        return httpx.Response(200, json=listed) if reachable else httpx.Response(503)

    sender = services.senders.named("prometheus")
    assert sender is not None
    asking = sender.model_copy(update={"alertmanager": "http://alertmanager:9093/"})
    more = asks_back(asking, lambda: answering(handler))
    monkeypatch.setattr(services_module, "asks_back", lambda _: more)
    body = {**json.loads(senders.alertmanager_xid(shown, 79, NOW).body), "truncatedAlerts": 1}
    answer = await client.post("/v1/events/alertmanager", json=body, headers=SENDER)
    assert answer.status_code == 202, answer.text
    heard = {name for _, name, _ in engine.reported}
    assert heard == ({shown.name, hidden.name} if reachable else {shown.name})
    assert answer.json()["truncated"] == (0 if reachable else 1)


async def test_who_names_no_alertmanager_is_not_asked(services: Services) -> None:
    sender = services.senders.named("prometheus")
    assert sender is not None
    assert asks_back(sender) is None
    assert replace(services).speaker("prometheus") is not None
