"""Campaigns at the gateway: listed, asked about, moved by those who may; and their clock is wound where it stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import signatures as sig
from activities.campaign_world import CampaignWorld
from activities.campaigning import CampaignActivities
from activities.census import CensusTaker
from activities.failures import Bounded
from activities.ports import CheckResult, Mark, Verb
from activities.registry import Registry
from activities.storage.intents import Intents
from medevac.campaigns.progress import CampaignState, NodeProgress, NodeState
from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Node
from medevac.fleet.order import evicted
from medevac.incident import End, IncidentView, Outcome, State, StepKey, StepResult, Stop
from medevac.policy.loading import preset
from medevac.policy.plan import Rung
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, bearer, view_of
from tests.unit.worker.test_case_commands import Api
from worker import campaign_desk
from worker.cli import api as cli_api
from worker.cli import campaign as commands
from worker.cli.app import run
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores

VERA, OTTO, ADA, GRACE, CARL = (bearer(f"{who}-token") for who in ("vera", "otto", "ada", "grace", "carl"))
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


async def test_anyone_stops_it_and_a_halted_one_goes_on_by_as_many_as_agreed_to_it(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    await started(client)
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", _now(stores))
    for what, who, status, state in (
        ("pause", VERA, 200, "paused"), ("resume", VERA, 403, "paused"), ("resume", OTTO, 200, "running"),
        ("halt", VERA, 200, "halted"), ("resume", OTTO, 403, "halted"), ("widen", ADA, 409, "halted"),
        ("resume", ADA, 200, "halted"), ("resume", ADA, 200, "halted"), ("resume", GRACE, 200, "halted"),
        ("resume", CARL, 200, "running"), ("end", OTTO, 200, "ending"), ("halt", ADA, 409, "ending"),
    ):  # fmt: skip
        found, answer = await post(client, f"/driver-580/{what}", {"reason": "because"}, who)
        row = stores.campaigns.get("driver-580")
        assert row is not None
        assert (found, row.state) == (status, state), (what, answer)
    assert "campaign/driver-580" in engine.woken
    answer = await client.get("/v1/campaigns/driver-580", headers=VERA)
    missing = "missing: 1 more of approver, capacity-owners and one of capacity-owners"
    assert [one["text"] for one in answer.json()["orders"]] == [
        "start by otto (api): after the move", "pause by vera (api): because", "resume by otto (api): because",
        "halt by vera (api): because", f"resume wanted by ada (api): because; {missing}",
        "resume wanted by grace (api): because; missing: one of capacity-owners",
        "resume by ada and grace and carl (api): because", "end by otto (api): because",
    ], "what was refused is no order, and a word said twice is one"  # fmt: skip
    assert (await post(client, "/nothing/halt", {}, VERA))[0] == 404


async def test_nobody_widens_alone_and_each_widening_is_one_stage(services: Services, stores: Stores) -> None:
    now = datetime.now(UTC)
    app = create_app(replace(services, now=lambda: now))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway")
    listed = await started(client)
    done = {"state": NodeState.DONE, "sent_at": now, "over_at": now}
    stores.campaigns.change("driver-580", {f"sim-a/{listed[0]}": done})
    stores.campaigns.move("driver-580", CampaignState.SOAKING, "watched", now, passed=0)
    status, answer = await post(client, "/driver-580/widen", {}, ADA)
    assert (status, answer["answer"]) == (
        200,
        "campaign driver-580 stays soaking; ada said widen; missing within 60 min: "
        "1 more of approver, capacity-owners and one of capacity-owners",
    )
    now += timedelta(minutes=61)
    _, answer = await post(client, "/driver-580/widen", {}, CARL)
    assert "stays soaking; carl said widen" in answer["answer"]
    assert "it is more than 60 min old" in answer["answer"], "who looked an hour ago has seen another campaign"
    stores.campaigns.change("driver-580", {f"sim-a/{listed[0]}": {"fault": "xid/79"}})
    _, answer = await post(client, "/driver-580/widen", {}, ADA)
    assert "stays soaking; ada said widen" in answer["answer"]
    assert "1 more failures, faults or lost jobs were seen since" in answer["answer"]
    _, answer = await post(client, "/driver-580/widen", {}, CARL)
    assert answer["answer"] == "campaign driver-580 is running by ada and carl"
    row = stores.campaigns.get("driver-580")
    assert row is not None
    assert (row.state, row.passed) == (CampaignState.RUNNING, 1)
    stores.campaigns.move("driver-580", CampaignState.SOAKING, "watched", now)
    _, answer = await post(client, "/driver-580/widen", {}, GRACE)
    assert "stays soaking" in answer["answer"], "what was said of one stage is nothing for the next"


async def test_who_asked_for_it_has_no_word_in_going_on(client: httpx.AsyncClient, stores: Stores) -> None:
    _, planned = await post(client, "/plan", WISH, ADA)
    await post(client, "", {**WISH, "plan_hash": planned["plan_hash"]}, ADA)
    stores.campaigns.move("driver-580", CampaignState.HALTED, "it failed on 1 of 1 node", _now(stores))
    status, answer = await post(client, "/driver-580/resume", {}, ADA)
    assert (status, "ada asked for this campaign" in answer["error"]) == (403, True)


async def test_a_machine_that_the_ledger_knows_as_worn_is_left_out(
    client: httpx.AsyncClient, stores: Stores, world: World
) -> None:
    node, now = in_train(world)[0], datetime.now(UTC)
    for n, fault_class in enumerate((FaultClass.CRITICAL, FaultClass.DEGRADED)):
        key = StepKey(incident=f"inc-{n}", step="act-reboot")
        _, ours = Intents(stores.database).begin(
            key, Verb.REBOOT, node.cluster, node.name, node.machine.id, "boot", Rung.REBOOT, "xid/79", fault_class, now
        )
        assert ours
    _, planned = await post(client, "/plan", WISH | {"act": "reboot", "selector": {"pools": ["train"]}})
    skipped = {one["node"]: one["why"] for one in planned["plan"]["skipped"]}
    assert skipped == {node.name: "this machine was rebooted twice in 7 d"}


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
        for who in (ADA, CARL):
            assert (await post(client, "/driver-580/resume", {"reason": "a broken BMC"}, who))[0] == 200
        row = stores.campaigns.get("driver-580")
        assert row is not None
        assert (row.known and row.known.failed) == known


class Running:
    """A campaign that people have agreed to, step by step on a clock of its own; `told` is what its nodes hear."""

    def __init__(self, stores: Stores, registry: Registry) -> None:
        self.stores = stores
        self.now = _now(stores)
        self.told: list[tuple[str, Kind]] = []
        self.deaf = False
        seen = CampaignWorld(stores.database, CensusTaker(registry, stores.policies, Bounded(2), fresh_s=0.0))
        acts = CampaignActivities(stores.campaigns, seen, registry, self._hear, stores.policies, lambda: self.now)
        self.run = partial(ActivityEnvironment().run, acts.step)

    def _hear(self, cluster: str, name: str, event: HealthEvent) -> None:
        if self.deaf:
            raise ConnectionError("nobody is there")
        self.told.append((name, event.kind))

    def step(self, minutes: float = 0.5) -> sig.CampaignStepped:
        self.now += timedelta(minutes=minutes)
        stepped: sig.CampaignStepped = self.run(sig.CampaignStepRequest(campaign="driver-580", n=1))
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


async def begun(client: httpx.AsyncClient, stores: Stores, registry: Registry, **given: Any) -> Running:
    wish = WISH | {"act": "reboot", "selector": {"clusters": ["sim-a"], "pools": ["train"]}} | given
    _, planned = await post(client, "/plan", wish)
    assert (await post(client, "", wish | {"plan_hash": planned["plan_hash"]}))[0] == 202
    stores.campaigns.move("driver-580", CampaignState.RUNNING, "approved", _now(stores))
    return Running(stores, registry)


@pytest.fixture
async def running(client: httpx.AsyncClient, stores: Stores, registry: Registry) -> Running:
    return await begun(client, stores, registry)


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


def test_a_fault_between_the_act_and_its_check_is_the_acts_failure(running: Running, canary: Node) -> None:
    """The machine's own repair goes on; what it says of the act isn't lost with the order."""
    faults = ("xid/64", ORDERED)
    running.shows(canary, State.PLANNED, fault="xid/64", faults=faults, order_sent=True)
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.fault, first.over_at) == (NodeState.FAILED, "xid/64", running.now)
    assert first.why.startswith("xid/64 came after the act")
    assert (canary.name, Kind.RECOVERED) in running.told


def test_a_fault_before_the_act_says_nothing_of_it(running: Running, canary: Node) -> None:
    running.shows(canary, State.PLANNED, fault="xid/64", faults=("xid/64", ORDERED))
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.fault, first.over_at) == (NodeState.SKIPPED, None, None)


def test_a_node_to_which_nothing_was_done_is_no_failure(running: Running, canary: Node) -> None:
    """Worn out by earlier repairs, say: what was planned for it tells nothing of the act."""
    running.shows(canary, State.HANDED_OVER, summary="no rung of ladder `campaign/driver-580` is left")
    stepped = running.step()
    first = running.node(canary.name)
    assert (first.state, first.over_at) == (NodeState.SKIPPED, None)
    assert "no rung of ladder" in first.why
    assert (canary.name, Kind.RECOVERED) in running.told, "the order is taken back"
    assert stepped.state is CampaignState.RUNNING
    assert len(running.sent) == 2, "another takes its place"


def test_a_drain_that_fails_counts_though_the_act_was_never_reached(running: Running, canary: Node) -> None:
    """Else one that fails everywhere would evict its way through the list."""
    blocked = StepResult(outcome=Outcome.BLOCKED, reason="a pod of gang/7 can't be evicted")
    running.shows(canary, State.HANDED_OVER, summary=blocked.reason, drained=evicted(blocked))
    running.step()
    assert running.node(canary.name).state is NodeState.FAILED


@pytest.mark.parametrize(
    ("proof", "state"),
    [
        ({"evicted": 0}, NodeState.SKIPPED),
        ({}, NodeState.SKIPPED),
        ({"evicted": 2}, NodeState.FAILED),
        ({"evicted": 0, "begun": True}, NodeState.FAILED),
    ],
)
def test_a_veto_against_the_drain_counts_only_where_somebody_was_evicted(
    running: Running, canary: Node, proof: dict[str, Any], state: NodeState
) -> None:
    refused = StepResult(outcome=Outcome.REFUSED, reason="kept", who="ada", proof=proof)
    running.shows(canary, State.HANDED_OVER, summary="evacuate refused: kept by ada", drained=evicted(refused))
    running.step()
    assert running.node(canary.name).state is state


def test_a_failure_is_counted_once_though_its_incident_is_written_again(running: Running, canary: Node) -> None:
    running.shows(canary, State.HANDED_OVER, summary="no proof", order_sent=True)
    running.step()
    running.now += timedelta(minutes=1)
    running.shows(canary, State.HANDED_OVER, summary="no proof; ada looks", rev=1, order_sent=True)
    running.step()
    first = running.node(canary.name)
    assert (first.state, first.fault) == (NodeState.FAILED, None)


@pytest.mark.parametrize("halted", [True, False])
def test_an_order_is_taken_back_though_a_worker_dies_as_it_does_so(
    running: Running, canary: Node, stores: Stores, halted: bool
) -> None:
    if halted:
        running.shows(canary, State.WAITING_LEASE)
        stores.campaigns.move("driver-580", CampaignState.HALTED, "halted by kim: smoke", running.now)
    else:
        running.shows(canary, State.PLANNED, fault="xid/64", faults=("xid/64", ORDERED))
    running.deaf = True
    with pytest.raises(ApplicationError):
        running.step()
    running.deaf = False
    running.step()
    assert (canary.name, Kind.RECOVERED) in running.told
    assert running.node(canary.name).state is NodeState.SKIPPED


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


# -- the machine that people agreed to ------------------------------------------------------------------------


def test_a_node_that_was_made_anew_before_its_turn_gets_no_order_and_another_goes(
    running: Running, stores: Stores, world: World
) -> None:
    row = stores.campaigns.get("driver-580")
    assert row is not None
    first, second = row.plan.members[:2]
    other = world.swap(first.node, "sim-a")
    stepped = running.step()
    left = running.node(first.node)
    assert (left.state, running.told) == (NodeState.SKIPPED, [])
    assert left.why == f"it is machine {other.machine.id} now; campaign driver-580 lists {first.machine_id}"
    assert stepped.look_again_s <= 1
    running.step()
    assert running.sent == [second.node]


def test_a_node_that_was_made_anew_before_its_incident_began_gets_its_order_taken_back(
    running: Running, canary: Node, world: World
) -> None:
    running.step()
    assert running.sent == [canary.name] * 2, "told again until an incident shows it"
    world.swap(canary.name, "sim-a")
    running.step()
    assert running.node(canary.name).state is NodeState.SKIPPED
    assert running.told[-1] == (canary.name, Kind.RECOVERED)
    assert running.sent.count(canary.name) == 2


# -- who is out of service ------------------------------------------------------------------------------------


def marked(registry: Registry, node: Node, incident: str) -> None:
    mark = Mark(incident=incident, code="planned", faults=(ORDERED,), reason="test")
    registry.cluster("sim-a").mark(node.name, mark)


def in_train(world: World) -> list[Node]:
    return [node for node in world.nodes("sim-a") if node.pool == "train"]


async def test_a_rack_that_a_drain_keeps_out_is_nobody_elses_doing(
    client: httpx.AsyncClient, stores: Stores, registry: Registry, world: World
) -> None:
    nodes = in_train(world)[:3]
    care = {"at_once": 3, "stages": [5], "soak": 0}
    drain = await begun(
        client, stores, registry, act="drain", care=care, selector={"nodes": [node.name for node in nodes]}
    )
    drain.step()
    while sent := [node for node in nodes if drain.node(node.name).state is NodeState.SENT]:
        for node in sent:
            marked(registry, node, f"inc-{node.name}")
            drain.shows(node, State.WATCHING, id=f"inc-{node.name}")
        drain.step()
    assert {drain.node(node.name).state for node in nodes} == {NodeState.DONE}
    stepped = drain.step(minutes=30)
    assert (stepped.state, "drained and held" in stepped.why) == (CampaignState.SOAKING, True)


async def test_one_who_lets_it_go_on_has_weighed_the_nodes_that_are_out(
    running: Running, client: httpx.AsyncClient, stores: Stores, registry: Registry, world: World, canary: Node
) -> None:
    ill = [node for node in in_train(world) if node.name != canary.name]
    for node in ill[:2]:
        marked(registry, node, "inc-other")
    halted = running.step()
    assert (halted.state, "out of service by other causes" in halted.why) == (CampaignState.HALTED, True)
    for who in (ADA, CARL):
        assert (await post(client, "/driver-580/resume", {"reason": "a known rack"}, who))[0] == 200
    assert running.step().state is CampaignState.RUNNING
    marked(registry, ill[2], "inc-other")
    assert running.step().state is CampaignState.HALTED, "one more than they had seen"
    for who in (CARL, ADA):
        await post(client, "/driver-580/resume", {"reason": "that too"}, who)
    for node in ill[:3]:
        registry.cluster("sim-a").lift(node.name, "inc-other")
    assert running.step().state is CampaignState.RUNNING
    for node in ill[:2]:
        marked(registry, node, "inc-new")
    assert running.step().state is CampaignState.HALTED, "what they had weighed was over"


def test_nodes_on_which_it_failed_are_counted_as_that_alone(
    running: Running, stores: Stores, registry: Registry, world: World, canary: Node
) -> None:
    failed = [canary, *[node for node in in_train(world) if node.name != canary.name][:1]]
    for node in failed:
        marked(registry, node, f"inc-{node.name}")
        running.shows(node, State.HANDED_OVER, id=f"inc-{node.name}", summary="no proof", order_sent=True)
        sent = {"state": NodeState.SENT, "sent_at": running.now}
        stores.campaigns.change("driver-580", {f"sim-a/{node.name}": sent})
    running.step()
    running.step(minutes=5)
    row = stores.campaigns.get("driver-580")
    assert row is not None
    assert {running.node(node.name).state for node in failed} == {NodeState.FAILED}
    assert (row.state, row.out) == (CampaignState.HALTED, {})
    assert "failed on 2 of 2" in row.why
    for node in failed:
        running.shows(node, State.HANDED_OVER, id=f"inc-{node.name}", end=End.WITHDRAWN, rev=1)
    running.step()
    row = stores.campaigns.get("driver-580")
    assert row is not None
    assert list(row.out or {}) == ["sim-a/train"], "once its incident is over, whoever keeps it out is another"


# -- checks ---------------------------------------------------------------------------------------------------


class ScriptedChecks:
    """Each run of a check is of its own key; the answers come in turn, the last one for ever."""

    simulated = True

    def __init__(self, *answers: CheckResult | None) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []

    def covers(self, node: Node) -> frozenset[Covers]:
        return frozenset({Covers.SERVICE})

    def run(self, node: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult | None:
        self.keys.append(str(key))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def result(passed: bool, reason: str = "", *, flake: bool = False) -> CheckResult:
    covers = (Covers.SERVICE,)
    return CheckResult(passed=passed, covers=covers, started_at=datetime.now(UTC), reason=reason, flake=flake)


FLAKE = result(False, "it never started: ImagePullBackOff", flake=True)
Checking = Callable[..., Awaitable[tuple[Running, ScriptedChecks, Node]]]


@pytest.fixture
def checking(
    client: httpx.AsyncClient, stores: Stores, registry: Registry, world: World, monkeypatch: pytest.MonkeyPatch
) -> Checking:
    async def checking(*answers: CheckResult | None) -> tuple[Running, ScriptedChecks, Node]:
        """A campaign of one node, which has its turn."""
        node, checks = in_train(world)[0], ScriptedChecks(*answers)
        monkeypatch.setattr(registry, "checks", lambda _: checks)
        running = await begun(client, stores, registry, act="check", selector={"nodes": [node.name]})
        running.step()
        assert (running.node(node.name).state, checks.keys) == (NodeState.SENT, [])
        return running, checks, node

    return checking


async def test_a_check_that_could_not_run_is_run_again(checking: Checking) -> None:
    running, checks, node = await checking(FLAKE, None, result(True))
    running.step()
    first = running.node(node.name)
    assert (first.state, "ImagePullBackOff; it is run again" in first.why) == (NodeState.SENT, True)
    running.step()
    running.step()
    assert running.node(node.name).state is NodeState.DONE
    assert len(set(checks.keys)) == 2
    assert running.told == []


async def test_a_node_that_no_check_could_look_at_is_no_success_and_no_fault(checking: Checking) -> None:
    running, checks, node = await checking(FLAKE)
    for _ in range(6):
        running.step()
    last = running.node(node.name)
    assert (last.state, len(set(checks.keys))) == (NodeState.FAILED, 4)
    assert last.why == "4 checks could not run, the last: it never started: ImagePullBackOff"
    assert running.told == [], "nothing was found out about the node"


async def test_a_node_that_fails_its_check_opens_an_incident(checking: Checking) -> None:
    running, _, node = await checking(result(False, "a lane is down"))
    running.step()
    assert running.node(node.name).state is NodeState.FAILED
    assert running.told == [(node.name, Kind.FAULT)]


async def test_the_incident_of_its_own_failed_check_is_not_anothers(checking: Checking) -> None:
    """The process died between the word to the node and the word in the ledger."""
    running, _, node = await checking(result(False, "a lane is down"))
    running.shows(node, State.HEARD, fault="check/service", faults=("check/service",))
    running.step()
    assert running.node(node.name).state is NodeState.FAILED


async def test_a_node_that_falls_ill_before_its_turn_is_not_checked(checking: Checking) -> None:
    running, checks, node = await checking(result(True))
    view = running.shows(node, State.MARKED, fault="xid/79", faults=("xid/79",))
    running.step()
    left = running.node(node.name)
    assert (left.state, left.why, checks.keys) == (NodeState.SKIPPED, f"incident {view.id} has it", [])


async def test_no_check_is_begun_in_a_pool_that_only_observes_by_now(checking: Checking, stores: Stores) -> None:
    running, checks, node = await checking(result(True))
    text = preset("demo").replace("mode: auto", "mode: observe")
    stores.policies.activate(stores.policies.propose(text, "ada", running.now), None, running.now)
    running.step()
    assert "is in mode observe" in running.node(node.name).why
    assert checks.keys == []


async def test_no_check_is_begun_on_another_machine(checking: Checking, world: World) -> None:
    running, checks, node = await checking(result(True))
    world.swap(node.name, "sim-a")
    running.step()
    assert "campaign driver-580 lists" in running.node(node.name).why
    assert checks.keys == []


@pytest.mark.parametrize("stop", ["halt", "end"])
async def test_a_stop_ends_checks_without_a_word_to_nodes_that_never_had_an_order(
    checking: Checking, client: httpx.AsyncClient, stop: str
) -> None:
    running, checks, node = await checking(None, result(True, "all well"))
    await post(client, f"/driver-580/{stop}", {"reason": "enough"}, OTTO)
    running.step()
    left = running.node(node.name)
    assert (left.state, checks.keys, running.told) == (NodeState.SKIPPED, [], [])
    assert "by otto: enough" in left.why


async def test_a_check_that_runs_is_read_to_its_end_though_the_campaign_is_halted(
    checking: Checking, client: httpx.AsyncClient
) -> None:
    running, checks, node = await checking(None, FLAKE)
    running.step()
    await post(client, "/driver-580/halt", {"reason": "enough"}, OTTO)
    running.step()
    last = running.node(node.name)
    assert (last.state, running.told, len(set(checks.keys))) == (NodeState.SKIPPED, [], 1)
    assert "could not run: it never started: ImagePullBackOff; the campaign is halted" in last.why


# -- what was ordered -----------------------------------------------------------------------------------------


async def test_an_order_stands_though_the_next_step_says_what_it_waits_for(
    running: Running, canary: Node, client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    running.stores.campaigns.move("driver-580", CampaignState.HALTED, "it failed on 2 of 2 nodes", running.now)
    for who in (CARL, ADA):
        ours = {**who, "User-Agent": "medevac-cli"}
        await post(client, "/driver-580/resume", {"reason": "a broken BMC", "via": "console"}, ours)
    stepped = running.step()
    assert [word.text for word in stepped.words] == [
        "resume wanted by carl (cli): a broken BMC; missing: 1 more of approver, capacity-owners",
        "resume by carl and ada (cli): a broken BMC",
    ], "to be told in chat"
    told = sig.CampaignStepRequest(campaign="driver-580", n=2, told=stepped.words[-1].n)
    assert running.run(told).words == ()
    monkeypatch.setattr(commands, "_api", lambda: Api(services))
    assert await asyncio.to_thread(run, ["campaign", "show", "driver-580"]) == 0
    assert "resume by carl and ada (cli): a broken BMC" in " ".join(capsys.readouterr().out.split())
    status, _ = await post(client, "/driver-580/pause", {"via": "slack"}, ADA)
    assert status == 422, "only Slack's own door says that"


def test_where_it_halts_by_itself_stands_too(running: Running, canary: Node, stores: Stores) -> None:
    failed = {"state": NodeState.FAILED, "sent_at": running.now, "over_at": running.now}
    nodes = stores.campaigns.nodes("driver-580")[:2]
    stores.campaigns.change("driver-580", {one.key: failed for one in nodes})
    assert running.step().state is CampaignState.HALTED
    assert [(line.key.step, line.text[:28]) for line in stores.campaigns.words("driver-580")][1:] == [
        ("halt", "halted by itself: it failed "),
    ]


# -- large fleets ---------------------------------------------------------------------------------------------


async def test_the_work_of_many_nodes_is_read_in_one(
    client: httpx.AsyncClient, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = WISH | {"act": "reboot"}
    _, one_by_one = await post(client, "/plan", wish)
    assert any(member["jobs"] for member in one_by_one["plan"]["members"])

    def never(name: str) -> Any:
        raise AssertionError(f"{name} was read by itself")

    monkeypatch.setattr(campaign_desk, "MANY", 2)
    monkeypatch.setattr(registry.cluster("sim-a"), "workloads", never)
    _, together = await post(client, "/plan", wish)
    assert together["plan"]["members"] == one_by_one["plan"]["members"]


async def test_the_whole_plan_is_shown_to_those_who_are_asked(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], stores: Stores,
) -> None:  # fmt: skip
    wish = WISH | {"act": "reboot", "drain": "now", "selector": {"clusters": ["sim-a"]}, "care": {"soak": "0s"}}
    _, planned = await post(client, "/plan", wish)
    plan = planned["plan"]
    assert (await post(client, "", wish | {"plan_hash": planned["plan_hash"]}))[0] == 202
    row = stores.campaigns.get("driver-580")
    assert row is not None
    asked = campaign_desk.question(row.plan, stores.policies.active().policy, _now(stores))
    assert asked.waiter.text.startswith(f"drain now, reboot: {len(plan['members'])} nodes. Differs from what is")
    monkeypatch.setattr(commands, "_api", lambda: Api(services))
    assert await asyncio.to_thread(run, ["campaign", "show", "driver-580", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["campaign"]["plan"]["members"] == plan["members"]
    assert await asyncio.to_thread(run, ["campaign", "show", "driver-580"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "to each: drain now, reboot" in shown
    assert "differs from what is shipped: soak 0 s (shipped 65 min)" in shown
    assert all(f"sim-a/{member['node']}" in shown for member in plan["members"])
    for skipped in plan["skipped"]:
        assert f"sim-a/{skipped['node']}" in shown
        assert skipped["why"][:20] in shown


def test_a_list_that_takes_too_long_says_so_and_blames_no_gateway(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    waited: list[float] = []

    def late(request: httpx.Request) -> httpx.Response:
        waited.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("timed out", request=request)

    api = cli_api.Api("http://gateway", "token")
    api._client = httpx.Client(base_url="http://gateway", transport=httpx.MockTransport(late))
    monkeypatch.setattr(commands, "_api", lambda: api)
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps(WISH))
    assert run(["campaign", "plan", str(file)]) == 1
    said = capsys.readouterr().err
    assert waited == [300.0]
    assert "has not answered within 300 s: it reads every node of the selector and the work on it" in said
    assert "is the gateway up" not in said


def _now(stores: Stores) -> Any:
    row = stores.campaigns.get("driver-580")
    assert row is not None
    return row.at
