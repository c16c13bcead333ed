"""What was out of service before is taken over by name, by who took it out, or by pool; never all by accident."""

from __future__ import annotations

import httpx
import pytest

from activities.ports import Mark
from activities.registry import Registry
from medevac.fleet.node import Node
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, bearer
from worker.stores import Stores

OTTO = bearer("otto-token")


@pytest.fixture
def cordoned(world: World) -> list[Node]:
    """Two by NVSentinel, one by hand."""
    nodes = [node for node in world.nodes("sim-a") if node.gpus][:3]
    for node, who in zip(nodes, ("NVSentinel", "NVSentinel", "alice"), strict=True):
        world.cordon(node.name, who, cluster="sim-a")
    return nodes


async def test_a_dry_run_names_them_and_touches_nothing(
    client: httpx.AsyncClient, engine: StubEngine, cordoned: list[Node]
) -> None:
    order = {"by": "NVSentinel", "dry_run": True}
    answer = (await client.post("/v1/adoptable", json=order, headers=OTTO)).json()
    assert {one["node"] for one in answer["nodes"]} == {node.name for node in cordoned[:2]}
    assert engine.reported == []


async def test_all_of_one_remediator_are_adopted_and_who_it_was_is_kept(
    client: httpx.AsyncClient, engine: StubEngine, world: World, stores: Stores, cordoned: list[Node]
) -> None:
    effects = len(world.effects())
    order = {"by": "NVSentinel", "pool": cordoned[0].pool, "reason": "handover"}
    answer = await client.post("/v1/adoptable", json=order, headers=OTTO)
    assert answer.status_code == 202, answer.text
    assert {name for _, name, _ in engine.reported} == {
        node.name for node in cordoned[:2] if node.pool == order["pool"]
    }
    for _, name, event in engine.reported:
        assert (event.actionable, event.fault) == (False, "adopted/unknown")
        assert "NVSentinel" in event.summary
        found = world.node(name, "sim-a")
        assert found is not None
        assert (found.foreign_cordon, found.schedulable) == ("NVSentinel", False), "what was there stays"
    assert len(world.effects()) == effects, "adopting touches no machine"


async def test_an_empty_selector_is_an_error_never_all(
    client: httpx.AsyncClient, engine: StubEngine, cordoned: list[Node]
) -> None:
    for order in ({}, {"reason": "all of them"}, {"by": None}, {"by": ""}):
        answer = await client.post("/v1/adoptable", json=order, headers=OTTO)
        assert answer.status_code == 422, order
    assert (await client.post("/v1/adoptable", json={"by": "nobody"}, headers=OTTO)).status_code == 404
    assert engine.reported == []


async def test_a_mark_of_an_incident_that_is_over_is_listed(
    client: httpx.AsyncClient, registry: Registry, node: Node
) -> None:
    registry.cluster("sim-a").mark(node.name, Mark(incident="inc-9", code="xid-79", faults=("xid/79",), reason=""))
    [listed] = (await client.get("/v1/adoptable", headers=OTTO)).json()
    assert (listed["node"], "inc-9" in listed["why"]) == (node.name, True)
