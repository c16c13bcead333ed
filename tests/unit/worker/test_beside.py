"""Other remediators: the doctor lists them and what to do, and `coexist: own` isn't taken while they act."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from activities.registry import Registry
from medevac.fleet.remediator import Remediator, Switch
from medevac.policy.loading import preset
from simulation.world import World
from tests.unit.worker.conftest import bearer
from worker import doctor
from worker.beside import beside
from worker.doctor import House
from worker.parts import Built
from worker.settings import Settings
from worker.stores import Stores

ADA, GRACE = bearer("ada-token"), bearer("grace-token")
DEMO = preset("demo")
OFF = "kubectl -n nvsentinel scale deployment fault-quarantine --replicas=0"
ACTS = Remediator(name="NVSentinel", switch=Switch.ON, seen="deployment nvsentinel/fault-quarantine", off=OFF)
PERHAPS = Remediator(name="GKE node auto-repair", switch=Switch.OUTSIDE, seen="node pool train", off="gcloud ...")


def says(coexist: str) -> str:
    """The demo's policy with its pools' word on others."""
    return DEMO.replace("mode: auto", f"mode: auto\n    coexist: {coexist}")


@pytest.fixture
def examined(registry: Registry, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The doctor looks at this test's parts."""
    monkeypatch.setattr(doctor, "find_config", lambda settings: None)
    monkeypatch.setattr(doctor, "build_parts", lambda config, data_dir: Built.of(registry))
    monkeypatch.setattr(doctor, "open_stores", lambda url: stores)
    return Settings()


async def apply(client: httpx.AsyncClient, text: str) -> httpx.Response:
    return await client.post("/v1/policy/apply", json={"text": text}, headers=ADA)


async def test_own_is_refused_while_the_other_acts_and_taken_once_it_is_off(
    client: httpx.AsyncClient, world: World, stores: Stores
) -> None:
    world.remediators(ACTS, cluster="sim-a")
    refused = await apply(client, says("own"))
    assert refused.status_code == 422
    assert OFF in refused.json()["error"]
    world.remediators(cluster="sim-a")
    proposed = (await apply(client, says("own"))).json()
    assert proposed["state"] == "proposed"
    world.remediators(ACTS, cluster="sim-a")
    path = f"/v1/policy/versions/{proposed['version']}/approve"
    late = await client.post(path, json={}, headers=GRACE)
    assert late.status_code in (409, 422), "it was switched on again in between"
    world.remediators(cluster="sim-a")
    assert (await client.post(path, json={}, headers=GRACE)).json()["state"] == "active"


async def test_where_only_a_person_can_know_the_command_is_printed(client: httpx.AsyncClient, world: World) -> None:
    world.remediators(PERHAPS, cluster="sim-a")
    answer = (await apply(client, says("own"))).json()
    assert answer["state"] == "proposed"
    assert "gcloud" in answer["text"]


async def test_yield_needs_nothing_of_the_other(client: httpx.AsyncClient, world: World) -> None:
    world.remediators(ACTS, cluster="sim-a")
    assert (await apply(client, says("yield"))).json()["state"] == "proposed"


def test_each_pool_shows_its_own(registry: Registry, world: World, stores: Stores) -> None:
    assert beside(stores.policies.active().policy, registry) == []
    world.remediators(PERHAPS, ACTS, cluster="sim-a")
    found = beside(stores.policies.active().policy, registry)
    assert found
    for one in found:
        assert [there.name for there in one.remediators] == ["GKE node auto-repair", "NVSentinel"]
        assert one.of > 0


@pytest.mark.parametrize(("policy", "ok"), [(DEMO, False), (says("own"), False), (says("yield"), True)])
async def test_the_doctor_lists_them_and_what_to_do(
    examined: Settings, world: World, stores: Stores, policy: str, ok: bool
) -> None:
    from datetime import UTC, datetime

    assert "none" in await doctor._others(House(examined))
    world.remediators(ACTS, cluster="sim-a")
    now = datetime.now(UTC)
    stores.policies.activate(stores.policies.propose(policy, "ada", now), "bob", now)
    said: Any
    try:
        said, fix = await doctor._others(House(examined)), ""
    except doctor._Bad as bad:
        said, fix = str(bad), bad.fix
    assert "NVSentinel" in said
    assert (fix == "") == ok
    assert ok or OFF in fix
