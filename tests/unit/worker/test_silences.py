"""Silences through the gateway: who may, what is refused, whom they keep quiet, and what they never hide."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from temporalio.testing import ActivityEnvironment

from activities import signatures as sig
from activities.failures import Bounded
from activities.folding import Folding
from activities.intended import SendOnce
from activities.messaging import MessageActivities
from activities.quietly import Quietly
from medevac.fleet.node import Node
from medevac.incident import State, StepKey
from medevac.policy.silences import Holds, Matcher, Silence
from tests.unit.worker.conftest import StubEngine, bearer, view_of
from worker.stores import Stores

OTTO, VERA = bearer("otto-token"), bearer("vera-token")
NOW = datetime.now(UTC)


def wish(**changed: Any) -> dict[str, Any]:
    return {"matcher": {"node": "n1"}, "reason": "we debug it", "for_s": 3_600, "holds": ["mark"]} | changed


async def test_one_is_made_listed_and_ended(client: httpx.AsyncClient, stores: Stores) -> None:
    made = await client.post("/v1/silences", json=wish(), headers=OTTO)
    assert made.status_code == 200, made.text
    id = made.json()["silence"]["id"]
    listed = (await client.get("/v1/silences", headers=VERA)).json()
    assert [(one["id"], one["by"]) for one in listed] == [(id, "otto")]
    assert (await client.post(f"/v1/silences/{id}/end", headers=OTTO)).status_code == 200
    assert (await client.get("/v1/silences", headers=VERA)).json() == []
    (kept,) = (await client.get("/v1/silences", params={"standing": False}, headers=VERA)).json()
    assert kept["ended_by"] == "otto"
    again = await client.post(f"/v1/silences/{id}/end", headers=bearer("ada-token"))
    assert "otto" in again.json()["answer"], "the first word stays"


@pytest.mark.parametrize(
    "changed",
    [{"matcher": {}}, {"matcher": {"node": None}}, {"for_s": 8 * 86_400}, {"for_s": 0}, {"reason": " "}, {"holds": []},
     {"holds": ["everything"]}, {"matcher": {"nodes": "x"}}],
)  # fmt: skip
async def test_what_is_too_much_is_refused(client: httpx.AsyncClient, stores: Stores, changed: dict[str, Any]) -> None:
    assert (await client.post("/v1/silences", json=wish(**changed), headers=OTTO)).status_code == 422
    assert stores.silences.latest() == []


async def test_one_that_holds_nobody_stands_and_says_so(client: httpx.AsyncClient, node: Node) -> None:
    for matcher, doubtful in (
        ({"node": node.name}, False),
        ({"cluster": "sim-a", "pool": "train"}, False),
        ({"fault": "xid/79"}, False),
        ({"node": f"{node.name}9"}, True),
        ({"cluster": "sim-b", "node": node.name}, True),
        ({"pool": "trian"}, True),
    ):
        made = await client.post("/v1/silences", json=wish(matcher=matcher), headers=OTTO)
        assert (made.status_code, "BUT nothing here is called that" in made.json()["answer"]) == (200, doubtful), (
            matcher
        )


async def test_without_an_end_it_is_refused(client: httpx.AsyncClient) -> None:
    body = wish()
    del body["for_s"]
    assert (await client.post("/v1/silences", json=body, headers=OTTO)).status_code == 422


async def test_a_viewer_may_look_and_not_silence(client: httpx.AsyncClient, stores: Stores) -> None:
    assert (await client.post("/v1/silences", json=wish(), headers=VERA)).status_code == 403
    assert (await client.post("/v1/silences/s-1/end", headers=VERA)).status_code == 403
    assert (await client.post("/v1/silences", json=wish())).status_code == 401
    assert (await client.post("/v1/silences/s-unknown/end", headers=OTTO)).status_code == 404
    assert stores.silences.latest() == []


async def test_its_end_lets_those_look_again_that_it_held(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine, node: Node
) -> None:
    stores.ledger.upsert_incident(view_of(node))
    stores.ledger.upsert_incident(view_of(node.model_copy(update={"name": "another"}), id="inc-2"))
    made = await client.post("/v1/silences", json=wish(matcher={"node": node.name}), headers=OTTO)
    await client.post(f"/v1/silences/{made.json()['silence']['id']}/end", headers=OTTO)
    assert engine.woken == [f"node/{node.cluster}/{node.name}"]


def test_it_keeps_quiet_what_is_not_latched_and_nothing_else(stores: Stores, node: Node) -> None:
    quietly = Quietly(stores.ledger, stores.policies, stores.silences)
    stores.silences.add(
        Silence(
            id="s-1", by="otto", reason="loud", at=NOW - timedelta(hours=1), until=NOW + timedelta(hours=1),
            matcher=Matcher(node=node.name), holds=(Holds.NOTIFY,),
        )
    )  # fmt: skip
    warm = view_of(node, fault="thermal/gpu-temp", faults=("thermal/gpu-temp",), state=State.HANDED_OVER)
    stores.ledger.upsert_incident(warm)
    stores.ledger.upsert_incident(view_of(node, id="inc-2", fault="xid/79", faults=("xid/79",)))
    stores.ledger.upsert_incident(
        view_of(node.model_copy(update={"name": "another"}), id="inc-3", fault="thermal/gpu-temp")
    )
    assert "otto" in quietly.of("inc-1", NOW)
    assert quietly.of("inc-1", NOW + timedelta(hours=2)) == ""
    assert quietly.of("inc-2", NOW) == "", "a latched fault is always told"
    assert quietly.of("inc-3", NOW) == ""
    assert quietly.of("unknown", NOW) == ""


async def test_people_are_not_told_in_chat_meanwhile(stores: Stores, node: Node, world: Any, registry: Any) -> None:
    bounded = Bounded()
    messages = MessageActivities(
        registry, SendOnce(stores.ledger, bounded), Folding(stores.ledger, bounded),
        quietly=Quietly(stores.ledger, stores.policies, stores.silences),
    )  # fmt: skip
    stores.ledger.upsert_incident(view_of(node, fault="thermal/gpu-temp"))
    matcher = Matcher(node=node.name)
    silence = Silence(
        id="s-1", by="o", reason="r", at=NOW - timedelta(hours=1), until=NOW + timedelta(hours=1), matcher=matcher,
        holds=(Holds.NOTIFY,),
    )  # fmt: skip
    stores.silences.add(silence)
    request = sig.NotifyRequest(key=StepKey(incident="inc-1", step="notify"), thread="t", text="warm", topic="observed")
    inside = ActivityEnvironment()
    assert "nobody was told" in inside.run(messages.notify, request).reason
    assert world.messages() == []
    stores.silences.end("s-1", "o", NOW)
    inside.run(messages.notify, request)
    assert world.messages() == ["warm"]
