"""Campaigns at the gateway: listed, asked about, moved by those who may; and their clock is wound where it stopped."""

from __future__ import annotations

from datetime import timedelta
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
from medevac.campaigns.progress import CampaignState, NodeProgress, NodeState
from medevac.events.event import HealthEvent, Kind
from medevac.fleet.node import Node
from medevac.incident import IncidentView, State, Stop
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, bearer, view_of
from tests.unit.worker.test_case_commands import Api
from worker.cli import campaign as commands
from worker.cli.app import run
from worker.gateway.services import Services
from worker.stores import Stores

VERA, OTTO, ADA = (bearer(f"{who}-token") for who in ("vera", "otto", "ada"))
ORDERED = "campaign/driver-580"
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


class Running:
    """A campaign that people have agreed to, step by step on a clock of its own; `told` is what its nodes hear."""

    def __init__(self, stores: Stores, registry: Registry) -> None:
        self.stores = stores
        self.now = _now(stores)
        self.told: list[tuple[str, Kind]] = []
        seen = CampaignWorld(stores.database, CensusTaker(registry, stores.policies, Bounded(2)))
        acts = CampaignActivities(stores.campaigns, seen, registry, self._hear, lambda: self.now)
        self._run = partial(ActivityEnvironment().run, acts.step)

    def _hear(self, cluster: str, name: str, event: HealthEvent) -> None:
        self.told.append((name, event.kind))

    def step(self, minutes: float = 0.5) -> sig.CampaignStepped:
        self.now += timedelta(minutes=minutes)
        stepped: sig.CampaignStepped = self._run(sig.CampaignStepRequest(campaign="driver-580", n=1))
        return stepped

    def shows(self, node: Node, state: State, **more: Any) -> IncidentView:
        """The ledger has the incident of this node's order."""
        view = view_of(node, fault=ORDERED, faults=(ORDERED,), state=state, opened_at=self.now, updated_at=self.now)
        view = view.model_copy(update=more)
        assert self.stores.ledger.upsert_incident(view)
        return view

    def node(self, name: str) -> NodeProgress:
        return next(one for one in self.stores.campaigns.nodes("driver-580") if one.node == name)

    @property
    def sent(self) -> list[str]:
        return [name for name, kind in self.told if kind is Kind.PLANNED]


@pytest.fixture
async def running(client: httpx.AsyncClient, stores: Stores, registry: Registry) -> Running:
    wish = WISH | {"act": "reboot", "selector": {"clusters": ["sim-a"], "pools": ["train"]}}
    _, planned = await post(client, "/plan", wish)
    assert (await post(client, "", wish | {"plan_hash": planned["plan_hash"]}))[0] == 202
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", _now(stores))
    return Running(stores, registry)


@pytest.fixture
def canary(running: Running, world: World) -> Node:
    running.step()
    node = world.node(running.sent[0], "sim-a")
    assert node is not None
    return node


def test_a_node_in_hand_says_what_it_waits_for(running: Running, canary: Node) -> None:
    waits = running.shows(canary, State.WAITING_LEASE, waiting_for="a spare")
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.incident) == (NodeState.SENT, waits.id)
    assert (first.why, first.over_at) == ("waiting_lease, waits for a spare", None)


def test_a_node_whose_incident_a_person_stops_is_left_out_in_their_name_and_another_takes_its_place(
    running: Running, canary: Node
) -> None:
    stop = Stop(by="kim", reason="my debugging session")
    running.shows(canary, State.HANDED_OVER, stopped=stop, summary="stopped by kim")
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.by, first.over_at) == (NodeState.SKIPPED, "kim", None)
    assert first.why == "left out by kim: my debugging session"
    assert (canary.name, Kind.RECOVERED) in running.told, "the order is taken back"
    assert len(running.sent) == 2
    for _ in range(3):
        stepped = running.step()
    assert running.sent.count(canary.name) == 1
    assert "1 left out by people (1 by kim)" in stepped.why


def test_a_fault_after_the_act_counts_though_a_person_stopped_the_incident(running: Running, canary: Node) -> None:
    stop = Stop(by="kim", reason="wrong node", acted=True)
    running.shows(canary, State.HANDED_OVER, stopped=stop)
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.over_at) == (NodeState.SKIPPED, running.now)
    assert first.why == "left out by kim after the act: wrong node"
    running.now += timedelta(minutes=1)
    running.shows(canary, State.HANDED_OVER, stopped=stop, fault=None, faults=(), rev=1)
    running.step()
    assert running.node(canary.name).fault is None, "that a person has it is no fault"
    running.shows(canary, State.HANDED_OVER, stopped=stop, fault="xid/64", faults=("xid/64",), rev=2)
    running.step()
    assert running.node(canary.name).fault == "xid/64"


def test_that_a_person_stops_a_node_which_is_through_is_no_fault_of_it(running: Running, canary: Node) -> None:
    running.shows(canary, State.PROBATION)
    running.step()
    assert running.node(canary.name).state is NodeState.DONE
    running.now += timedelta(minutes=1)
    stop = Stop(by="kim", reason="mine", acted=True)
    for fault, rev in (None, 1), (ORDERED, 2), ("xid/64", 3):
        running.shows(canary, State.HANDED_OVER, stopped=stop, fault=fault, rev=rev)
        running.step()
        first = running.node(canary.name)
        assert (first.state, first.by) == (NodeState.DONE, None)
        assert first.fault == (fault if fault == "xid/64" else None)


def test_a_fault_that_was_there_when_the_stop_took_effect_counts_where_the_act_was_sent(
    running: Running, canary: Node
) -> None:
    faults = ("xid/64", ORDERED)
    running.shows(
        canary, State.HANDED_OVER, stopped=Stop(by="kim", acted=True), fault="xid/64", faults=faults
    )  # fmt: skip
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.by, first.fault) == (NodeState.SKIPPED, "kim", "xid/64")


def test_whoever_ends_a_campaign_the_end_says_whom_it_left_out(running: Running, canary: Node, stores: Stores) -> None:
    running.shows(canary, State.HANDED_OVER, stopped=Stop(by="kim", reason="mine"))
    stores.campaigns.move("driver-580", CampaignState.ENDING, "ending by otto: enough", running.now)
    stepped = running.step()
    assert (stepped.state, stepped.why) == (
        CampaignState.ENDED, "ending by otto: enough; 1 left out by people (1 by kim)",
    )  # fmt: skip
    row = stores.campaigns.get("driver-580")
    assert row is not None
    assert row.why == stepped.why


def test_a_node_that_a_person_left_out_is_shown_so(
    running: Running, canary: Node, services: Services, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    running.shows(canary, State.HANDED_OVER, stopped=Stop(by="kim", reason="mine"))
    running.step()
    monkeypatch.setattr(commands, "_api", lambda: Api(services))
    assert run(["campaign", "show", "driver-580"]) == 0
    said = capsys.readouterr().out
    assert "1 left out by kim" in said
    assert "left out by kim: mine" in " ".join(said.split())


def _now(stores: Stores) -> Any:
    row = stores.campaigns.get("driver-580")
    assert row is not None
    return row.at
