"""Nodes that a person or NVSentinel took out before medevac knew them: taken over, and left exactly as they were."""

from __future__ import annotations

import httpx
import pytest

from activities.ports import Mark
from activities.registry import Registry
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import NoMachines
from tests.integration.kubernetes.site import Site, as_left, written
from tests.integration.kubernetes.test_others import LEFT
from tests.unit.worker.conftest import StubEngine, bearer, client, engine, services, stores  # noqa: F401
from worker.parts import LogChat

OTTO = bearer("otto-token")


@pytest.fixture
def registry(connect: Connect) -> Registry:
    return Registry(clusters=[connect()], providers=[NoMachines()], chat=LogChat())


@pytest.fixture
def out(site: Site) -> list[str]:
    """One by NVSentinel, one by a person with kubectl; and one in service."""
    names = [site.add_node() for _ in range(3)]
    site.patch(site.node_path(names[0]), LEFT["NVSentinel"][0], manager="fault-quarantine")
    site.cordon(names[1], "kubectl-cordon")
    return names


async def test_they_are_listed_with_who_it_was(client: httpx.AsyncClient, out: list[str]) -> None:  # noqa: F811
    listed = (await client.get("/v1/adoptable", headers=OTTO)).json()
    assert {one["node"]: one["by"] for one in listed if one["node"] in out} == {
        out[0]: "NVSentinel",
        out[1]: "kubectl-cordon",
    }


async def test_adopting_leaves_the_node_exactly_as_it_was(
    client: httpx.AsyncClient,  # noqa: F811
    engine: StubEngine,  # noqa: F811
    site: Site,
    out: list[str],
) -> None:
    before = site.node(out[0])
    dry = await client.post("/v1/adoptable", json={"by": "NVSentinel", "dry_run": True}, headers=OTTO)
    assert [one["node"] for one in dry.json()["nodes"]] == [out[0]]
    assert engine.reported == []
    answer = await client.post("/v1/adoptable", json={"by": "NVSentinel", "reason": "handover"}, headers=OTTO)
    assert answer.status_code == 202, answer.text
    [(cluster, name, event)] = engine.reported
    assert (cluster, name) == ("real", out[0])
    assert (event.fault, event.actionable) == ("adopted/unknown", False)
    assert "NVSentinel" in event.summary
    after = site.node(out[0])
    assert as_left(after) == as_left(before), "nothing was written to it"
    assert after["spec"]["unschedulable"]


async def test_nothing_given_adopts_nothing(
    client: httpx.AsyncClient,  # noqa: F811
    engine: StubEngine,  # noqa: F811
    out: list[str],
) -> None:
    assert (await client.post("/v1/adoptable", json={}, headers=OTTO)).status_code == 422
    assert engine.reported == []


def test_a_mark_of_ours_on_it_keeps_who_it_was_and_goes_without_the_cordon(
    registry: Registry, site: Site, out: list[str]
) -> None:
    """A real fault joins an adopted node later: the mark remembers NVSentinel, and its end uncordons nothing."""
    cluster = registry.cluster("real")
    cluster.mark(out[0], Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason=""))
    assert written(site.node(out[0]))["before"] == {"unschedulable": True, "cordoned_by": "NVSentinel"}
    cluster.lift(out[0], "inc-1")
    node = cluster.node(out[0])
    assert node is not None
    assert (node.schedulable, node.foreign_cordon, node.marked_by) == (False, "NVSentinel", None)
