from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from activities.ports import NotSent, Unclear, Verb
from medevac.faults.classes import Covers
from medevac.fleet.node import Node
from medevac.incident import StepKey
from simulation.adapters import SimulatedChecks, SimulatedCluster, SimulatedProvider
from simulation.build import parts
from simulation.hazards import Behaviour, Effect, Hazard, Manner
from simulation.layout import INSTANT, IRONWORKS, SKYLINE, Layout
from simulation.world import World
from tests.unit.simulation.worlds import HandClock, mark


def picture(world: World, clock: HandClock) -> list[object]:
    """Everything that anybody can see."""
    cluster = SimulatedCluster(world, "sim-a")
    nodes = world.nodes()
    return [nodes, [cluster.pods(n.name) for n in nodes], [cluster.workloads(n.name) for n in nodes]]


def idle(world: World, provider: str = SKYLINE) -> Node:
    """A spare: no jobs on it."""
    return next(n for n in world.nodes() if n.machine.provider == provider and "medevac.dev/spare" in n.labels)


def busy(world: World) -> Node:
    cluster = SimulatedCluster(world, "sim-a")
    return next(n for n in world.nodes() if n.pool == "train" and cluster.workloads(n.name))


# -- creation --------------------------------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_world_and_another_seed_another(tmp_path: Path, clock: HandClock) -> None:
    worlds = [World.create(tmp_path / str(i), Layout(), seed, clock) for i, seed in enumerate((5, 5, 6))]
    first, same, other = (picture(world, clock) for world in worlds)
    assert first == same
    assert first != other
    for world in worlds:
        world.close()


def test_a_world_is_never_overwritten(world: World) -> None:
    with pytest.raises(FileExistsError):
        World.create(world.path)


def test_a_missing_or_foreign_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"World\.create"):
        World(tmp_path / "nothing")
    sqlite3.connect(tmp_path / "other").close()
    (tmp_path / "other").touch()
    with pytest.raises(ValueError, match=r"World\.create"):
        World(tmp_path / "other")


def test_the_fleet_is_as_laid_out(tmp_path: Path) -> None:
    layout = Layout(clusters=("east", "west"), nodes=64, control=1, spares=2)
    with World.create(tmp_path / "world", layout) as world:
        assert world.nodes("east")[1].name == "gpu-a-001"
        assert world.nodes("west")[1].name == "gpu-b-001"
        nodes = world.nodes("east")
        gpus = [node for node in nodes if node.gpus]
        assert len(gpus) == 64
        assert {node.gpus for node in gpus} == {8}
        assert [node.roles for node in nodes if not node.gpus] == [("control-plane",)]
        assert {node.machine.provider for node in gpus} == {SKYLINE, IRONWORKS}
        assert {node.machine.virtual for node in gpus if node.machine.provider == IRONWORKS} == {False}
        racks: dict[str, list[Node]] = {}
        for node in gpus:
            racks.setdefault(node.topology["rack"], []).append(node)
        assert [len(rack) for rack in racks.values()] == [8] * 8
        assert all(len({node.machine.provider for node in rack}) == 1 for rack in racks.values())
        for pool in ("train", "serve"):
            members = [node for node in gpus if node.pool == pool]
            assert {node.machine.provider for node in members} == {SKYLINE, IRONWORKS}
            assert sum("medevac.dev/spare" in node.labels for node in members) == 2
        assert len({node.machine.id for cluster in layout.clusters for node in world.nodes(cluster)}) == 130


def test_jobs_fill_whole_gangs_and_services_have_budgets(world: World) -> None:
    cluster = SimulatedCluster(world, "sim-a")
    works = {w.name: w for n in world.nodes() for w in cluster.workloads(n.name)}
    on = {name: [n for n in world.nodes() if name in {w.name for w in cluster.workloads(n.name)}] for name in works}
    gangs = [w for w in works.values() if w.gang]
    assert gangs
    assert all(len(on[w.name]) == w.nodes for w in gangs)
    pods = [p for n in world.nodes() for p in cluster.pods(n.name)]
    assert {p.tier for p in pods} == {"workload", "daemon", "storage"}
    assert all(p.budget for p in pods if p.namespace == "serving")


