"""Who goes first: worse faults of a node before its backlog, no statement before what it takes back, nobody's repeats
before anybody's news; and what one gateway heard, another knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from activities.ports import Unreadable
from activities.registry import Registry
from activities.storage.database import Database
from activities.storage.intake import IntakeStore
from medevac.events.event import HealthEvent, Kind, Measurement, Statement
from medevac.fleet.node import Node
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, view_of
from worker.gateway.services import Services
from worker.intake.drainer import Drainer
from worker.intake.fold import Fold
from worker.intake.inventory import Inventory
from worker.intake.lanes import BURST, Lanes
from worker.intake.pipeline import Intake
from worker.stores import Stores

NOW = datetime.now(UTC)
SIM_A = ("sim-a",)


def said(node: Node, fault: str, kind: Kind = Kind.FAULT, key: str = "", after_s: float = 0.0) -> HealthEvent:
    at = NOW + timedelta(seconds=after_s)
    return HealthEvent(
        source="generic",
        sender="test",
        id=f"{fault}-{kind}-{after_s}",
        dedupe_key=key or fault,
        subject=node.name,
        kind=kind,
        fault=fault,
        statement=Statement.LEVEL,
        received_at=at,
    )


@pytest.fixture
def other(registry: Registry, stores: Stores, engine: StubEngine, services: Services) -> Intake:
    """A second gateway on the same ledger."""
    inventory = Inventory(registry.clusters)
    return Intake(inventory=inventory, stores=stores, engine=engine, fold=Fold(60.0), threads=services.threads)


@contextmanager
def away(engine: StubEngine, *intakes: Intake) -> Iterator[None]:
    engine.down = True
    yield
    engine.down = False
    for intake in intakes:
        intake._resting_until = 0.0


async def drained(services: Services) -> None:
    services.intake.lanes = Lanes(burst=10_000)
    drainer = Drainer(services.intake, services.inventory, services.stores, services.threads)
    while await drainer.once():
        pass


# -- within one node -------------------------------------------------------------------------------------------


async def test_a_worse_fault_does_not_wait_behind_the_nodes_own_backlog(
    engine: StubEngine, node: Node, services: Services
) -> None:
    with away(engine, services.intake):
        backlog = [said(node, "xid/119", key=f"page-{n}", after_s=n / 10) for n in range(500)]
        await services.intake.take(backlog, SIM_A, NOW)
        await services.intake.take([said(node, "xid/79", after_s=60)], SIM_A, NOW + timedelta(seconds=60))
    assert services.stores.inbox.waiting()[0] == 501
    await Drainer(services.intake, services.inventory, services.stores, services.threads).once()
    heard = [event.fault for _, _, event in engine.reported]
    assert len(heard) <= BURST, "the node's share"
    assert heard[0] == "xid/79"


async def test_a_code_that_the_node_had_not_sent_goes_before_repeats_of_one_as_bad(
    engine: StubEngine, node: Node, services: Services
) -> None:
    with away(engine, services.intake):
        await services.intake.take([said(node, "xid/79", key=f"gpu-{n}") for n in range(100)], SIM_A, NOW)
        await services.intake.take([said(node, "xid/79", key="gpu-100", after_s=1)], SIM_A, NOW)
        await services.intake.take([said(node, "xid/95", after_s=2)], SIM_A, NOW)
    await drained(services)
    heard = [event.dedupe_key for _, _, event in engine.reported]
    assert heard.index("xid/95") <= 1
    assert heard[-1] == "gpu-100"


async def test_a_clear_and_its_fault_keep_their_order_however_bad_the_fault(
    engine: StubEngine, node: Node, services: Services
) -> None:
    engine.live.add(f"node/sim-a/{node.name}")
    with away(engine, services.intake):
        for n, kind in enumerate([Kind.FAULT, Kind.RECOVERED, Kind.FAULT]):
            await services.intake.take([said(node, "xid/79", kind, after_s=n)], SIM_A, NOW + timedelta(seconds=n))
    order: list[Kind] = []
    for name in ("report", "join"):
        original = getattr(engine, name)

        async def listening(cluster: str, node: str, event: HealthEvent, original: object = original) -> object:
            order.append(event.kind)
            return await original(cluster, node, event)  # type: ignore[operator]

        setattr(engine, name, listening)
    await drained(services)
    assert order == [Kind.RECOVERED, Kind.FAULT], "the last word counts"


async def test_a_fault_again_in_one_delivery_is_not_folded_over_its_clear(
    engine: StubEngine, node: Node, services: Services
) -> None:
    fault, clear = said(node, "xid/79"), said(node, "xid/79", Kind.RECOVERED)
    await services.intake.take([fault], SIM_A, NOW)
    results = await services.intake.take([fault, clear, fault, fault], SIM_A, NOW)
    assert [bool(result.reason) for result in results] == [True, False, False, True], "first and last are repeats"
    assert [event.kind for _, _, event in engine.reported] == [Kind.FAULT, Kind.FAULT]
    assert [event.kind for _, _, event in engine.joined] == [Kind.RECOVERED]


# -- over gateways ---------------------------------------------------------------------------------------------


async def test_what_another_gateway_took_back_is_no_repeat_here(
    engine: StubEngine, node: Node, services: Services, other: Intake
) -> None:
    fault, clear = said(node, "xid/79"), said(node, "xid/79", Kind.RECOVERED)
    await services.intake.take([fault], SIM_A, NOW)
    await other.take([clear], SIM_A, NOW + timedelta(seconds=1))
    await services.intake.take([fault], SIM_A, NOW + timedelta(seconds=2))
    assert len(engine.reported) == 2, "the node is ill again"
    [repeated] = await other.take([fault], SIM_A, NOW + timedelta(seconds=3))
    assert "repeat" in repeated.reason, "also where it wasn't heard before"
    assert len(engine.reported) == 2


async def test_a_clear_that_waits_in_the_inbox_makes_the_fault_news(
    engine: StubEngine, node: Node, services: Services, other: Intake
) -> None:
    fault, clear = said(node, "xid/79"), said(node, "xid/79", Kind.RECOVERED)
    await services.intake.take([fault], SIM_A, NOW)
    with away(engine, other):
        await other.take([clear], SIM_A, NOW + timedelta(seconds=1))
    [result] = await services.intake.take([fault], SIM_A, NOW + timedelta(seconds=2))
    assert "inbox" in result.reason
    await drained(services)
    assert [event.kind for _, _, event in engine.joined] == [Kind.RECOVERED]
    assert len(engine.reported) == 2


# -- storms ----------------------------------------------------------------------------------------------------


async def test_repeats_at_once_cost_a_few_looks_and_no_signal(
    engine: StubEngine, node: Node, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    await services.intake.take([said(node, "xid/79")], SIM_A, NOW)
    looks = 0
    glance = IntakeStore.glance

    def counted(self: IntakeStore, *arguments: object) -> object:
        nonlocal looks
        looks += 1
        return glance(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(IntakeStore, "glance", counted)
    storm = (services.intake.take([said(node, "xid/79", after_s=n / 1_000)], SIM_A, NOW) for n in range(400))
    results = await asyncio.gather(*storm)
    assert all("repeat" in result.reason for [result] in results)
    assert len(engine.reported) == 1
    assert looks < 20


async def test_what_opens_nothing_is_counted_until_there_is_an_incident_to_tell(
    engine: StubEngine, node: Node, services: Services, stores: Stores
) -> None:
    """An application's own faults come by the hundred."""
    for n in range(100):
        [result] = await services.intake.take([said(node, "xid/13", after_s=n / 1_000)], SIM_A, NOW)
        assert result.outcome == "recorded"
    await services.intake.flush()
    assert len(stores.ledger.events_since(NOW - timedelta(days=1))) < 50, "by and by, with their number"
    engine.live.add(f"node/sim-a/{node.name}")
    stores.ledger.upsert_incident(view_of(node))
    for _ in range(2):
        await services.intake.take([said(node, "xid/13", after_s=1)], SIM_A, NOW + timedelta(seconds=1))
    assert len(engine.joined) == 1


