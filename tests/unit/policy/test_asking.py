"""A plan says where a successor is asked for and why; asked elsewhere, the same attempt goes on."""

from __future__ import annotations

from typing import Any

from medevac.fleet.asking import Asking, Candidate
from medevac.fleet.places import Offer, Source
from medevac.policy.diff import changes, widens
from medevac.policy.ladders import LadderStep
from medevac.policy.plan import Action, History, Plan, Rung
from tests.unit.policy.cases import attempt, decide, node, policy, said, with_pool

OWN = Candidate(source=Source(offer=Offer(provider="skyline"), own=True), why="skyline: 33.00 and a penalty of 0.90")
NEO = Candidate(source=Source(offer=Offer(provider="neo"), own=False), why="neo: 31.50 and a penalty of 0.40")
LADDER = {"cloud": (LadderStep(rung=Rung.REPLACE, attempts=1),)}


def replacing(asking: Asking, **given: Any) -> Plan:
    return decide("xid/79", under=policy(ladders=policy().ladders | LADDER), asking=asking, **given)


def test_the_best_is_asked_and_the_plan_says_why() -> None:
    plan = replacing(Asking(candidates=(NEO, OWN), notes=("nothing came from x",)))
    assert (plan.rung, plan.ask_at) == (Rung.REPLACE, NEO.source)
    assert "asked at neo: 31.50 and a penalty of 0.40, rather than skyline: 33.00 and a penalty of 0.90" in said(plan)
    assert "nothing came from x" in said(plan)


def test_without_a_choice_nothing_is_said_and_the_hash_is_as_ever() -> None:
    plan = replacing(Asking())
    assert plan.ask_at is None
    assert "asked at" not in said(plan)
    chosen = plan.model_copy(update={"ask_at": NEO.source})
    again = Plan.model_validate(plan.model_dump(exclude={"ask_at"}))
    assert again.hash == plan.hash != chosen.hash
    assert not chosen.stays_within(plan), "a yes to one place is none to another"


def test_where_there_is_no_choice_people_are_asked_before_a_machine_ends_without_a_successor() -> None:
    plan = replacing(Asking())
    assert plan.successor_need is not None
    assert plan.successor_need.groups == policy().who_may.replace.groups
    reserved = replacing(Asking(), where=node(reserved=True)).successor_need
    assert reserved is not None
    assert reserved.threshold == policy().who_may.loss.votes
    assert replacing(Asking(candidates=(NEO, OWN))).successor_need is None, "another place is asked instead"
    assert decide("xid/119").successor_need is None
    older = Plan.model_validate(plan.model_dump(exclude={"successor_need"}))
    assert plan.stays_within(older)


def test_asked_about_in_its_midst_the_attempt_is_the_same_one() -> None:
    begun = {"asked_rungs": (Rung.REPLACE,), "history": History(attempts=(attempt(Rung.REPLACE, of="inc-1"),))}
    assert replacing(Asking(), **begun).rung is None
    still = replacing(Asking(), under_way=Rung.REPLACE, **begun)
    assert (still.rung, still.attempt) == (Rung.REPLACE, 1)
    assert still.stays_within(replacing(Asking()))


def test_another_place_is_asked_once_more_whatever_the_ladders_attempts() -> None:
    tried = replacing(Asking(candidates=(NEO,)), asked_rungs=(Rung.REPLACE,))
    assert (tried.action, tried.rung) == (Action.HAND_OVER, None)
    again = replacing(Asking(candidates=(NEO,), again=True), asked_rungs=(Rung.REPLACE,))
    assert (again.rung, again.ask_at, again.attempt) == (Rung.REPLACE, NEO.source, 1)


def test_what_is_past_replacing_is_not_gone_back_to() -> None:
    ladder = {"cloud": (LadderStep(rung=Rung.REPLACE), LadderStep(rung=Rung.TERMINATE))}
    plan = decide(
        "xid/79", under=policy(ladders=policy().ladders | ladder), asking=Asking(candidates=(NEO,), again=True),
        asked_rungs=(Rung.REPLACE, Rung.TERMINATE),
    )  # fmt: skip
    assert plan.rung is not Rung.REPLACE


def test_an_asked_provider_that_is_not_certified_is_asked_about() -> None:
    unproved = NEO.model_copy(update={"certified": False})
    plan = replacing(Asking(candidates=(unproved, OWN)))
    assert plan.approval is not None
    assert any("provider neo, which is asked, isn't certified" in why for why in plan.approval.why)


def test_a_place_more_widens() -> None:
    old = policy()
    new = with_pool(old, replacements=[{"provider": "neo", "region": "north"}])
    assert widens(old, new)
    assert not widens(new, old)
    assert [change.path for change in changes(old, new)] == ["pools.train.replacements"]
