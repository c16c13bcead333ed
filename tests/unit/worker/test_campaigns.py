"""Campaigns at the gateway: listed, asked about, moved by those who may; and their clock is wound where it stopped."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest
from temporalio.testing import ActivityEnvironment

from activities import signatures as sig
from activities.campaign_world import CampaignWorld
from activities.campaigning import CampaignActivities
from activities.census import CensusTaker
from activities.failures import Bounded
from activities.registry import Registry
from medevac.campaigns.progress import CampaignState, NodeState
from medevac.incident import State
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, bearer, view_of
from worker.stores import Stores

VERA, OTTO, ADA = (bearer(f"{who}-token") for who in ("vera", "otto", "ada"))
WISH = {"id": "driver-580", "act": "check", "reason": "after the move", "selector": {"clusters": ["sim-a"]}}


async def post(client: httpx.AsyncClient, path: str, body: dict[str, Any], who: dict[str, str] = OTTO) -> Any:
    answer = await client.post(f"/v1/campaigns{path}", json=body, headers=who)
    return answer.status_code, answer.json()


async def started(client: httpx.AsyncClient) -> list[str]:
    _, planned = await post(client, "/plan", WISH)
    assert "plan_hash" in planned, planned
    status, answer = await post(client, "", {**WISH, "plan_hash": planned["plan_hash"]})
    assert status == 202, answer
    return [member["node"] for member in planned["plan"]["members"]]


async def test_the_plan_begins_nothing_and_the_start_asks(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, world: World
) -> None:
    listed = await started(client)
    assert listed
    assert engine.campaigns == [("driver-580", CampaignState.ASKED)]
    row = stores.campaigns.get("driver-580")
    assert row is not None
    assert (row.state, row.requested_by) == (CampaignState.ASKED, "otto")
    assert world.effects() == []
    again = {**WISH, "plan_hash": row.plan_hash}
    assert (await post(client, "", again))[0] == 202, "whose answer was lost, asks again"
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", row.at)
    status, answer = await post(client, "", again)
    assert (status, "already" in answer["error"]) == (409, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"selector": {}},
        {"selector": {"pools": ["*"]}},
        {"id": "Not A Name"},
        {"act": "explode"},
        {"requested_by": "ada"},
    ],
)
async def test_what_is_wrong_is_refused(client: httpx.AsyncClient, wrong: dict[str, Any]) -> None:
    status, _ = await post(client, "/plan", WISH | wrong)
    assert status == 422


async def test_anyone_stops_it_and_only_approvers_let_a_halted_one_go_on(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    await started(client)
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", _now(stores))
    for what, who, status in (
        ("pause", VERA, 200), ("resume", VERA, 403), ("resume", OTTO, 200), ("halt", VERA, 200),
        ("resume", OTTO, 403), ("widen", ADA, 409), ("resume", ADA, 200), ("end", OTTO, 200), ("halt", ADA, 409),
    ):  # fmt: skip
        found, answer = await post(client, f"/driver-580/{what}", {"reason": "because"}, who)
        assert found == status, (what, answer)
    assert engine.woken == ["campaign/driver-580"] * 5
    assert (await post(client, "/nothing/halt", {}, VERA))[0] == 404


@pytest.mark.parametrize("stop", ["halt", "end"])
async def test_one_that_waits_for_its_yes_is_over_when_it_is_stopped(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, stop: str
) -> None:
    await started(client)
    status, answer = await post(
        client, f"/driver-580/{stop}", {"reason": "wrong rack"}, VERA if stop == "halt" else OTTO
    )
    assert (status, "is ended by" in answer["answer"]) == (200, True)
    assert engine.woken == ["campaign/driver-580"]
    assert (await post(client, "/driver-580/resume", {}, ADA))[0] == 409


async def test_a_stop_stands_though_temporal_is_down_and_says_so(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    await started(client)
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", _now(stores))
    engine.down = True
    status, answer = await post(client, "/driver-580/halt", {"reason": "smoke"}, VERA)
    assert (status, "is halted by vera" in answer["answer"]) == (200, True)
    row = stores.campaigns.get("driver-580")
    assert row is not None
    assert row.state is CampaignState.HALTED


async def test_who_lets_it_go_on_after_it_halted_itself_has_weighed_what_was_seen(
    client: httpx.AsyncClient, stores: Stores
) -> None:
    listed = await started(client)
    now = _now(stores)
    failed = {"state": NodeState.FAILED, "sent_at": now, "over_at": now}
    stores.campaigns.change("driver-580", {f"sim-a/{node}": failed for node in listed[:2]})
    for why, known in (("halted by vera: smoke", None), ("it failed on 2 of 2 nodes", 2)):
        stores.campaigns.move("driver-580", CampaignState.HALTED, why, now)
        assert (await post(client, "/driver-580/resume", {"reason": "a broken BMC"}, ADA))[0] == 200
        row = stores.campaigns.get("driver-580")
        assert row is not None
        assert (row.known and row.known.failed) == known


async def test_a_node_in_hand_says_what_it_waits_for(
    client: httpx.AsyncClient, stores: Stores, registry: Registry, world: World
) -> None:
    wish = WISH | {"act": "reboot", "selector": {"clusters": ["sim-a"], "pools": ["train"]}}
    _, planned = await post(client, "/plan", wish)
    assert (await post(client, "", wish | {"plan_hash": planned["plan_hash"]}))[0] == 202
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", _now(stores))
    seen = CampaignWorld(stores.database, CensusTaker(registry, stores.policies, Bounded(2)))
    told: list[str] = []
    acts = CampaignActivities(stores.campaigns, seen, registry, lambda cluster, name, event: told.append(name))
    step = partial(ActivityEnvironment().run, acts.step)
    step(sig.CampaignStepRequest(campaign="driver-580", n=1))
    node = world.node(told[0], "sim-a")
    assert node is not None
    fault = "campaign/driver-580"
    waits = view_of(node, fault=fault, faults=(fault,), state=State.WAITING_LEASE, waiting_for="a spare")
    stores.ledger.upsert_incident(waits)
    step(sig.CampaignStepRequest(campaign="driver-580", n=2))
    first = stores.campaigns.nodes("driver-580")[0]
    assert (first.node, first.state, first.incident) == (node.name, NodeState.SENT, waits.id)
    assert (first.why, first.over_at) == ("waiting_lease, waits for a spare", None)


def _now(stores: Stores) -> Any:
    row = stores.campaigns.get("driver-580")
    assert row is not None
    return row.at