async def test_the_same_news_at_once_is_signalled_once(engine: StubEngine, node: Node, services: Services) -> None:
    events = [said(node, "xid/79", after_s=n / 1_000) for n in range(50)]
    await asyncio.gather(*(services.intake.take([event], SIM_A, NOW) for event in events))
    assert len(engine.reported) == 1


async def test_a_stop_writes_the_lines_of_repeats(
    engine: StubEngine, node: Node, services: Services, stores: Stores
) -> None:
    for n in range(10):
        await services.intake.take([said(node, "xid/79", after_s=n / 1_000)], SIM_A, NOW)
    assert len(stores.ledger.events_since(NOW - timedelta(days=1))) == 1, "the others come a little later"
    await services.intake.close()
    lines = [row.outcome for row in stores.ledger.events_since(NOW - timedelta(days=1))]
    assert sorted(lines) == ["accepted", "joined: a repeat, already signalled, 9 times"]


# -- measurements ----------------------------------------------------------------------------------------------


def sample(node: Node, value: float, gpu: int, n: int) -> HealthEvent:
    return HealthEvent(
        source="generic",
        sender="test",
        id=f"{node.name}-{gpu}-{n}",
        dedupe_key=f"{node.name}-{gpu}-temp",
        subject=node.name,
        kind=Kind.MEASUREMENT,
        entities=(f"gpu:{gpu}",),
        measurement=Measurement(name="gpu_temp", value=value, unit="C", window_s=10),
        received_at=NOW,
    )


async def test_ten_thousand_measurements_are_judged_in_one_transaction(
    engine: StubEngine, world: World, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = 0
    transaction = Database.transaction

    def counted(self: Database) -> object:
        nonlocal transactions
        transactions += 1
        return transaction(self)

    monkeypatch.setattr(Database, "transaction", counted)
    nodes = [n for n in world.nodes("sim-a") if n.gpus]
    hot, samples = nodes[0], []
    for n in range(10_000):
        node = nodes[n % len(nodes)]
        samples.append(sample(node, 95.0 if node is hot else 60.0, n // len(nodes) % 8, n))
    results = await services.intake.take(samples, SIM_A, NOW)
    assert transactions <= 4, "the judging, and lines of the outcomes by some thousands"
    assert {result.node for result in results if result.outcome in ("accepted", "joined")} == {hot.name}
    assert {name for _, name, _ in engine.reported} == {hot.name}


async def test_a_clear_is_not_lost_with_the_process_that_judged_it(
    engine: StubEngine, node: Node, services: Services, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, so it must be held when the state moves on."""
    for n in range(2):
        await services.intake.take([sample(node, 95.0, 0, n)], SIM_A, NOW)
    assert [event.kind for _, _, event in engine.reported] == [Kind.FAULT]
    await services.intake.take([sample(node, 60.0, 0, 2)], SIM_A, NOW)
    with monkeypatch.context() as killed:

        def dies(*_: object) -> None:
            raise Unreadable("killed")

        killed.setattr(IntakeStore, "commit", dies)
        await services.intake.take([sample(node, 60.0, 0, 3)], SIM_A, NOW + timedelta(seconds=2))
    await drained(services)
    assert [event.kind for _, _, event in engine.joined] == [Kind.RECOVERED]
