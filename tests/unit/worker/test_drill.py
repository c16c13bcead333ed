"""A drill is begun on an empty node that nobody keeps, by somebody who may, and by nobody's payload."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from activities.ports import Unreadable
from activities.registry import Registry
from medevac.fleet.node import Node
from simulation.world import World
from tests.unit.worker.conftest import SENDER, StubEngine, bearer, view_of
from worker.stores import Stores

OTTO = bearer("otto-token")


@pytest.fixture
def empty(world: World, registry: Registry) -> Node:
    cluster = registry.cluster("sim-a")
    return next(n for n in world.nodes("sim-a") if n.gpus and all(p.tier == "daemon" for p in cluster.pods(n.name)))


async def begin(client: httpx.AsyncClient, on: Node, who: dict[str, str] = OTTO, **given: Any) -> httpx.Response:
    order = {"node": on.name, "cluster": on.cluster, "fault": "xid/79", "reason": "before the night"} | given
    return await client.post("/v1/drills", json=order, headers=who)


async def test_it_is_told_to_the_nodes_workflow_as_a_drill(
    client: httpx.AsyncClient, engine: StubEngine, empty: Node
) -> None:
    answer = await begin(client, empty)
    assert answer.status_code == 202, answer.text
    ((cluster, name, event),) = engine.reported
    assert (cluster, name, event.fault, event.source) == ("sim-a", empty.name, "xid/79", "drill")
    assert event.detail["drill"] is True
    assert event.fault_class == "critical"
    assert "otto" in event.summary


async def test_a_node_with_work_is_refused(
    client: httpx.AsyncClient, engine: StubEngine, registry: Registry, world: World
) -> None:
    cluster = registry.cluster("sim-a")
    busy = next(n for n in world.nodes("sim-a") if any(p.tier == "workload" for p in cluster.pods(n.name)))
    answer = await begin(client, busy)
    assert answer.status_code == 409
    assert "pods run on" in answer.text
    assert not engine.reported


async def test_a_node_that_somebody_keeps_or_that_is_in_an_incident_is_refused(
    client: httpx.AsyncClient, engine: StubEngine, world: World, stores: Stores, empty: Node
) -> None:
    world.cordon(empty.name, "alice", "sim-a")
    answer = await begin(client, empty)
    assert (answer.status_code, "alice keeps" in answer.text) == (409, True)
    world.uncordon(empty.name, "sim-a")
    stores.ledger.upsert_incident(view_of(empty))
    answer = await begin(client, empty)
    assert (answer.status_code, "is in incident inc-1" in answer.text) == (409, True)
    assert not engine.reported


async def test_what_cannot_be_read_is_no_empty_node(
    client: httpx.AsyncClient, engine: StubEngine, registry: Registry, empty: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(name: str) -> Any:
        raise Unreadable("no answer")

    monkeypatch.setattr(registry.cluster("sim-a"), "pods", down)
    assert (await begin(client, empty)).status_code == 503
    assert not engine.reported


@pytest.mark.parametrize(("given", "status"), [({"fault": "xid/13"}, 422), ({"node": "nosuch"}, 404)])
async def test_what_has_no_ladder_or_no_node_is_refused(
    client: httpx.AsyncClient, engine: StubEngine, empty: Node, given: dict[str, Any], status: int
) -> None:
    assert (await begin(client, empty, **given)).status_code == status
    assert not engine.reported


async def test_only_who_may_operate_and_never_a_payload(
    client: httpx.AsyncClient, engine: StubEngine, empty: Node
) -> None:
    assert (await begin(client, empty, bearer("vera-token"))).status_code == 403
    assert (await begin(client, empty, {})).status_code == 401
    payload = json.dumps({"node": empty.name, "fault": "xid/79", "source": "drill", "detail": {"drill": True}})
    await client.post("/v1/events/generic", content=payload, headers=SENDER)
    assert not [event for _, _, event in engine.reported if event.source == "drill"]
    assert (await client.post("/v1/events/drill", content=payload, headers=SENDER)).status_code >= 400
