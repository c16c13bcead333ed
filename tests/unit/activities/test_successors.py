"""A successor from elsewhere: chosen, asked for, proved, and taken back where nobody waits for it any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.machines import MachineActivities
from activities.offers import Offers, RecentCard
from activities.planning import PlanActivities
from activities.ports import MachineState, Unreadable, Verb
from activities.storage.certificates import Certificates
from activities.storage.scorecards import Scorecards
from activities.successors import TRIES, SuccessorActivities
from medevac.fleet.node import Node
from medevac.fleet.places import Offer, Source
from medevac.fleet.scorecard import Penalties, Price
from medevac.incident import Outcome, StepKey, StepResult
from medevac.policy.loading import load, preset
from medevac.policy.plan import Plan, Rung
from simulation.hazards import Behaviour, Effect, Manner, Read
from simulation.layout import PROVIDERS, SKYLINE, TEST, Layout
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run
from tests.unit.activities.test_planning import faults, request

NORTH = "northwind"
THERE = Offer(provider=NORTH, region="northwind-1")
SLOW = TEST.model_copy(update={"join": 2.0})
"""So that what was just asked for surely hasn't joined yet."""
NEVER = Behaviour(successor_never_joins=True)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path, Layout(nodes=24, providers=PROVIDERS | {NORTH: PROVIDERS[SKYLINE]}, durations=SLOW))
    yield built
    built.close()


@pytest.fixture
def machines(house: House) -> MachineActivities:
    return MachineActivities(house.registry, house.look, house.intents, house.ledger)


@pytest.fixture
def successors(house: House) -> SuccessorActivities:
    return SuccessorActivities(house.registry, house.look)


def ask(house: House, node: Node, at: Offer | None = THERE, n: int = 1) -> sig.ActRequest:
    return house.act_request(node, Verb.REQUEST, n).model_copy(update={"at": at})


def prove(act: sig.ActRequest, deadline_s: float = 15.0) -> sig.ProveRequest:
    key = StepKey(incident=INCIDENT, step="prove", n=act.key.n)
    return sig.ProveRequest(key=key, pre=act.pre, verbs=(act.verb,), acted=act.key, deadline_s=deadline_s)


def take_back(house: House, node: Node, at: Offer | None = THERE) -> sig.TakeBackRequest:
    target = sig.Target(**{name: getattr(house.pre(node), name) for name in sig.Target.model_fields})
    return sig.TakeBackRequest(key=StepKey(incident=INCIDENT, step="take_back"), of=target, at=at)


def taken_back(successors: SuccessorActivities, request: sig.TakeBackRequest) -> StepResult:
    """Its last attempt's answer, which is the first that settles anything."""
    for attempt in range(1, TRIES):
        try:
            return run(successors.take_back, request, attempt=attempt)
        except ApplicationError:
            continue
    return run(successors.take_back, request, attempt=TRIES)


def billed(house: House) -> list[tuple[str, str | None]]:
    """What was asked for and is paid for: whose it is, and its node."""
    bills = [bill for bill in house.world.billing() if bill.requested_by and bill.until is None]
    return [(bill.provider, bill.node) for bill in bills]


def comes(house: House, machines: MachineActivities, node: Node, at: Offer | None = THERE) -> str:
    act = ask(house, node, at)
    assert run(machines.act, act).outcome is Outcome.DONE
    proved = run(machines.prove, prove(act))
    assert proved.outcome is Outcome.DONE, proved.reason
    assert proved.successor
    return proved.successor


# -- asked for -------------------------------------------------------------------------------------------------


def test_a_successor_from_elsewhere_joins_and_only_then_the_old_machine_goes_at_its_own(
    house: House, machines: MachineActivities
) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    new = house.node(comes(house, machines, node))
    assert new.machine.provider == NORTH
    assert house.node(node.name).machine.id == node.machine.id, "the old one is there"
    intent = house.intents.get(ask(house, node).key)
    assert intent is not None
    assert MachineState.model_validate(intent.before).asked_at == THERE
    old = house.act_request(node, Verb.TERMINATE)
    assert run(machines.act, old).outcome is Outcome.DONE
    assert run(machines.prove, prove(old)).outcome is Outcome.DONE
    assert [bill.until is None for bill in house.world.billing() if bill.machine_id == node.machine.id] == [False]
    assert billed(house) == [(NORTH, new.name)]


