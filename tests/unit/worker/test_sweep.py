"""The sweep pages once, closes what is gone, and takes back what nobody holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.failures import Bounded
from activities.folding import Folding
from activities.registry import Registry
from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.lease import Granted, LeaseRequest
from medevac.fleet.node import Node
from medevac.incident import End, Line, State, StepKey
from simulation.adapters import SimulatedChat
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, view_of
from worker.meanwhile import Facts, Meanwhile, changes
from worker.stores import Stores
from worker.sweep import Sweep
from worker.threads import Threads

NOW = datetime.now(UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sweep(stores: Stores, engine: StubEngine, registry: Registry, world: World, clock: Clock) -> Sweep:
    folding = Folding(stores.ledger, Bounded())
    meanwhile = Meanwhile(registry, stores.ledger)
    return Sweep(stores, engine, SimulatedChat(world), folding, meanwhile, Threads(2), 30.0, clock)


def put(stores: Stores, engine: StubEngine, node: Node, due_s: float | None, **changed: object) -> None:
    view = view_of(node, **changed)
    stores.ledger.upsert_incident(view)
    engine.live.add(view.workflow_id)
    if due_s is not None:
        key = StepKey(incident=view.id, step="evacuate")
        stores.ledger.begin_step(key, "evacuate", NOW + timedelta(seconds=due_s))


async def test_a_step_beyond_its_limit_pages_once_whoever_sweeps(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, world: World
) -> None:
    put(stores, engine, node, -1)
    for _ in range(3):
        await sweep.once()
    pages = world.messages()
    assert len(pages) == 1
    assert node.name in pages[0]
    assert "evacuate" in pages[0]
    assert [line.kind for line in stores.ledger.lines("inc-1")] == ["page"]


async def test_a_step_within_its_limit_and_one_that_went_on_are_left_alone(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, world: World
) -> None:
    put(stores, engine, node, 60)
    other = next(n for n in world.nodes("sim-a") if n.name != node.name)
    put(stores, engine, other, -60, id="inc-2")
    key = StepKey(incident="inc-2", step="evacuate")
    stores.ledger.add_lines([Line(key=key, at=NOW, kind="step", text="evacuate: done", data={"step": "evacuate"})])
    await sweep.once()
    assert world.messages() == []


async def test_a_wait_for_a_person_is_not_overdue_because_its_message_was_sent(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, world: World
) -> None:
    put(stores, engine, node, -60, state=State.HANDED_OVER)
    assert await sweep._overdue(stores.ledger.incidents()[0], NOW), "the message is still being sent, too long"
    key = StepKey(incident="inc-1", step="evacuate")
    said = NOW - timedelta(minutes=2)
    stores.ledger.add_lines([Line(key=key, at=said, kind="step", text="evacuate: done", data={"step": "evacuate"})])
    await sweep.once()
    assert world.messages() == []


async def test_silence_between_steps_pages_too(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, world: World, clock: Clock
) -> None:
    put(stores, engine, node, None)
    await sweep.once()
    assert world.messages() == []
    clock.now = NOW + timedelta(minutes=20)
    await sweep.once()
    assert len(world.messages()) == 1


async def test_an_incident_without_its_workflow_is_closed_and_its_node_listed(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, world: World
) -> None:
    put(stores, engine, node, None, state=State.HANDED_OVER)
    await sweep.once()
    assert len(stores.ledger.incidents()) == 1
    engine.live.clear()
    sweep._count = 0
    await sweep.once()
    assert stores.ledger.incidents() == []
    closed = stores.ledger.incident("inc-1")
    assert closed is not None
    assert closed.state is State.ENDED
    assert closed.end is None, "nobody claims that it was repaired"
    assert len(world.messages()) == 1


async def test_one_that_ended_well_meanwhile_is_not_called_an_orphan(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stores, engine, node, None)

    async def ends(_: str) -> bool:
        stores.ledger.upsert_incident(view_of(node, rev=9, end=End.RETURNED, state=State.ENDED))
        return False

    monkeypatch.setattr(engine, "running", ends)
    await sweep.once()
    closed = stores.ledger.incident("inc-1")
    assert closed is not None
    assert closed.end is End.RETURNED


async def test_a_newer_incident_of_the_node_shows_that_the_older_run_is_over(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node
) -> None:
    put(stores, engine, node, None, id="inc-old", opened_at=NOW - timedelta(days=1))
    put(stores, engine, node, None, id="inc-new")
    await sweep.once()
    assert [view.id for view in stores.ledger.incidents()] == ["inc-new"]


async def test_only_the_lease_of_a_dead_holder_is_taken_back(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, clock: Clock, world: World
) -> None:
    policy = stores.policies.active().policy
    placed = policy.place(node)
    request = LeaseRequest(
        lease_id="l-1",
        incident="inc-1",
        workflow_id=f"node/sim-a/{node.name}",
        cluster="sim-a",
        node=node.name,
        pool=placed.pool,
        domains=placed.domains,
        fault="xid/79",
        fault_class=FaultClass.CRITICAL,
        plan_hash="h",
        asked_at=NOW,
    )
    census = Census.of("sim-a", [policy.place(one) for one in world.nodes("sim-a")])
    granted = stores.guard.acquire(request, NOW, census)
    assert isinstance(granted, Granted), granted
    engine.live.add(request.workflow_id)
    clock.now = granted.until + timedelta(seconds=1)
    await sweep.once()
    assert len(stores.guard.leases()) == 1, "expired, but its holder runs"
    engine.live.clear()
    await sweep.once()
    assert stores.guard.leases() == []


async def test_a_storm_of_pages_is_told_together_once_its_minute_is_over(
    sweep: Sweep, stores: Stores, engine: StubEngine, node: Node, world: World, clock: Clock
) -> None:
    nodes = world.nodes("sim-a")
    for i, each in enumerate(nodes):
        put(stores, engine, each, -1, id=f"inc-{i}")
    await sweep.once()
    assert len(world.messages()) == 3
    clock.now += timedelta(seconds=70)
    await sweep.once()
    await sweep.once()
    alone, together = world.messages()[:3], world.messages()[3:]
    assert len(together) == 1
    assert f"{len(nodes) - len(alone)} × overdue" in together[0]


async def test_what_people_do_to_a_node_that_waits_for_them_is_noted_once_and_looked_at(
    sweep: Sweep, stores: Stores, engine: StubEngine, world: World, node: Node, clock: Clock
) -> None:
    put(stores, engine, node, None, state=State.HANDED_OVER)
    await sweep.once()
    assert engine.woken == []
    world.cordon(node.name, "bob", node.cluster)
    clock.now += timedelta(seconds=30)
    await sweep.once()
    await sweep.once()
    [note] = stores.ledger.notes(node.cluster, node.name, NOW)
    assert note.text == "bob cordoned it"
    assert len(engine.woken) == 1


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"exists": False}, "the node was removed from its cluster"),
        ({"boot_id": "b2"}, "it was booted again"),
        ({"machine": "m2", "boot_id": "b2"}, "another machine answers under its name: m2"),
        ({"marked": False, "in_service": True}, "our mark was lifted"),
        ({"marked": False, "in_service": True}, "it was put back into service, and no check of ours has passed"),
    ],
)
def test_what_changed_is_said_in_words(now: dict[str, object], said: str) -> None:
    was = Facts(exists=True, uid="u", machine="m1", boot_id="b1", marked=True)
    assert said in changes(was, was.model_copy(update=now))
    assert changes(was, was) == []
