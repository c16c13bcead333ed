"""202 means durably held: by Temporal, or by the inbox until Temporal takes it. 503 only when neither can."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from activities.ports import Unreadable
from activities.storage.intake import IntakeStore
from medevac.events.event import HealthEvent, Kind
from medevac.fleet.node import Node
from simulation import senders
from simulation.world import World
from tests.unit.worker.conftest import SENDER, StubEngine
from worker.gateway.services import Services
from worker.intake.drainer import AGAIN_AFTER, LEAD_FOR_S, MOST_TRIES, Drainer
from worker.intake.held import UNKNOWN_EVERY, UNKNOWN_FOR
from worker.intake.lanes import BURST, Lanes
from worker.intake.pipeline import TEMPORAL_S
from worker.stores import Stores

NOW = datetime.now(UTC)


async def deliver(client: httpx.AsyncClient, sent: senders.Delivery) -> httpx.Response:
    return await client.post(sent.path, content=sent.body, headers={**sent.headers, **SENDER})


def waiting(stores: Stores) -> int:
    return stores.inbox.waiting()[0]


def seen(stores: Stores) -> list[str]:
    return [row.outcome for row in stores.ledger.events_since(NOW - timedelta(days=1))]


@dataclass
class Clock:
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def drainer(services: Services, clock: Clock) -> Drainer:
    return Drainer(services.intake, services.inventory, services.stores, services.threads, clock)


def rested(services: Services) -> None:
    """As if `REST_S` had passed since Temporal last failed."""
    services.intake._resting_until = 0.0


async def drained(drainer: Drainer) -> None:
    while await drainer.once():
        pass


async def test_without_temporal_the_inbox_holds_it_and_brings_it_on(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, services: Services, drainer: Drainer
) -> None:
    engine.down = True
    sent = senders.alertmanager_xid(node, 79, NOW)
    answer = await deliver(client, sent)
    assert answer.status_code == 202, answer.text
    [part] = answer.json()["parts"]
    assert part["outcome"] == "accepted"
    assert "inbox" in part["reason"]
    assert (waiting(stores), engine.reported) == (1, [])
    await drained(drainer)
    assert waiting(stores) == 1, "Temporal is still down"
    engine.down = False
    rested(services)
    await drained(drainer)
    assert [(cluster, name, event.fault) for cluster, name, event in engine.reported] == [
        ("sim-a", node.name, "xid/79")
    ]
    assert engine.reported[0][2].received_at is not None
    assert waiting(stores) == 0
    assert seen(stores)[0].startswith("from the inbox: accepted")


async def test_a_node_whose_events_wait_is_not_overtaken(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, services: Services, drainer: Drainer
) -> None:
    engine.down = True
    await deliver(client, senders.alertmanager_xid(node, 79, NOW))
    engine.down = False
    rested(services)
    resolved = senders.alertmanager_xid(node, 79, NOW, resolved_at=NOW + timedelta(minutes=5))
    assert (await deliver(client, resolved)).status_code == 202
    assert (engine.reported, engine.joined) == ([], []), "the clear must not come before its fault"
    await drained(drainer)
    assert [event.kind for _, _, event in engine.reported] == [Kind.FAULT]
    assert [event.kind for _, _, event in engine.joined] == [Kind.RECOVERED]


async def test_fault_clear_fault_ends_as_a_fault(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, services: Services, drainer: Drainer
) -> None:
    engine.down = True
    firing = senders.alertmanager_xid(node, 79, NOW)
    for sent in (firing, senders.alertmanager_xid(node, 79, NOW, resolved_at=NOW), firing):
        await deliver(client, sent)
    assert waiting(stores) == 2, "one statement waits once"
    engine.down = False
    engine.live.add(f"node/sim-a/{node.name}")
    rested(services)
    await drained(drainer)
    told = [event.kind for _, _, event in (*engine.joined, *engine.reported)]
    assert told == [Kind.RECOVERED, Kind.FAULT], "the last word counts"


async def test_temporal_is_not_asked_again_for_each_part_while_it_is_down(
    client: httpx.AsyncClient, engine: StubEngine, world: World, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def hangs(self: StubEngine, cluster: str, node: str, event: HealthEvent) -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(3600)

    monkeypatch.setattr(StubEngine, "report", hangs)
    nodes = [n for n in world.nodes("sim-a") if n.gpus]
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(deliver(client, senders.kmsg_xid(n, 79, NOW)) for n in nodes))
    assert {answer.status_code for answer in answers} == {202}
    assert waiting(stores) == len(nodes)
    assert asyncio.get_running_loop().time() - began < 10 * TEMPORAL_S
    assert asked <= len(nodes)


async def test_without_temporal_and_ledger_the_sender_must_come_again(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.down = True
    sent = senders.alertmanager_xid(node, 79, NOW)
    with monkeypatch.context() as broken:

        def unreadable(*_: object) -> None:
            raise Unreadable("disk full")

        broken.setattr(IntakeStore, "commit", unreadable)
        answer = await deliver(client, sent)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["parts"][0]["outcome"] == "unavailable"
    assert waiting(stores) == 0
    again = await deliver(client, sent)
    assert again.status_code == 202
    assert waiting(stores) == 1, "a failed delivery is not folded away"


async def test_without_the_ledger_only_what_temporal_holds_is_taken(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.intake.policy()  # as any delivery before has

    def unreadable(*_: object) -> None:
        raise Unreadable("connection refused")

    for name in ("commit", "glance"):
        monkeypatch.setattr(IntakeStore, name, unreadable)
    monkeypatch.setattr(type(services.stores.policies), "active", unreadable)
    recorded = await deliver(client, senders.alertmanager_xid(node, 13, NOW))
    assert recorded.status_code == 503, "only the ledger would hold it"
    signalled = await deliver(client, senders.alertmanager_xid(node, 79, NOW))
    assert signalled.status_code == 202, "Temporal holds it"
    assert len(engine.reported) == 1


# -- unknown nodes ---------------------------------------------------------------------------------------------


async def test_an_unknown_node_is_tried_again_and_then_recorded(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, drainer: Drainer, clock: Clock
) -> None:
    stranger = node.model_copy(update={"name": "gpu-of-another-house"})
    answer = await deliver(client, senders.kmsg_xid(stranger, 79, NOW))
    assert answer.status_code == 202
    assert "15 minutes" in answer.json()["parts"][0]["reason"]
    await drained(drainer)
    assert waiting(stores) == 1
    clock.at += UNKNOWN_FOR / 2
    await drained(drainer)
    assert waiting(stores) == 1
    clock.at += UNKNOWN_FOR
    await drained(drainer)
    assert waiting(stores) == 0
    assert engine.reported == []
    assert seen(stores)[0].startswith("from the inbox: unknown_node")


async def test_a_gpu_that_nobody_knows_yet_is_tried_again_too(
    client: httpx.AsyncClient,
    engine: StubEngine,
    node: Node,
    services: Services,
    stores: Stores,
    drainer: Drainer,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = json.loads(senders.alertmanager_xid(node, 79, NOW).body)
    uuid = "GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b"
    body["alerts"][0]["labels"] = {"alertname": "Xid", "UUID": uuid, "err_code": "79"}
    answer = await client.post("/v1/events/alertmanager", json=body, headers=SENDER)
    [part] = answer.json()["parts"]
    assert (answer.status_code, part["outcome"]) == (202, "unknown_node")
    assert f"no node is known to hold GPU {uuid}" in part["reason"]
    assert "15 minutes" in part["reason"]
    assert waiting(stores) == 1

    listed = World.nodes

    def known(*asked: Any) -> list[Node]:
        return [n.model_copy(update={"gpu_ids": (uuid,)}) if n.name == node.name else n for n in listed(*asked)]

    monkeypatch.setattr(World, "nodes", known)
    services.inventory._clock = lambda: time.monotonic() + 60.0
    clock.at += 2 * UNKNOWN_EVERY
    await drained(drainer)
    [(_, name, event)] = engine.reported
    assert (name, event.fault, event.actionable) == (node.name, "xid/79", True)
    assert waiting(stores) == 0


async def test_a_node_that_joins_late_is_still_heard_in_order(
    client: httpx.AsyncClient,
    engine: StubEngine,
    node: Node,
    services: Services,
    stores: Stores,
    drainer: Drainer,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as unknown:
        unknown.setattr("worker.intake.inventory._meant", lambda *_: ([], True))
        await deliver(client, senders.kmsg_xid(node, 79, NOW))
    assert engine.reported == []
    await deliver(client, senders.kmsg_xid(node, 48, NOW))
    assert engine.reported == [], "the later one waits behind the earlier"
    clock.at += 2 * UNKNOWN_EVERY
    await drained(drainer)
    assert [event.fault for _, _, event in engine.reported] == ["xid/79", "xid/48"]
    assert waiting(stores) == 0


async def test_junk_names_do_not_fill_the_inbox(
    client: httpx.AsyncClient, node: Node, stores: Stores, services: Services
) -> None:
    services.intake._resolver.strangers._most = 5
    for n in range(10):
        stranger = node.model_copy(update={"name": f"junk-{n}"})
        assert (await deliver(client, senders.kmsg_xid(stranger, 79, NOW))).status_code == 202
    assert waiting(stores) == 5
    assert len(seen(stores)) == 10, "all are recorded"


# -- storms ----------------------------------------------------------------------------------------------------


async def test_a_noisy_node_is_paced_and_nothing_of_it_is_lost(
    engine: StubEngine, node: Node, services: Services, stores: Stores, drainer: Drainer
) -> None:
    services.intake.lanes = Lanes(burst=5, per_s=0.0)
    events = [event_of(node, f"other/{n}") for n in range(20)]
    results = await services.intake.take(events, ("sim-a",), NOW)
    assert {result.outcome for result in results} <= {"accepted", "joined"}
    assert len(engine.reported) == 5
    assert waiting(stores) == 15
    services.intake.lanes = Lanes()
    await drained(drainer)
    assert [event.fault for _, _, event in engine.reported] == [event.fault for event in events], "in order"
    assert waiting(stores) == 0


async def test_a_quiet_node_does_not_wait_behind_a_noisy_ones_backlog(
    engine: StubEngine, world: World, services: Services, stores: Stores, drainer: Drainer
) -> None:
    noisy, quiet = [n for n in world.nodes("sim-a") if n.gpus][:2]
    engine.down = True
    await services.intake.take([event_of(noisy, f"other/{n}") for n in range(200)], ("sim-a",), NOW)
    await services.intake.take([event_of(quiet, "other/79")], ("sim-a",), NOW)
    engine.down = False
    rested(services)
    await drainer.once()
    assert quiet.name in {name for _, name, _ in engine.reported[: BURST + 1]}


def event_of(node: Node, fault: str) -> HealthEvent:
    return HealthEvent(
        source="generic",
        sender="test",
        id=f"{node.name}-{fault}",
        dedupe_key=f"{node.name}-{fault}",
        subject=node.name,
        kind=Kind.FAULT,
        fault=fault,
        received_at=NOW,
    )


async def test_ten_thousand_parts_are_held_in_one_go(
    engine: StubEngine, world: World, services: Services, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: Callable[..., object] = StubEngine.report

    async def report(self: StubEngine, cluster: str, node: str, event: HealthEvent) -> None:
        await asyncio.sleep(0.02)
        await slow(self, cluster, node, event)  # type: ignore[misc]

    monkeypatch.setattr(StubEngine, "report", report)
    nodes = [n for n in world.nodes("sim-a") if n.gpus]
    events = [event_of(nodes[n % len(nodes)], f"other/{n}") for n in range(10_000)]
    results = await services.intake.take(events, ("sim-a",), NOW)
    assert {result.outcome for result in results} <= {"accepted", "joined", "recorded"}
    held = {event.id for _, _, event in engine.reported}
    while items := stores.inbox.oldest(5_000):
        held |= {item.body["event"]["id"] for item in items}  # type: ignore[index,call-overload]
        stores.inbox.done([item.id for item in items])
    recorded = {result.id for result in results if result.outcome == "recorded"}
    assert held | recorded == {event.id for event in events}


# -- the drainer -----------------------------------------------------------------------------------------------


async def test_one_process_drains_and_another_follows_when_it_is_gone(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, services: Services, clock: Clock
) -> None:
    first = Drainer(services.intake, services.inventory, stores, services.threads, clock)
    second = Drainer(services.intake, services.inventory, stores, services.threads, clock)
    await first.once()
    engine.down = True
    await deliver(client, senders.alertmanager_xid(node, 79, NOW))
    engine.down = False
    rested(services)
    assert not await second.once()
    assert engine.reported == []
    clock.at += timedelta(seconds=LEAD_FOR_S + 1)
    await drained(second)
    assert len(engine.reported) == 1


async def test_killed_between_signal_and_ledger_it_is_brought_again(
    client: httpx.AsyncClient,
    engine: StubEngine,
    node: Node,
    stores: Stores,
    services: Services,
    drainer: Drainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine.down = True
    await deliver(client, senders.alertmanager_xid(node, 79, NOW))
    engine.down = False
    rested(services)
    with monkeypatch.context() as killed:

        def dies(*_: object) -> None:
            raise Unreadable("killed")

        killed.setattr(IntakeStore, "settle", dies)
        with pytest.raises(Unreadable):
            await drainer.once()
    assert waiting(stores) == 1
    await drained(drainer)
    assert waiting(stores) == 0
    assert {event.id for _, _, event in engine.reported} == {engine.reported[0][2].id}


async def test_one_that_never_passes_ends_with_the_dead_letters_and_blocks_nobody(
    engine: StubEngine, world: World, services: Services, stores: Stores, drainer: Drainer, clock: Clock
) -> None:
    poison, fine = [n for n in world.nodes("sim-a") if n.gpus][:2]
    engine.down = True
    await services.intake.take([event_of(poison, "other/79")], ("sim-a",), NOW)
    engine.down = False
    rested(services)
    passed = engine.report

    async def report(cluster: str, node: str, event: HealthEvent) -> None:
        if node == poison.name:
            raise ValueError("no workflow can hear this")
        await passed(cluster, node, event)

    engine.report = report  # type: ignore[method-assign]
    services.intake.lanes = Lanes(burst=1_000)
    for n in range(MOST_TRIES + 2):
        engine.down = True
        await services.intake.take([event_of(fine, f"other/{n}")], ("sim-a",), NOW)
        engine.down = False
        rested(services)
        await drainer.once()
        clock.at += AGAIN_AFTER
    assert waiting(stores) == 0
    [letter] = stores.dead_letters.listed()
    assert letter.why == "stuck"
    assert {name for _, name, _ in engine.reported} == {fine.name}


def test_the_pace_lets_a_burst_pass_and_then_so_many_a_second() -> None:
    at = 0.0
    lanes = Lanes(burst=3, per_s=2.0, clock=lambda: at)
    assert [lanes.may_signal("a") for _ in range(5)] == [True, True, True, False, False]
    assert lanes.may_signal("b"), "another node has its own share"
    at = 1.0
    assert [lanes.may_signal("a") for _ in range(3)] == [True, True, False]