def test_which_cluster_must_be_said_where_there_are_several(tmp_path: Path) -> None:
    with World.create(tmp_path / "world", Layout(clusters=("east", "west"), nodes=8)) as world:
        with pytest.raises(ValueError, match="east, west"):
            world.nodes()
        with pytest.raises(KeyError, match="north"):
            SimulatedCluster(world, "north")


def test_the_registry_gets_every_part(world: World) -> None:
    made = parts(world.path)
    assert [cluster.name for cluster in made.clusters] == ["sim-a"]
    assert [provider.name for provider in made.providers] == [SKYLINE, IRONWORKS]
    assert all(part.simulated for part in made.clusters)
    assert all(part.simulated for part in made.providers)
    assert made.checks.simulated
    assert made.tickets.simulated
    assert made.chat.simulated
    made.world.close()


# -- time ------------------------------------------------------------------------------------------------------


def test_a_reboot_takes_its_time_whoever_looks_when(world: World, clock: HandClock) -> None:
    node = idle(world)
    provider = SimulatedProvider(world, SKYLINE)
    provider.do(Verb.REBOOT, node, "inc-1")
    with World(world.path, clock) as elsewhere:
        other = SimulatedProvider(elsewhere, SKYLINE)
        clock.forward(599)
        assert not other.state(node, "").ready
        assert other.state(node, "").boot_id == node.machine.boot_id
        clock.forward(1)
        assert other.state(node, "").ready
        assert other.state(node, "").boot_id != node.machine.boot_id


def test_a_reboot_while_it_reboots_starts_over(world: World, clock: HandClock) -> None:
    node = idle(world)
    provider = SimulatedProvider(world, SKYLINE)
    provider.do(Verb.REBOOT, node, "inc-1")
    clock.forward(500)
    provider.do(Verb.REBOOT, node, "inc-1")
    clock.forward(500)
    assert not provider.state(node, "").ready
    clock.forward(100)
    assert provider.state(node, "").ready


def test_what_was_due_in_between_happens_at_its_own_time(world: World, clock: HandClock) -> None:
    """A week without a look: a check that began right after the boot must not see what came later."""
    node = idle(world)
    world.inject(node.name, "xid/79", cure=[], behaviour=Behaviour(clears=(Effect.REBOOT,), recurs_after_s=1_000))
    SimulatedProvider(world, SKYLINE).do(Verb.REBOOT, node, "inc-1")
    clock.forward(7 * 86_400)
    (fault,) = world.faults()
    assert fault.present
    assert (fault.since - fault.injected_at).total_seconds() == 600 + 1_000


def test_zero_time_effects_are_there_at_the_next_look(tmp_path: Path, clock: HandClock) -> None:
    with World.create(tmp_path / "world", Layout(nodes=8, durations=INSTANT), clock=clock) as world:
        node = idle(world)
        provider = SimulatedProvider(world, SKYLINE)
        provider.do(Verb.REBOOT, node, "inc-1")
        assert provider.state(node, "").ready
        assert provider.state(node, "").boot_id != node.machine.boot_id
        assert SimulatedChecks(world).run(node, (Covers.BUS,), StepKey(incident="inc-1", step="verify")) is not None


def test_the_next_happening_is_known(world: World, clock: HandClock) -> None:
    assert world.next_due() is None
    SimulatedProvider(world, SKYLINE).do(Verb.REBOOT, idle(world), "inc-1")
    due = world.next_due()
    assert due is not None
    assert (due - clock.now).total_seconds() == 600


# -- faults ----------------------------------------------------------------------------------------------------


def test_the_catalogue_says_what_a_check_must_cover(world: World) -> None:
    world.inject(idle(world).name, "xid/79")
    assert Covers.BUS in world.faults()[0].covers


