"""The watcher between a scripted cluster and a real ledger: what it says, when it says it again, and who speaks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from activities.ports import Told, Unreadable
from activities.registry import ConfigurationError, Registry
from activities.storage.heard import heard
from activities.storage.intake import IntakeStore
from activities.storage.leaders import Leaders
from medevac.fleet.node import Node
from tests.unit.intake.test_conditions import condition
from tests.unit.intake.test_conditions import node as node_object
from tests.unit.intake.test_node_events import NOW, event
from tests.unit.worker.conftest import StubEngine, engine, node, registry, stores, world
from worker.intake import watching
from worker.intake.delivery import Deliveries
from worker.intake.fold import Fold
from worker.intake.inventory import Inventory
from worker.intake.leading import Lead
from worker.intake.pipeline import Intake
from worker.intake.poller import GpudPoller
from worker.intake.watching import Watcher
from worker.settings import Settings
from worker.speakers import Poller, Target
from worker.speakers import Watcher as WatcherConfig
from worker.stores import Stores
from worker.threads import Threads

__all__ = ["engine", "node", "registry", "stores", "world"]

SICK = condition("KernelDeadlock", "True")
WELL = condition("KernelDeadlock", "False")


class Scripted:
    """A cluster that tells what the test says."""

    name = "sim-a"

    def __init__(self) -> None:
        self.hear: Callable[[Told], None] | None = None
        self.begins = 0
        self.first: list[Told] = []
        self.begun = threading.Event()

    def watch(self, hear: Callable[[Told], None], *, relist_s: float, events: bool) -> Scripted:
        self.hear = hear
        self.begins += 1
        for told in self.first:
            hear(told)
        self.begun.set()
        return self

    def close(self) -> None:
        self.hear = None

    def tell(self, how: Any, *objects: Any, kind: Any = "Node") -> None:
        assert self.hear
        self.hear(Told(kind, how, objects))


class Rig:
    def __init__(self, stores: Stores, registry: Registry, engine: StubEngine) -> None:
        self.stores, self.engine, self.registry = stores, engine, registry
        self.threads = Threads(8)

    def deliveries(self) -> Deliveries:
        inventory, fold = Inventory(self.registry.clusters), Fold(0.0)
        intake = Intake(inventory=inventory, stores=self.stores, engine=self.engine, fold=fold, threads=self.threads)
        return Deliveries(intake, self.stores.dead_letters, self.threads)

    @asynccontextmanager
    async def watcher(
        self, cluster: Scripted, lease_s: float = 60.0, expected_every_s: float | None = None
    ) -> AsyncIterator[Watcher]:
        """One process's, leading when the body begins."""
        config = WatcherConfig(name="nodes", clusters=("sim-a",), lease_s=lease_s, expected_every_s=expected_every_s)
        lead = Lead("watch/nodes/sim-a", self.stores.leaders, self.threads, lease_s)
        watcher = Watcher(config, cluster, self.deliveries(), self.stores, self.threads, lead)
        stop = asyncio.Event()
        running = asyncio.create_task(watcher.run(stop))
        try:
            await until(lambda: cluster.begun.is_set())
            yield watcher
        finally:
            stop.set()
            async with asyncio.timeout(20):
                await running

    @property
    def heard(self) -> list[tuple[str, str]]:
        return [(event.kind, str(event.fault)) for _, _, event in (*self.engine.reported, *self.engine.joined)]


