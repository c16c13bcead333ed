"""How the active policy changes: narrowing at once, widening with a second person, a wrong one never."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from medevac.fleet.node import Node
from medevac.policy.loading import preset
from simulation import senders
from simulation.world import World
from tests.unit.worker.conftest import SENDER, bearer
from worker.stores import Stores

OTTO, ADA, GRACE = (bearer(f"{who}-token") for who in ("otto", "ada", "grace"))
DEMO = preset("demo")
NARROW = DEMO.replace("mode: auto", "mode: observe")
WIDER = DEMO.replace("cluster: {count: 6, percent: 0}", "cluster: {count: 7, percent: 0}")


async def call(client: httpx.AsyncClient, path: str, who: dict[str, str], **body: object) -> httpx.Response:
    return await client.post(f"/v1/policy/{path}", json=body, headers=who)


def active(stores: Stores) -> str:
    return stores.policies.active().text


@pytest.mark.parametrize("text", ["", "mode: [", "version: 1\nname: x\npoolz: {}\n", "- 1"])
async def test_a_wrong_policy_is_refused_with_its_place_and_never_replaces_a_good_one(
    client: httpx.AsyncClient, stores: Stores, text: str
) -> None:
    for path in ("diff", "apply"):
        answer = await call(client, path, ADA, text=text, origin="my.yaml")
        assert answer.status_code == 422
        assert answer.json()["error"].startswith("my.yaml:")
    assert active(stores) == DEMO


async def test_a_narrowing_applies_at_once(client: httpx.AsyncClient, stores: Stores) -> None:
    answer = await call(client, "apply", OTTO, text=NARROW)
    assert answer.json()["state"] == "active", answer.text
    assert active(stores) == NARROW


async def test_a_widening_takes_an_approver_and_a_second_person(client: httpx.AsyncClient, stores: Stores) -> None:
    refused = await call(client, "apply", OTTO, text=WIDER)
    assert refused.status_code == 422
    proposed = (await call(client, "apply", ADA, text=WIDER)).json()
    assert proposed["state"] == "proposed"
    assert active(stores) == DEMO
    path = f"versions/{proposed['version']}/approve"
    assert (await call(client, path, ADA)).status_code == 409, "its author can't approve it"
    assert (await call(client, path, OTTO)).status_code == 403
    assert (await call(client, path, GRACE)).json()["state"] == "active"
    assert active(stores) == WIDER


async def test_one_person_alone_never_widens_by_bringing_back_an_old_version(
    client: httpx.AsyncClient, stores: Stores
) -> None:
    first = stores.policies.active().version
    await call(client, "apply", ADA, text=NARROW)
    assert (await call(client, f"versions/{first}/approve", GRACE)).status_code == 409
    again = (await call(client, "apply", GRACE, text=DEMO)).json()
    assert again["state"] == "proposed"
    assert (await call(client, f"versions/{again['version']}/approve", GRACE)).status_code == 409
    back = (await call(client, "rollback", GRACE)).json()
    assert back["state"] == "proposed", "a rollback that widens takes a second person as well"
    assert active(stores) == NARROW
    assert (await call(client, f"versions/{back['version']}/approve", ADA)).json()["state"] == "active"
    assert active(stores).startswith(DEMO.rstrip())


async def test_a_rollback_that_narrows_is_one_command(client: httpx.AsyncClient, stores: Stores) -> None:
    version = (await call(client, "apply", ADA, text=WIDER)).json()["version"]
    await call(client, f"versions/{version}/approve", GRACE)
    assert (await call(client, "rollback", OTTO)).json()["state"] == "active"
    assert active(stores) == DEMO


async def test_the_diff_names_the_nodes_that_would_be_treated_otherwise(client: httpx.AsyncClient, node: Node) -> None:
    sent = senders.alertmanager_xid(node, 79, datetime.now(UTC))
    assert (await client.post(sent.path, content=sent.body, headers=SENDER)).status_code == 202
    found = (await call(client, "diff", OTTO, text=NARROW)).json()
    assert not found["widening"]
    [row] = found["last_days"]
    assert (row["node"], row["fault"]) == (node.name, "xid/79")
    assert "observe" in row["new"]
    assert "observe" not in row["old"]


async def test_a_threshold_that_many_exceed_now_must_be_accepted(
    client: httpx.AsyncClient, stores: Stores, node: Node, world: World
) -> None:
    lower = DEMO.replace("above: 88, clear_below: 85", "above: 70, clear_below: 65")
    assert lower != DEMO
    sent = senders.measurement(node, "gpu_temp", 75, datetime.now(UTC))
    assert (await client.post(sent.path, content=sent.body, headers=SENDER)).status_code == 202
    [told] = (await call(client, "diff", ADA, text=lower)).json()["exceeding"]
    assert told["nodes"] == [node.name]
    refused = await call(client, "apply", ADA, text=lower)
    assert refused.status_code == 422
    assert node.name in refused.json()["error"]
    accepted = await call(client, "apply", ADA, text=lower, accept=True)
    assert accepted.status_code == 200, accepted.text
    assert active(stores) == DEMO, "it widens, so a second person must approve it"