def test_a_weaker_remedy_than_the_cure_comes_back_with_the_same_fault(world: World, clock: HandClock) -> None:
    node = idle(world, IRONWORKS)
    world.inject(node.name, "xid/79", cure=[Effect.REINSTALL])
    provider = SimulatedProvider(world, IRONWORKS)
    provider.do(Verb.REBOOT, node, "inc-1")
    clock.forward(3_600)
    assert world.faults()[0].present
    provider.do(Verb.REINSTALL, node, "inc-1")
    clock.forward(3_600)
    assert world.faults()[0].cured_by is Effect.REINSTALL


def test_a_machine_that_never_boots_may_be_reinstalled(world: World, clock: HandClock) -> None:
    node = idle(world, IRONWORKS)
    world.inject(node.name, "xid/79", cure=[Effect.REINSTALL], behaviour=Behaviour(never_boots=True))
    provider = SimulatedProvider(world, IRONWORKS)
    provider.do(Verb.REBOOT, node, "inc-1")
    clock.forward(86_400)
    assert not provider.state(node, "").ready
    provider.do(Verb.REINSTALL, node, "inc-1")
    clock.forward(86_400)
    assert provider.state(node, "").ready


def test_a_node_that_recovers_after_each_reboot_and_fails_again(world: World, clock: HandClock) -> None:
    node = idle(world)
    world.inject(node.name, "xid/119", behaviour=Behaviour(clears=(Effect.REBOOT,), recurs_after_s=3_600))
    for _ in range(3):
        SimulatedProvider(world, SKYLINE).do(Verb.REBOOT, node, "inc-1")
        clock.forward(601)
        assert not world.faults()[0].present
        clock.forward(3_600)
        assert world.faults()[0].present
    assert world.faults()[0].cured_at is None


def test_a_stronger_remedy_cures_what_a_weaker_one_would(world: World, clock: HandClock) -> None:
    node = idle(world)
    world.inject(node.name, "xid/119", cure=[Effect.RESET_GPU])
    SimulatedProvider(world, SKYLINE).do(Verb.REBOOT, node, "inc-1")
    clock.forward(3_600)
    assert not world.faults()[0].present


def test_a_silent_node_is_not_ready_and_keeps_its_pods(world: World, clock: HandClock) -> None:
    node = busy(world)
    world.inject(node.name, "xid/79", behaviour=Behaviour(not_ready=True))
    cluster = SimulatedCluster(world, "sim-a")
    assert not next(n for n in world.nodes() if n.name == node.name).ready
    pods = [pod for pod in cluster.pods(node.name) if pod.tier == "workload"]
    cluster.mark(node.name, mark())
    for pod in pods:
        cluster.evict(pod, 30)
    clock.forward(3_600)
    assert {p.uid for p in pods} <= {p.uid for p in cluster.pods(node.name) if p.terminating}
    SimulatedProvider(world, node.machine.provider).do(Verb.REBOOT, node, "inc-1")
    clock.forward(3_600)
    assert not {p.uid for p in pods} & {p.uid for p in cluster.pods(node.name)}
    assert next(n for n in world.nodes() if n.name == node.name).ready


def test_a_repair_by_hand_ends_the_fault(world: World) -> None:
    node = idle(world)
    world.inject(node.name, "xid/79", cure=[])
    world.repair(node.name)
    assert not world.faults()[0].present
    mended = world.node(node.name)
    assert mended is not None
    assert mended.machine.boot_id != node.machine.boot_id


def test_a_successor_may_have_the_same_fault(world: World, clock: HandClock) -> None:
    node = idle(world)
    world.inject(node.name, "xid/79", cure=[], behaviour=Behaviour(successor_faulty=True))
    SimulatedProvider(world, SKYLINE).do(Verb.REQUEST, node, "inc-1")
    clock.forward(3_600)
    assert [fault.node for fault in world.faults() if fault.present] == [node.name, "gpu-a-033"]


# -- successors and money --------------------------------------------------------------------------------------