async def until(look: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not look():  # noqa: ASYNC110  of other threads
            await asyncio.sleep(0.005)


@pytest.fixture
def rig(stores: Stores, registry: Registry, engine: StubEngine) -> Any:
    rig = Rig(stores, registry, engine)
    yield rig
    rig.threads.close()


@pytest.fixture
def cluster() -> Scripted:
    return Scripted()


async def test_a_fault_and_its_clear_reach_the_incident(rig: Rig, cluster: Scripted, node: Node) -> None:
    async with rig.watcher(cluster):
        cluster.tell("began", node_object(WELL, name=node.name))
        cluster.tell("changed", node_object(SICK, name=node.name))
        await until(lambda: rig.heard)
        cluster.tell("changed", node_object(WELL, name=node.name))
        await until(lambda: len(rig.heard) == 2)
    assert rig.heard == [("fault", "condition/KernelDeadlock"), ("recovered", "condition/KernelDeadlock")]
    (_, name, fault) = rig.engine.reported[0]
    assert (name, fault.source, fault.sender, fault.cluster) == (node.name, "npd", "nodes", "sim-a")


async def test_the_next_to_lead_takes_back_what_became_good_meanwhile(rig: Rig, node: Node) -> None:
    first, second = Scripted(), Scripted()
    async with rig.watcher(first):
        first.tell("began", node_object(SICK, name=node.name))
        await until(lambda: rig.heard)
    second.first = [Told("Node", "began", (node_object(WELL, name=node.name),))]
    async with rig.watcher(second):
        await until(lambda: len(rig.heard) == 2)
    assert rig.heard[1] == ("recovered", "condition/KernelDeadlock")


async def test_a_process_killed_between_saying_and_writing_leaves_nothing_standing(
    rig: Rig, cluster: Scripted, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal has the fault, the ledger never got its line, and the condition is good when the next one comes."""

    async def dies(*_: object) -> None:
        raise asyncio.CancelledError

    first = Scripted()
    with monkeypatch.context() as killed:
        killed.setattr(Intake, "_written", dies)
        running = rig.watcher(first)
        await running.__aenter__()
        first.tell("began", node_object(SICK, name=node.name))
        await until(lambda: rig.heard)
        await running.__aexit__(None, None, None)
    cluster.first = [Told("Node", "began", (node_object(WELL, name=node.name),))]
    async with rig.watcher(cluster):
        await until(lambda: len(rig.heard) == 2)
        cluster.tell("relist", node_object(WELL, name=node.name), node_object(SICK, name="nobody"))
    assert rig.heard[1] == ("recovered", "condition/KernelDeadlock")
    assert len(rig.heard) == 2, "and it is taken back once"


async def test_a_node_that_went_sick_and_comes_back_well_is_taken_back(rig: Rig, cluster: Scripted, node: Node) -> None:
    async with rig.watcher(cluster):
        cluster.tell("began", node_object(SICK, name=node.name))
        await until(lambda: rig.heard)
        cluster.tell("gone", node_object(name=node.name))
        lines = partial(
            heard, rig.stores.database, "nodes", "sim-a", [node.name], datetime.now(UTC) - timedelta(hours=1)
        )
        await until(lambda: len(lines()) == 2)
        cluster.tell("relist", node_object(WELL, name=node.name))
        await until(lambda: len(rig.heard) == 2)
    assert rig.heard[1] == ("recovered", "condition/KernelDeadlock")


async def test_a_clear_that_was_not_held_is_still_owed(rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = Scripted(), Scripted(), Scripted()
    async with rig.watcher(first):
        first.tell("began", node_object(SICK, name=node.name))
        await until(lambda: rig.heard)
    well = Told("Node", "began", (node_object(WELL, name=node.name),))
    second.first = third.first = [well]
    tries = 0

    async def not_held(*_: object) -> bool:
        nonlocal tries
        tries += 1
        return False

    with monkeypatch.context() as without:
        without.setattr(Watcher, "_delivered", not_held)
        async with rig.watcher(second):
            await until(lambda: tries)
    async with rig.watcher(third):
        await until(lambda: len(rig.heard) == 2)
    assert rig.heard[1] == ("recovered", "condition/KernelDeadlock")


async def test_what_still_holds_is_a_statement_at_each_listing(rig: Rig, cluster: Scripted, node: Node) -> None:
    async with rig.watcher(cluster):
        cluster.tell("began", node_object(SICK, name=node.name))
        await until(lambda: len(rig.heard) == 1)
        cluster.tell("relist", node_object(SICK, name=node.name))
        await until(lambda: len(rig.heard) == 2)
    assert set(rig.heard) == {("fault", "condition/KernelDeadlock")}


async def test_held_by_nobody_it_is_said_until_it_is(
    rig: Rig, cluster: Scripted, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def down(*_: object, **__: object) -> None:
        nonlocal tries
        tries += 1
        raise Unreadable("connection refused")

    rig.engine.down = True
    with monkeypatch.context() as without:
        without.setattr(IntakeStore, "commit", down)
        async with rig.watcher(cluster):
            cluster.tell("changed", node_object(SICK, name=node.name))
            cluster.tell("changed", event(involvedObject={"kind": "Node", "name": node.name}), kind="Event")
            await until(lambda: tries >= 2)
            assert rig.stores.inbox.waiting()[0] == 0
            without.undo()
            await until(lambda: rig.stores.inbox.waiting()[0] == 2)


async def test_an_event_is_heard_once_by_whoever_leads(rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"kind": "Node", "name": node.name}
    shift = (datetime.now(UTC) - NOW).total_seconds() / 60
    hung = event(involvedObject=about, minutes_ago=2 - shift)
    old = event("OldTrouble", uid="e-2", involvedObject=about, minutes_ago=90 - shift)
    meanwhile = event("NewTrouble", uid="e-3", involvedObject=about, minutes_ago=1 - shift)
    first, second = Scripted(), Scripted()
    first.first = [Told("Event", "began", (hung, old))]
    async with rig.watcher(first):
        await until(lambda: rig.heard)
    second.first = [Told("Event", "began", (hung, old, meanwhile))]
    async with rig.watcher(second):
        await until(lambda: len(rig.heard) == 2)
    assert [fault for _, fault in rig.heard] == ["event/TaskHung", "event/NewTrouble"]


async def test_an_unreadable_one_lies_with_the_dead_letters_and_stops_nothing(
    rig: Rig, cluster: Scripted, node: Node
) -> None:
    async with rig.watcher(cluster):
        odd = condition("GPUHealthy", "Perhaps")
        cluster.tell("began", node_object(odd, SICK, name=node.name))
        await until(lambda: rig.heard)
        cluster.tell("changed", node_object(odd, WELL, name=node.name))
        await until(lambda: len(rig.heard) == 2)
    (letter,) = rig.stores.dead_letters.listed()
    assert (letter.sender, letter.why) == ("nodes", "unreadable")


async def test_one_speaks_and_the_next_follows_it(rig: Rig, node: Node) -> None:
    first, second = Scripted(), Scripted()
    async with rig.watcher(first):
        lead = Lead("watch/nodes/sim-a", rig.stores.leaders, rig.threads, 60)
        assert not await lead.claim()
    assert await lead.claim(), "who ends in order leaves at once"
    await lead.resign()
    async with rig.watcher(second):
        assert second.begins == 1


async def test_who_was_stopped_for_longer_than_its_claim_says_nothing_until_it_leads_again(
    rig: Rig, cluster: Scripted, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.watcher(cluster, lease_s=1.0):
        lead = Leaders.lead

        def theirs(self: Leaders, name: str, holder: str, *rest: Any) -> bool:
            return holder == "another" and lead(self, name, holder, *rest)

        monkeypatch.setattr(Leaders, "lead", theirs)
        await until(lambda: cluster.hear is None)
        monkeypatch.undo()
        cluster.begun.clear()
        cluster.first = [Told("Node", "began", (node_object(SICK, name=node.name),))]
        await until(lambda: rig.heard)
    assert cluster.begins == 2


async def test_while_the_ledger_is_away_who_leads_goes_on_and_nobody_else_begins(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (Lead("x", rig.stores.leaders, rig.threads, 60) for _ in range(2))
    assert await ours.claim()

    def down(*_: object) -> bool:
        raise Unreadable("connection refused")

    monkeypatch.setattr(Leaders, "lead", down)
    assert await ours.claim()
    assert not await theirs.claim()
    assert ours.holds
    assert not theirs.holds


async def test_work_that_fails_begins_anew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.intake.leading.TROUBLE_S", 0.01)
    lead, stop, begins = Lead("x", rig.stores.leaders, rig.threads, 60), asyncio.Event(), 0

    async def work(stop: asyncio.Event) -> None:
        nonlocal begins
        begins += 1
        if begins < 3:
            raise RuntimeError("a bug")
        stop.set()

    async with asyncio.timeout(10):
        await lead.lead(work, stop)
    assert begins == 3


@pytest.mark.parametrize(
    ("watchers", "said"),
    [((), "no `watchers`"), ((WatcherConfig(name="nodes", clusters=("sim-a",)),), "cluster sim-a tells nothing")],
)
async def test_what_cannot_be_watched_is_refused_by_name(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, watchers: tuple[WatcherConfig, ...], said: str
) -> None:
    installed = SimpleNamespace(config=SimpleNamespace(watchers=watchers), registry=registry)
    monkeypatch.setattr(watching, "open_installation", lambda settings: installed)
    with pytest.raises(ConfigurationError, match=said):
        await watching.run_watch(Settings())


async def test_a_poller_that_another_has_followed_says_nothing(rig: Rig, node: Node) -> None:
    answers = [{"component": "gpu", "states": [{"name": "gpu", "health": "Unhealthy", "reason": "XID 79"}]}]
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answers)))
    poller = Poller(name="gpud", clusters=("sim-a",), targets=(Target(url="https://n:1", node=node.name),))
    leads = False
    asking = GpudPoller(poller, rig.deliveries(), client, lambda: leads)
    await asking.once()
    assert not rig.heard
    leads = True
    await asking.once()
    assert rig.heard
    await client.aclose()


@pytest.mark.parametrize("expected", [True, False])
async def test_an_api_server_that_shows_nodes_and_has_no_news_is_a_sign_of_life(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, expected: bool
) -> None:
    monkeypatch.setattr(watching, "ALIVE_S", 0.01)
    cluster, began = Scripted(), datetime.now(UTC) - timedelta(minutes=1)
    async with rig.watcher(cluster, expected_every_s=60 if expected else None):
        cluster.tell("alive")
        if expected:
            await until(lambda: "nodes/sim-a" in rig.stores.ledger.heard_last(["nodes/sim-a"], began))
    if not expected:
        assert not rig.stores.ledger.heard_last(["nodes/sim-a"], began)
