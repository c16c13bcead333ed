from __future__ import annotations

import pytest

from activities.ports import Eviction, Verb
from medevac.fleet.node import Node, Workload
from simulation.adapters import SimulatedCluster, SimulatedProvider
from simulation.world import World
from tests.unit.simulation.worlds import HandClock, mark


@pytest.fixture
def cluster(world: World) -> SimulatedCluster:
    return SimulatedCluster(world, "sim-a")


def a_job(world: World, cluster: SimulatedCluster, *, cooperative: bool) -> tuple[Node, Workload]:
    with world.read() as m:
        row = m.one(
            "SELECT x.node, j.name FROM jobs j JOIN pods p ON p.workload = j.name JOIN machines x ON x.id = p.machine"
            " WHERE j.kind != 'Deployment' AND j.cooperative = ? AND j.checkpoint_every IS NOT NULL ORDER BY x.node",
            cooperative,
        )
    assert row is not None
    node = world.node(row["node"])
    assert node is not None
    return node, next(work for work in cluster.workloads(row["node"]) if work.name == row["name"])


def again(cluster: SimulatedCluster, node: Node, work: Workload) -> Workload:
    return next(w for w in cluster.workloads(node.name) if w.name == work.name)


def test_a_cooperative_job_saves_and_says_so_after_a_notice(
    world: World, cluster: SimulatedCluster, clock: HandClock
) -> None:
    node, work = a_job(world, cluster, cooperative=True)
    assert not work.ready_to_evict
    cluster.notice(node.name, clock.now)
    clock.forward(29)
    assert not again(cluster, node, work).ready_to_evict
    clock.forward(1)
    saved = again(cluster, node, work)
    assert saved.ready_to_evict
    assert saved.last_checkpoint == clock.now


def test_another_job_keeps_its_own_rhythm(world: World, cluster: SimulatedCluster, clock: HandClock) -> None:
    node, work = a_job(world, cluster, cooperative=False)
    cluster.notice(node.name, clock.now)
    clock.forward(3_600)
    later = again(cluster, node, work)
    assert not later.ready_to_evict
    assert work.last_checkpoint is not None
    assert later.last_checkpoint is not None
    assert (later.last_checkpoint - work.last_checkpoint).total_seconds() == 3_600


def test_the_second_notice_changes_nothing(world: World, cluster: SimulatedCluster, clock: HandClock) -> None:
    node, _ = a_job(world, cluster, cooperative=True)
    by = clock.now
    cluster.notice(node.name, by)
    cluster.notice(node.name, by)
    assert [effect.applied for effect in world.effects()] == [True, False]


def test_an_evicted_job_starts_again_on_a_spare(world: World, cluster: SimulatedCluster, clock: HandClock) -> None:
    node, work = a_job(world, cluster, cooperative=True)
    cluster.mark(node.name, mark())
    (pod,) = (pod for pod in cluster.pods(node.name) if pod.workload == work.name)
    cluster.evict(pod, 30)
    clock.forward(20 + 60)
    (home,) = (n for n in world.nodes() if pod.name in {p.name for p in cluster.pods(n.name)})
    assert home.name != node.name
    assert home.schedulable
    assert cluster.evict(pod, 30) is Eviction.GONE


def test_a_pod_waits_where_there_is_no_room(world: World, cluster: SimulatedCluster, clock: HandClock) -> None:
    for node in world.nodes():
        if not cluster.workloads(node.name):
            world.cordon(node.name, "bob")
    node, work = a_job(world, cluster, cooperative=True)
    cluster.mark(node.name, mark())
    (pod,) = (pod for pod in cluster.pods(node.name) if pod.workload == work.name)
    cluster.evict(pod, 30)
    clock.forward(3_600)
    assert not any(pod.name in {p.name for p in cluster.pods(n.name)} for n in world.nodes())
    cluster.lift(node.name, "inc-1")
    assert pod.name in {p.name for p in cluster.pods(node.name)}


def test_a_budget_allows_one_and_then_waits_for_its_successor(
    world: World, cluster: SimulatedCluster, clock: HandClock
) -> None:
    serving = [
        (n, p) for n in world.nodes() for p in cluster.pods(n.name) if p.namespace == "serving" and p.workload == "chat"
    ]
    assert len(serving) > 1
    (first, a), (second, b) = serving[:2]
    cluster.mark(first.name, mark())
    cluster.mark(second.name, mark("inc-2"))
    assert cluster.evict(a, 30) is Eviction.EVICTED
    assert cluster.evict(b, 30) is Eviction.BUDGET
    clock.forward(20 + 60)
    assert cluster.evict(b, 30) is Eviction.EVICTED


def test_daemons_come_back_with_the_node(world: World, cluster: SimulatedCluster, clock: HandClock) -> None:
    node = world.nodes()[1]
    before = {pod.workload for pod in cluster.pods(node.name) if pod.tier == "daemon"}
    cluster.mark(node.name, mark())
    for pod in cluster.pods(node.name):
        if not pod.tolerates_mark:
            cluster.delete(pod, 0)
    clock.forward(3_600)
    assert {pod.workload for pod in cluster.pods(node.name)} == {"gpu-monitor"}
    cluster.lift(node.name, "inc-1")
    assert {pod.workload for pod in cluster.pods(node.name) if pod.tier == "daemon"} == before


def test_work_on_a_terminated_machine_goes_elsewhere(world: World, cluster: SimulatedCluster, clock: HandClock) -> None:
    node, work = next(
        (n, w)
        for n in world.nodes()
        if n.machine.provider == "skyline"
        for w in cluster.workloads(n.name)
        if n.pool == "train"
    )
    (pod,) = (pod for pod in cluster.pods(node.name) if pod.workload == work.name)
    SimulatedProvider(world, "skyline").do(Verb.TERMINATE, node, "inc-1")
    clock.forward(90 + 60)
    (home,) = (n for n in world.nodes() if pod.name in {p.name for p in cluster.pods(n.name)})
    assert home.name != node.name
