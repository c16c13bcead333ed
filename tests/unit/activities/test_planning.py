"""A plan always comes out of what can be read, changes nothing, and never takes an outage for a sick node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.planning import ADOPTED, PlanActivities
from activities.ports import NotAllowed, Unreadable
from activities.storage.cases import BadPart, Cases
from medevac.events.event import HealthEvent, Kind
from medevac.faults import catalogue
from medevac.faults.faultset import FaultSet
from medevac.fleet.node import Node
from medevac.incident import End
from medevac.policy.plan import Action, Latch, Mode, Rung
from simulation.hazards import Manner, Read
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run

NOW = datetime.now(UTC)


@pytest.fixture
def plans(house: House) -> PlanActivities:
    return PlanActivities(house.registry, house.ledger, house.policies, house.census, house.bounded)


def faults(code: str = "xid/79", entities: tuple[str, ...] = ()) -> FaultSet:
    event = HealthEvent(source="kmsg", id="e-1", dedupe_key="k", kind=Kind.FAULT, fault=code, entities=entities)
    return FaultSet().observe(catalogue.classify(event), NOW).faults


def request(node: Node | str, **changes: Any) -> sig.PlanRequest:
    given: dict[str, Any] = {
        "incident": INCIDENT,
        "n": 1,
        "cluster": CLUSTER,
        "node": node if isinstance(node, str) else node.name,
        "faults": faults(),
        "opened_at": datetime.now(UTC),
    }
    return sig.PlanRequest(**(given | changes))


def test_a_sick_node_gets_a_plan_with_its_identity_and_the_active_policy(house: House, plans: PlanActivities) -> None:
    node = house.busy_node("ironworks")
    effects = len(house.world.effects())
    plan = run(plans.plan, request(node))
    active = house.policies.active()
    assert plan.action is Action.ACT
    assert plan.rung is Rung.REBOOT
    assert plan.identity == node.identity
    assert (plan.policy_version, plan.policy_hash) == (active.version, active.hash)
    assert plan.covers
    assert len(house.world.effects()) == effects, "a decision touched the world"


def test_workers_take_the_policy_from_the_ledger_at_each_plan(house: House, plans: PlanActivities) -> None:
    node = house.busy_node("ironworks")
    assert run(plans.plan, request(node)).action is Action.ACT
    text = house.policies.active().text.replace("mode: auto", "mode: observe")
    house.policies.activate(house.policies.propose(text, "ada", NOW), "bob", datetime.now(UTC))
    plan = run(plans.plan, request(node))
    assert (plan.action, plan.mode) == (Action.OBSERVE, Mode.OBSERVE)
    assert plan.would


def test_an_outage_of_the_cluster_is_looked_at_again_soon(house: House, plans: PlanActivities) -> None:
    node = house.busy_node()
    house.world.script(Read.NODE, Manner.UNREADABLE, times=None)
    for begun in ((), (Rung.REBOOT,)):
        plan = run(plans.plan, request(node, asked_rungs=begun))
        assert plan.action is Action.WATCH
        assert not plan.mark
        assert plan.watch_s > 0
        assert "can't be read" in " ".join(plan.reasons)
    assert run(plans.plan, request(node, hand_over="a veto")).action is Action.HAND_OVER


def test_a_hiccup_is_no_outage(house: House, plans: PlanActivities, monkeypatch: pytest.MonkeyPatch) -> None:
    node = house.busy_node("ironworks")
    cluster = house.registry.cluster(CLUSTER)
    read, hiccups = cluster.node, iter([True, True])

    def sometimes(name: str) -> Node | None:
        if next(hiccups, False):
            raise Unreadable("connection reset")
        return read(name)

    monkeypatch.setattr(cluster, "node", sometimes)
    assert run(plans.plan, request(node)).action is Action.ACT


def test_a_provider_that_may_not_be_asked_is_a_hand_over_with_the_reason(
    house: House, plans: PlanActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.busy_node("ironworks")

    def denied(node: Node) -> None:
        raise NotAllowed("HTTP 401 for password=hunter2")

    monkeypatch.setattr(house.registry.provider("ironworks"), "capabilities", denied)
    plan = run(plans.plan, request(node))
    assert plan.action is Action.HAND_OVER
    assert plan.mark, "it is sick all the same"
    assert "HTTP 401" in plan.reasons[0]
    assert "hunter2" not in str(plan)


def test_an_unknown_node_or_cluster_touches_nothing(house: House, plans: PlanActivities) -> None:
    for asked in (request("gone"), request("gone", cluster="nowhere")):
        plan = run(plans.plan, asked)
        assert plan.action in (Action.OBSERVE, Action.WATCH)
        assert plan.mode is Mode.OBSERVE
        assert not plan.mark


def test_work_that_cannot_be_read_is_not_taken_for_none(house: House, plans: PlanActivities) -> None:
    node = house.busy_node()
    house.world.script(Read.PODS, Manner.UNREADABLE, times=None)
    assert run(plans.plan, request(node)).action is Action.WATCH


def test_no_plan_without_ledger_or_policy(house: House, plans: PlanActivities, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: object, **__: object) -> None:
        raise Unreadable("postgresql://ledger:hunter2@db is down")

    for part, method in ((house.ledger, "history"), (house.policies, "active")):
        with monkeypatch.context() as patch:
            patch.setattr(part, method, dead)
            with pytest.raises(ApplicationError, match="can't be read") as caught:
                run(plans.plan, request(house.busy_node()))
            assert "hunter2" not in str(caught.value)
            assert not caught.value.non_retryable


def test_the_past_comes_from_the_ledger(house: House, plans: PlanActivities) -> None:
    node = house.busy_node("ironworks")
    latch = Latch(why="not today", faults=("xid/79",), by="ada", until=datetime.now(UTC) + timedelta(hours=1))
    house.ledger.add_latch("inc-0", node.machine.id, latch)
    plan = run(plans.plan, request(node))
    assert plan.action is Action.HAND_OVER
    assert "ada" in plan.reasons[0]


def test_an_incident_that_the_ledger_says_is_over_is_withdrawn(house: House, plans: PlanActivities) -> None:
    node = house.busy_node()
    house.ledger.upsert_incident(house.view(node, end=End.RETURNED))
    assert run(plans.plan, request(node)).action is Action.WITHDRAW


def test_trouble_older_than_the_mode_waits_until_it_is_adopted(house: House, plans: PlanActivities) -> None:
    node = house.busy_node("ironworks")
    old = request(node, opened_at=NOW - timedelta(days=1))
    assert run(plans.plan, old).action is Action.OBSERVE
    house.ledger.note(CLUSTER, node.name, f"{ADOPTED}ada: take it", datetime.now(UTC))
    assert run(plans.plan, old).action is Action.ACT


def test_a_part_that_was_sent_back_is_known_again(house: House) -> None:
    cases = Cases(house.db)
    plans = PlanActivities(house.registry, house.ledger, house.policies, house.census, house.bounded, cases=cases)
    node = house.busy_node("ironworks")
    serial = node.machine.serial
    assert serial
    before = run(plans.plan, request(node))
    at = datetime(2026, 3, 1, tzinfo=UTC)
    for each in (serial, "another"):
        part = BadPart(serial=each, incident="old", part="machine", machine_id="m", why=f"xid/64, {each}", at=at)
        cases.remember([part])
    after = run(plans.plan, request(node))
    assert [reason for reason in after.reasons if "sent back" in reason] == [
        f"its machine {serial} was sent back before, on 2026-03-01: xid/64, {serial}",
        "asks first: a part of it was sent back before, and is here again",
    ]
    assert not any("sent back" in reason for reason in before.reasons)
    assert before.approval is None
    assert after.approval
    assert "sent back" in after.approval.why[0], "a person decides"
    told = faults("xid/119", entities=("gpu:1", "gpu-uuid:GPU-0000000a-1111"))
    assert not any("GPU-0000000a" in reason for reason in run(plans.plan, request(node, faults=told)).reasons)
    gpu = BadPart(serial="GPU-0000000a-1111", incident="old", part="GPU", machine_id="m", why="xid/79, case-2", at=at)
    cases.remember([gpu])
    elsewhere = run(plans.plan, request(house.idle_node("ironworks"), faults=told))
    assert any("its GPU GPU-0000000a-1111 was sent back before" in reason for reason in elsewhere.reasons)
    assert elsewhere.approval
