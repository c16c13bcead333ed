"""Reads and people's orders: who may, what is sent to which workflow, and how late ones are answered."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from activities.ports import Unreadable
from medevac.approvals.approval import ApprovalResult, ApprovalState, ApprovalView, Vote, Waiter
from medevac.approvals.signing import Signatures
from medevac.fleet.node import Node
from medevac.incident import End, Line, StepKey
from medevac.policy.plan import ApprovalNeed
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, bearer, view_of
from tests.votes import KEYS
from worker.engine import NotRunning
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores

VERA, OTTO, ADA, GRACE = (bearer(f"{who}-token") for who in ("vera", "otto", "ada", "grace"))
NOW = datetime.now(UTC)


def asked(**changed: object) -> ApprovalView:
    view = ApprovalView(
        id="inc-1/1",
        workflow_id="approval/inc-1/1",
        title="replace gpu-1?",
        state=ApprovalState.PENDING,
        fleet_wide=False,
        need=ApprovalNeed(groups=("approver",), expires_s=3_600, why=("replace",)),
        requested_by="medevac",
        requested_at=NOW,
        expires_at=NOW + timedelta(hours=1),
        waiters=(
            Waiter(
                incident="inc-1", workflow_id="node/sim-a/n", cluster="sim-a", node="n", plan_hash="h", text="replace"
            ),
        ),
        shown_hash="0123456789abcdef",
    )
    return view.model_copy(update=changed)


BALLOT = {"verdict": "approve", "shown_hash": "0123456789abcdef"}


async def test_reads_take_a_persons_token(client: httpx.AsyncClient) -> None:
    for path in ("/v1/incidents", "/v1/approvals", "/v1/fences", "/v1/policy", "/v1/adoptable"):
        assert (await client.get(path)).status_code == 401, path
        assert (await client.get(path, headers=bearer("prometheus-token"))).status_code == 401, path
        assert (await client.get(path, headers=VERA)).status_code == 200, path


async def test_an_incident_is_told_with_its_lines(client: httpx.AsyncClient, stores: Stores, node: Node) -> None:
    stores.ledger.upsert_incident(view_of(node))
    stores.ledger.add_lines([Line(key=StepKey(incident="inc-1", step="mark"), at=NOW, kind="step", text="marked")])
    listed = (await client.get("/v1/incidents", headers=VERA)).json()
    assert [one["id"] for one in listed] == ["inc-1"]
    told = (await client.get("/v1/incidents/inc-1", headers=VERA)).json()
    assert told["incident"]["node"] == node.name
    assert [line["text"] for line in told["lines"]] == ["marked"]
    assert (await client.get("/v1/incidents/inc-9", headers=VERA)).status_code == 404


@pytest.mark.parametrize(
    ("order", "body", "least"),
    [
        ("hold", {"reason": "look first", "for_s": 60}, VERA),
        ("resume", {}, OTTO),
        ("abort", {"reason": "wrong node"}, OTTO),
        ("assign", {"owner": "ada"}, OTTO),
        ("confirm-repaired", {}, OTTO),
    ],
)
async def test_orders_reach_the_workflow_as_the_person_who_signed_in(
    client: httpx.AsyncClient,
    engine: StubEngine,
    stores: Stores,
    node: Node,
    order: str,
    body: dict[str, object],
    least: dict[str, str],
) -> None:
    stores.ledger.upsert_incident(view_of(node))
    path = f"/v1/incidents/inc-1/{order}"
    if least is not VERA:
        refused = await client.post(path, json=body, headers=VERA)
        assert refused.status_code == 403
        assert engine.told == []
    answer = await client.post(path, json=body, headers=least)
    assert answer.status_code == 200, answer.text
    [(workflow_id, update, argument, _)] = engine.told
    assert workflow_id == f"node/sim-a/{node.name}"
    assert update == order.replace("-", "_")
    assert ("vera" if least is VERA else "otto") in argument.model_dump_json()


async def test_an_order_repeated_with_its_key_is_one_order(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(view_of(node))
    for key in ("k1", "k1", "k2"):
        headers = {**OTTO, "Idempotency-Key": key}
        await client.post("/v1/incidents/inc-1/resume", json={}, headers=headers)
    ids = [update_id for *_, update_id in engine.told]
    assert ids[0] == ids[1] != ids[2]


async def test_an_ended_incident_takes_no_orders(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(view_of(node, end=End.RETURNED))
    answer = await client.post("/v1/incidents/inc-1/abort", json={"reason": "x"}, headers=OTTO)
    assert answer.status_code == 409
    assert "returned" in answer.json()["error"]
    assert engine.told == []


async def test_what_the_workflow_declines_is_said(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(view_of(node))
    engine.declines = "a hold needs a reason"
    answer = await client.post("/v1/incidents/inc-1/hold", json={"reason": "x"}, headers=VERA)
    assert (answer.status_code, answer.json()["error"]) == (409, "a hold needs a reason")


async def test_a_vote_carries_the_gateways_own_word_of_who_votes(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    stores.ledger.upsert_approval(asked())
    forged = {**BALLOT, "voter": "grace", "groups": ["approver"]}
    assert (await client.post("/v1/approvals/inc-1/1/votes", json=forged, headers=VERA)).status_code == 422
    answer = await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=ADA)
    assert answer.status_code == 200, answer.text
    [vote] = engine.votes
    assert (vote.voter, vote.groups, vote.approval, vote.via) == ("ada", ("approver",), "inc-1/1", "api")
    assert Signatures(KEYS).genuine(vote)


async def test_without_a_vote_key_nobody_votes_and_it_says_what_to_do(services: Services, stores: Stores) -> None:
    stores.ledger.upsert_approval(asked())
    keyless = create_app(dataclasses.replace(services, signer=None))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=keyless), base_url="http://gateway") as client:
        answer = await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=ADA)
    assert answer.status_code == 503
    assert "MEDEVAC_VOTE_KEY" in answer.json()["error"]


async def test_a_late_vote_is_answered_from_the_ledger(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    result = ApprovalResult(id="inc-1/1", state=ApprovalState.REJECTED, by=("grace",), reason="busy", decided_at=NOW)
    stores.ledger.upsert_approval(asked(state=ApprovalState.REJECTED, result=result))
    engine.gone = True
    answer = await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=ADA)
    assert answer.status_code == 409
    for word in ("too late", "rejected by grace", "busy"):
        assert word in answer.json()["error"]
    assert engine.votes == []


@pytest.mark.parametrize("seen", ["decided at once", "decided while it was sent"])
async def test_the_vote_that_decided_is_told_so_when_it_is_sent_again(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    """Its first answer was a 503: it must not hear now that it came too late."""
    stores.ledger.upsert_approval(asked())
    assert (await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=ADA)).status_code == 200
    result = ApprovalResult(id="inc-1/1", state=ApprovalState.APPROVED, by=("ada",), decided_at=NOW)
    decided = asked(state=ApprovalState.APPROVED, result=result, votes=tuple(engine.votes), rev=9)
    engine.gone = True
    if seen == "decided at once":
        stores.ledger.upsert_approval(decided)
    else:

        async def gone(vote: Vote) -> str:
            stores.ledger.upsert_approval(decided)
            raise NotRunning("it")

        monkeypatch.setattr(engine, "vote", gone)
    again = await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=ADA)
    assert (again.status_code, again.json()["answer"]) == (200, "approved by ada")
    other = await client.post("/v1/approvals/inc-1/1/votes", json={**BALLOT, "verdict": "reject"}, headers=ADA)
    assert other.status_code == 409, "another word is too late all the same"
    late = await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=GRACE)
    assert (late.status_code, "too late" in late.json()["error"]) == (409, True)


async def test_a_vote_before_its_workflow_runs_is_asked_for_again_not_called_late(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    stores.ledger.upsert_approval(asked())
    engine.gone = True
    answer = await client.post("/v1/approvals/inc-1/1/votes", json=BALLOT, headers=ADA)
    assert answer.status_code == 503
    assert "again" in answer.json()["error"]


async def test_one_person_freezes_and_two_thaw(client: httpx.AsyncClient, stores: Stores, node: Node) -> None:
    order = {"scope": "cluster/sim-a", "reason": "storage trouble"}
    assert (await client.post("/v1/fences/freeze", json=order, headers=VERA)).status_code == 200
    assert stores.fences.blocking("sim-a", node.name) is not None
    assert (await client.post("/v1/fences/thaw", json={"scope": "cluster/sim-a"}, headers=VERA)).status_code == 403
    first = await client.post("/v1/fences/thaw", json={"scope": "cluster/sim-a"}, headers=OTTO)
    assert "stays frozen" in first.json()["answer"]
    again = await client.post("/v1/fences/thaw", json={"scope": "cluster/sim-a"}, headers=OTTO)
    assert "stays frozen" in again.json()["answer"]
    await client.post("/v1/fences/thaw", json={"scope": "cluster/sim-a"}, headers=ADA)
    assert stores.fences.blocking("sim-a", node.name) is None


async def test_an_empty_or_unknown_scope_is_an_error_never_all(client: httpx.AsyncClient, stores: Stores) -> None:
    for scope, reason in (("", "x"), ("cluster/", "x"), ("everything", "x"), ("pool/sim-a", "x"), ("all", " ")):
        answer = await client.post("/v1/fences/freeze", json={"scope": scope, "reason": reason}, headers=VERA)
        assert answer.status_code == 422, scope
    assert list(stores.fences.active()) == []


async def test_a_freeze_that_holds_nobody_stands_and_says_so(client: httpx.AsyncClient, node: Node) -> None:
    for scope in (
        "all",
        "cluster/sim-a",
        f"provider/{node.machine.provider}",
        f"node/sim-a/{node.name}",
        "pool/sim-a/train",
    ):
        answer = await client.post("/v1/fences/freeze", json={"scope": scope, "reason": "x"}, headers=VERA)
        assert "BUT" not in answer.json()["answer"], scope
    for scope in ("cluster/sim-z", "provider/skyl1ne", "node/sim-a/gpu-x", "node/sim-z/gpu-x", "pool/sim-a/trian"):
        answer = await client.post("/v1/fences/freeze", json={"scope": scope, "reason": "x"}, headers=VERA)
        assert (answer.status_code, "BUT nothing here is called that" in answer.json()["answer"]) == (200, True), scope


async def test_what_was_out_before_is_listed_and_adopted_without_a_step(
    client: httpx.AsyncClient, engine: StubEngine, world: World, stores: Stores, node: Node
) -> None:
    world.cordon(node.name, "bob", cluster="sim-a")
    [listed] = (await client.get("/v1/adoptable", headers=VERA)).json()
    assert (listed["node"], listed["why"]) == (node.name, "cordoned by bob")
    assert (await client.post("/v1/adoptable", json={"node": node.name}, headers=VERA)).status_code == 403
    answer = await client.post("/v1/adoptable", json={"node": node.name, "cluster": "sim-a"}, headers=OTTO)
    assert answer.status_code == 202, answer.text
    [(_, name, event)] = engine.reported
    assert (name, event.actionable, event.fault) == (node.name, False, "adopted/unknown")
    unknown = await client.post("/v1/adoptable", json={"node": "no-such"}, headers=OTTO)
    assert unknown.status_code == 404


async def test_health_says_what_is_missing(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/readyz")).status_code == 200
    engine.down = True
    degraded = await client.get("/readyz")
    assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded"), "the inbox still holds deliveries"
    assert "temporal" in degraded.json()

    def unreadable(*_: object) -> None:
        raise Unreadable("connection refused")

    monkeypatch.setattr(type(stores.database), "check", unreadable)
    ready = await client.get("/readyz")
    assert ready.status_code == 503
    assert {"temporal", "ledger"} <= set(ready.json())
    assert "medevac_deliveries_total" in (await client.get("/metrics")).text


async def test_the_api_page_needs_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.status_code == 200
    assert "/v1/events/{source}" in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "<script" not in page.text
    assert (await client.get("/openapi.json")).status_code == 200


async def test_by_what_way_a_word_came_the_gateway_says_and_nobody_else(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine, node: Node
) -> None:
    stores.ledger.upsert_incident(view_of(node))
    stores.ledger.upsert_approval(asked())
    path = "/v1/approvals/inc-1/1/votes"
    for agent, via in (("curl/8", "api"), ("medevac-cli", "cli"), ("Mozilla console slack", "api")):
        given = {**ADA, "User-Agent": agent}
        assert (await client.post(path, json={**BALLOT, "via": "console"}, headers=given)).status_code == 200
        assert engine.votes[-1].via == via
    await client.post(f"/v1/incidents/{view_of(node).id}/hold", json={"reason": "look"}, headers=ADA)
    assert engine.told[-1][2].hold.via == "api"
    await client.post("/v1/fences/freeze", json={"scope": "all", "reason": "stop"}, headers=ADA)
    assert [fence.via for fence in stores.fences.active()] == ["api"]