def test_a_successor_is_born_marked_and_costs_money_until_it_ends(world: World, clock: HandClock) -> None:
    node = idle(world)
    provider = SimulatedProvider(world, SKYLINE)
    provider.do(Verb.REQUEST, node, "inc-1")
    assert len(world.billing()) == 33
    assert len(world.nodes()) == 32
    clock.forward(120)
    successor = world.node("gpu-a-033")
    assert successor is not None
    assert (successor.marked_by, successor.schedulable, successor.ready) == ("inc-1", False, False)
    assert (successor.pool, successor.topology) == (node.pool, node.topology)
    clock.forward(180)
    assert provider.state(node, "inc-1").successor_ready
    SimulatedCluster(world, "sim-a").lift("gpu-a-033", "inc-1")
    provider.do(Verb.TERMINATE, node, "inc-1")
    clock.forward(90)
    assert world.node(node.name) is None
    ended = [bill for bill in world.billing() if bill.until]
    assert [bill.machine_id for bill in ended] == [node.machine.id]
    assert [bill.node for bill in world.billing() if bill.requested_by == "inc-1"] == ["gpu-a-033"]


def test_asking_twice_launches_two(world: World, clock: HandClock) -> None:
    provider = SimulatedProvider(world, SKYLINE)
    for _ in range(2):
        provider.do(Verb.REQUEST, idle(world), "inc-1")
    assert sum(bill.requested_by == "inc-1" for bill in world.billing()) == 2


def test_stock_runs_out(tmp_path: Path) -> None:
    layout = Layout(nodes=8)
    kind = layout.providers[SKYLINE].model_copy(update={"stock": 1})
    with World.create(tmp_path / "w", Layout(nodes=8, providers=layout.providers | {SKYLINE: kind})) as world:
        provider = SimulatedProvider(world, SKYLINE)
        provider.do(Verb.REQUEST, idle(world), "inc-1")
        with pytest.raises(NotSent, match="capacity") as refusal:
            provider.do(Verb.REQUEST, idle(world), "inc-2")
        assert not refusal.value.final


# -- misfortune ------------------------------------------------------------------------------------------------


def test_a_script_holds_for_its_node_and_its_number_of_times(world: World) -> None:
    one, two = (n for n in world.nodes() if "medevac.dev/spare" in n.labels and n.pool == "train")
    provider = SimulatedProvider(world, SKYLINE)
    world.script(Effect.REBOOT, Manner.TIMEOUT_BEFORE, node=one.name, times=2)
    provider.do(Verb.REBOOT, two, "")
    for _ in range(2):
        with pytest.raises(Unclear):
            provider.do(Verb.REBOOT, one, "")
    provider.do(Verb.REBOOT, one, "")
    log = world.effects(node=one.name)
    assert [(e.manner, e.applied) for e in log] == [(Manner.TIMEOUT_BEFORE, False)] * 2 + [(None, True)]


def test_seeded_misfortune_is_the_same_in_every_order(tmp_path: Path) -> None:
    layout = Layout(nodes=32, hazards=(Hazard(verb=Effect.RESTART_AGENT, manner=Manner.REFUSE, probability=0.4),))

    def refused(name: str, *, backwards: bool) -> set[str]:
        with World.create(tmp_path / name, layout, seed=11) as world:
            unlucky = set()
            for node in sorted(world.nodes(), key=lambda n: n.name, reverse=backwards):
                try:
                    SimulatedProvider(world, node.machine.provider).do(Verb.RESTART_AGENT, node, "inc-1")
                except NotSent:
                    unlucky.add(node.name)
            return unlucky

    forwards = refused("a", backwards=False)
    assert forwards == refused("b", backwards=True)
    assert 5 < len(forwards) < 22


def test_gpus_in_use_are_not_reset(world: World) -> None:
    node = busy(world)
    with pytest.raises(NotSent, match="in use"):
        SimulatedProvider(world, node.machine.provider).do(Verb.RESET_GPU, node, "inc-1")
    (logged,) = world.effects()
    assert not logged.applied


def test_the_log_says_who_called_for_what_and_what_ran(world: World) -> None:
    node = busy(world)
    SimulatedProvider(world, node.machine.provider).do(Verb.REBOOT, node, "inc-1")
    world.by_hand(Verb.REBOOT, node.name, "alice")
    ours, theirs = world.effects()
    assert (ours.tag, ours.node, ours.target, ours.applied) == ("inc-1", node.name, node.machine.id, True)
    assert ours.detail["running"] == 1
    assert theirs.tag == "person:alice"