def test_what_never_comes_elsewhere_is_released_there_and_says_that_nothing_is_left(
    house: House, machines: MachineActivities
) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.world.script(Effect.REQUEST, Manner.TIMEOUT_AFTER)
    house.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
    act = ask(house, node, None)
    run(machines.act, act)
    ended = run(machines.prove, prove(act, 0.5))
    assert ended.outcome is Outcome.TIMED_OUT
    assert ended.proof["nothing_left"] is True
    assert "released skyline/" in ended.reason


def test_what_is_late_is_kept_where_people_are_asked_about_it(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
    act = ask(house, node, None)
    run(machines.act, act)
    ended = run(machines.prove, prove(act, 0.5).model_copy(update={"keep_late": True}))
    assert (ended.outcome, ended.proof) == (Outcome.TIMED_OUT, {})
    assert "no successor has joined" in ended.reason
    assert [provider for provider, _ in billed(house)] == [SKYLINE]


def test_a_refusal_is_surely_not_sent(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.world.script(Effect.REQUEST, Manner.REFUSE)
    result = run(machines.act, ask(house, node))
    assert (result.outcome, result.proof) == (Outcome.FAILED, {"not_sent": True})
    assert f"{NORTH} refuses" in result.reason
    unknown = run(machines.act, ask(house, node, Offer(provider="nobody"), n=2))
    assert (unknown.outcome, unknown.proof) == (Outcome.FAILED, {"not_sent": True})
    assert billed(house) == []


def test_a_freeze_of_the_asked_provider_holds_the_request_back(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.fences.freeze(f"provider/{NORTH}", "ada", "their outage")
    with pytest.raises(ApplicationError, match="frozen"):
        run(machines.act, ask(house, node))
    assert billed(house) == []
    assert run(machines.act, ask(house, node, None, n=2)).outcome is Outcome.DONE, "its own isn't frozen"


# -- taken back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [None, THERE], ids=["its own", "elsewhere"])
def test_what_did_not_become_a_node_is_ended_once(
    house: House, machines: MachineActivities, successors: SuccessorActivities, at: Offer | None
) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
    run(machines.act, ask(house, node, at))
    for _ in range(2):
        result = taken_back(successors, take_back(house, node, at))
        assert result.outcome is Outcome.DONE
        assert result.proof["nothing_left"] is True
    assert len(house.world.effects(verb=Effect.RELEASE)) == 1
    assert house.node(node.name).machine.id == node.machine.id


def test_one_that_has_joined_stays_and_is_named(
    house: House, machines: MachineActivities, successors: SuccessorActivities
) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    new = comes(house, machines, node)
    result = taken_back(successors, take_back(house, node))
    assert (result.outcome, result.successor) == (Outcome.DONE, new)
    assert f"{new} has joined and stays" in result.reason
    assert result.proof["nothing_left"] is False
    assert billed(house) == [(NORTH, new)]


def test_frozen_or_unreadable_it_says_that_it_may_be_running(
    house: House, machines: MachineActivities, successors: SuccessorActivities
) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
    run(machines.act, ask(house, node, None))
    house.fences.freeze("all", "ada", "wait")
    frozen = taken_back(successors, take_back(house, node, None))
    assert (frozen.outcome, frozen.proof["nothing_left"]) == (Outcome.FAILED, False)
    assert "may be running and could not be released: frozen" in frozen.reason
    for person in ("ada", "bob"):
        house.fences.thaw("all", person)
    house.world.script(Read.NODE, Manner.UNREADABLE, times=None)
    assert "may be running" in taken_back(successors, take_back(house, node, None)).reason
    house.calm()
    assert "released" in taken_back(successors, take_back(house, node, None)).reason


# -- chosen ----------------------------------------------------------------------------------------------------


class Counted(Scorecards):
    reads = 0

    def observed(self, *given: Any) -> Any:
        self.reads += 1
        return super().observed(*given)


def planner(house: House, scorecards: Scorecards, prices: tuple[Price, ...] = ()) -> PlanActivities:
    recent = RecentCard(house.registry, scorecards, prices, Penalties(), house.bounded, wait_s=5.0)
    offers = Offers(house.registry, recent, Certificates(house.db).certified)
    return PlanActivities(
        house.registry, house.ledger, house.policies, house.census, house.bounded, offers=offers
    )  # fmt: skip


def listing(house: House, *replacements: dict[str, str]) -> None:
    base = load(preset("demo")).model_dump(mode="json")
    for pool in base["pools"].values():
        pool["replacements"] = list(replacements)
    for kind in ("cloud", "bare_metal"):
        base["ladders"][kind] = [{"rung": "replace", "attempts": 1}]
    house.activate(json.dumps(base))


def planned(plans: PlanActivities, node: Node, **given: Any) -> Plan:
    return run(plans.plan, request(node, faults=faults("xid/79"), **given))


CHEAP = (Price(provider=SKYLINE, per_hour=33), Price(provider=NORTH, per_hour=31.5))


def test_without_replacements_nothing_more_is_read(house: House) -> None:
    scorecards = Counted(house.db)
    plan = planned(planner(house, scorecards, CHEAP), house.idle_node(SKYLINE))
    assert plan.ask_at is None
    assert scorecards.reads == 0


def test_the_cheapest_is_asked_and_the_scorecard_is_read_once(house: House) -> None:
    listing(house, {"provider": NORTH, "region": "northwind-1"}, {"provider": "ironworks"}, {"provider": "nobody"})
    scorecards = Counted(house.db)
    plans = planner(house, scorecards, CHEAP)
    node = house.idle_node(SKYLINE)
    plan = planned(plans, node)
    assert plan.rung is Rung.REPLACE
    assert plan.ask_at == Source(offer=THERE, own=False)
    words = " ".join(plan.reasons)
    assert "asked at northwind/northwind-1: 31.50 and a penalty of" in words
    assert "ironworks is not asked: ironworks has no machines to give" in words
    assert "nobody is not asked: no provider is called 'nobody'" in words
    again = planned(plans, node, asked_rungs=(Rung.REPLACE,), nothing_came=(THERE,))
    assert again.rung is Rung.REPLACE
    assert again.ask_at is not None
    assert again.ask_at.own
    assert "nothing came from northwind/northwind-1" in " ".join(again.reasons)
    assert scorecards.reads == 1


def test_a_machine_that_cannot_be_ended_is_not_replaced_from_elsewhere_either(house: House) -> None:
    listing(house, {"provider": NORTH})
    plan = planned(planner(house, Scorecards(house.db)), house.idle_node("ironworks"))
    assert [(one.rung, one.why) for one in plan.passed_over] == [(Rung.REPLACE, "ironworks can't replace this machine")]


def test_a_scorecard_that_cannot_be_read_stops_nothing(house: House) -> None:
    class Broken(Scorecards):
        def observed(self, *_: Any) -> Any:
            raise Unreadable("the ledger is away")

    listing(house, {"provider": NORTH})
    plan = planned(planner(house, Broken(house.db), CHEAP), house.idle_node(SKYLINE))
    assert plan.ask_at is not None
    assert plan.ask_at.own
    assert any("scorecard can't be read" in reason for reason in plan.reasons)


def test_an_asked_real_provider_needs_its_own_proof(house: House) -> None:
    listing(house, {"provider": NORTH})
    node = house.idle_node(SKYLINE)
    recent = RecentCard(house.registry, Scorecards(house.db), (), Penalties(), house.bounded)
    real = node.model_copy(update={"simulated": False})
    found = Offers(house.registry, recent, lambda name, form: False).asking(real, (Offer(provider=NORTH),), None, ())
    assert {one.source.offer.provider: one.certified for one in found.candidates}[NORTH] is False


def test_of_two_that_one_incident_asked_for_only_the_one_that_came_counts_as_come(
    house: House, machines: MachineActivities
) -> None:
    node = house.marked(house.idle_node(SKYLINE))
    house.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
    lost = ask(house, node, None)
    run(machines.act, lost)
    run(machines.prove, prove(lost, 0.3))
    act = ask(house, node, THERE, n=2)
    run(machines.act, act)
    assert run(machines.prove, prove(act)).outcome is Outcome.DONE
    now = datetime.now(UTC)
    seen = Scorecards(house.db).observed(house.world.nodes(CLUSTER), now - timedelta(days=1), now)
    assert sorted((boot.over, boot.booted_at is not None) for boot in seen.boots) == [(True, False), (True, True)]
