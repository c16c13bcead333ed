"""Fleet-wide by the sum, the mark budget, and the breakers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from medevac.faults.classes import FaultClass
from medevac.fleet.guard_state import LEVEL, Approved, Breaker, ClosingVote, Sighting
from medevac.fleet.guard_votes import Weighed, weigh
from medevac.fleet.limits import Limits, Share
from medevac.fleet.votes import VOTE_HOLDS
from tests.unit.fleet.fleet import ROOMY, T0, Fleet, asked, granted, kinds, node, waiting

CLASSES = (FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.TRANSIENT, FaultClass.PLANNED)
SUMS = Limits(at_once={"pool": Share(count=100)})


def one_by_one(fleet: Fleet, count: int) -> list[str]:
    """Nodes of different classes are repaired one after the other within the hour."""
    answers = []
    for i in range(count):
        answer = fleet.acquire(f"n{i}", fault_class=CLASSES[i % 4])
        answers.append(answer)
        fleet.release(f"i-c-n{i}")
        fleet.later(60)
    return kinds(answers)


def test_the_fourth_node_in_an_hour_is_fleet_wide() -> None:
    assert one_by_one(Fleet.of(100), 5) == ["granted"] * 3 + ["ask"] * 2


def test_two_percent_of_a_large_pool() -> None:
    assert one_by_one(Fleet.of(250, SUMS), 6) == ["granted"] * 5 + ["ask"]


def test_the_same_node_again_is_no_further_node() -> None:
    fleet = Fleet.of(100)
    for i in range(6):
        granted(fleet.acquire("n1", incident=f"i{i}"))
        fleet.release(f"i{i}")


def test_the_sum_is_over_a_rolling_hour() -> None:
    fleet = Fleet.of(100)
    one_by_one(fleet, 3)
    fleet.later(3_600)
    granted(fleet.acquire("n9", fault_class=CLASSES[3]))


def test_five_nodes_of_one_class_ask_one_question() -> None:
    fleet = Fleet.of(2048)
    answers = [fleet.acquire(f"n{i}") for i in range(400)]
    assert kinds(answers[4:]) == ["ask"] * 396
    assert len({asked(a).approval for a in answers[4:]}) == 1
    assert asked(answers[4]).fleet_wide
    assert asked(answers[4]).need.threshold == 2
    assert len(fleet.disrupted()) <= 4


def test_five_nodes_in_different_clusters_are_five_nodes() -> None:
    fleet = Fleet([node(i, cluster=c) for c in "abcde" for i in range(50)])
    answers = [fleet.acquire("n1", cluster=c) for c in "abcde"]
    assert kinds(answers) == ["granted"] * 4 + ["ask"]


def test_marks_tell_the_guard_of_a_storm_before_anyone_asks_for_a_lease() -> None:
    fleet = Fleet.of(2048)
    for i in range(10):
        fleet.mark(f"n{i}")
    asked(fleet.acquire("n0"))
    assert not fleet.disrupted()


def test_the_question_joins_who_is_of_the_same_storm_and_leaves_others_alone() -> None:
    fleet = Fleet.of(2048)
    for i in range(6):
        fleet.acquire(f"n{i}")
    fleet.later(1_700)
    question = asked(fleet.acquire("n6"))
    fleet.later(3_600)  # the window has passed, the question hasn't been answered
    assert asked(fleet.acquire("n7")).approval == question.approval
    granted(fleet.acquire("n8", fault_class=FaultClass.PLANNED))


def test_a_yes_covers_whom_it_lists_and_the_others_ask_anew() -> None:
    fleet = Fleet.of(2048, SUMS)
    for i in range(8):
        fleet.acquire(f"n{i}")
    question = asked(fleet.acquire("n5"))
    fleet.state = fleet.state.put(question=None)  # answered, says the ledger
    granted(fleet.ask(fleet.request("n5"), Approved(question.approval, fleet_wide=True)))
    again = asked(fleet.acquire("n6"))
    assert again.approval != question.approval
    assert asked(fleet.acquire("n7")).approval == again.approval


def test_who_was_once_told_to_ask_needs_a_yes_however_long_it_waits() -> None:
    fleet = Fleet.of(2048)
    request = fleet.request("n9")
    for i in range(6):
        fleet.acquire(f"n{i}")
    asked(fleet.ask(request))
    fleet.later(7_200)
    fleet.state = fleet.state.put(question=None)  # rejected or expired
    asked(fleet.ask(request))
    granted(fleet.acquire("n10"))


def test_a_yes_to_one_plan_alone_is_none_to_a_fleet_wide_step() -> None:
    fleet = Fleet.of(2048)
    for i in range(6):
        fleet.acquire(f"n{i}")
    asked(fleet.ask(fleet.request("n5"), Approved("plan-of-n5", fleet_wide=False)))


def test_a_fleet_wide_yes_stays_within_the_limits_at_once() -> None:
    fleet = Fleet.of(2048)
    yes = Approved("fleet-1", fleet_wide=True)
    answers = [fleet.ask(fleet.request(f"n{i * 65}"), yes) for i in range(30)]
    assert kinds(answers) == ["granted"] * 20 + ["waiting"] * 10


def test_a_storm_that_waited_out_a_freeze_is_still_a_storm() -> None:
    fleet = Fleet.of(2048)
    requests = [fleet.request(f"n{i}") for i in range(50)]
    for request in requests:
        fleet.ask(request, readable=False)
    fleet.later(7_200)
    assert kinds(fleet.ask(r) for r in requests).count("granted") <= 4


# -- marks -----------------------------------------------------------------------------------------------------


def test_marks_have_their_own_budget_and_then_the_same_question() -> None:
    fleet = Fleet.of(2048)
    answers = [fleet.mark(f"n{i}") for i in range(400)]
    assert kinds(answers) == ["granted"] * 61 + ["ask"] * 339  # 3 % of 2048
    question = asked(fleet.acquire("n100"))
    assert {asked(a).approval for a in answers[61:]} == {question.approval}


def test_a_small_pool_may_mark_three() -> None:
    fleet = Fleet.of(12)
    assert kinds(fleet.mark(f"n{i}") for i in range(4)) == ["granted"] * 3 + ["ask"]


def test_marks_that_stand_count_beyond_the_window() -> None:
    fleet = Fleet.of(100, marked=frozenset(f"n{i}" for i in range(10)))
    asked(fleet.mark("n50"))
    granted(fleet.mark("n3"))


def test_the_same_mark_again_is_the_same_grant() -> None:
    fleet = Fleet.of(100)
    first = granted(fleet.mark("n1"))
    fleet.later(7_200)
    assert granted(fleet.mark("n1")).epoch == first.epoch


def test_a_mark_is_given_while_the_cluster_cannot_be_read() -> None:
    fleet = Fleet.of(100)
    answers = [fleet.ask(fleet.request(f"n{i}", edge="mark"), readable=False) for i in range(4)]
    assert kinds(answers) == ["granted"] * 3 + ["ask"]


def test_a_mark_takes_no_place_from_a_lease() -> None:
    fleet = Fleet.of(100)
    granted(fleet.mark("n1"))
    granted(fleet.acquire("n2", fault_class=FaultClass.PLANNED))


# -- breakers --------------------------------------------------------------------------------------------------


def test_the_level_breaker_closes_by_itself() -> None:
    fleet = Fleet.of(100, ROOMY.model_copy(update={"breaker_level_percent": 10}))
    fleet.out = frozenset(f"n{i}" for i in range(50, 60))
    assert "10 of 100 nodes" in waiting(fleet.acquire("n1")).reason
    fleet.out = frozenset(f"n{i}" for i in range(50, 59))
    granted(fleet.acquire("n1"))


def runaway(fleet: Fleet) -> None:
    """One node, disrupted again and again: no sum of nodes ever sees it."""
    for i in range(10):
        granted(fleet.acquire("n1", incident=f"i{i}"))
        fleet.release(f"i{i}")
        fleet.later(5)


def test_the_rate_breaker_takes_two_people_to_close() -> None:
    fleet = Fleet.of(100)
    runaway(fleet)
    assert "breaker c/critical is open" in waiting(fleet.acquire("n1", incident="next")).reason
    for by, closed in (("ann", False), ("ann", False), ("bob", True)):
        assert (vote(fleet, by).breaker.closed_at is not None) is closed
    fleet.later(60)
    granted(fleet.acquire("n1", incident="next"))


def vote(fleet: Fleet, by: str) -> Weighed:
    fleet.state, weighed = fleet.guard.close_breaker(fleet.state, "c", "critical", by, fleet.now)
    assert weighed is not None
    return weighed


def opened() -> Fleet:
    fleet = Fleet([node(i, cluster=c) for c in "cd" for i in range(100)])
    runaway(fleet)
    waiting(fleet.acquire("n1"))
    return fleet


def test_a_vote_to_close_a_breaker_lapses_when_more_nodes_show_its_fault() -> None:
    fleet = opened()
    vote(fleet, "ann")
    fleet.later(60)
    for name in ("n2", "n3", "n2"):
        waiting(fleet.acquire(name))
    second = vote(fleet, "bob")
    assert (second.voters, second.breaker.closed_at) == (("bob",), None)
    why = "ann's word of 03:00 UTC no longer counts: 2 more nodes showed a fault of class critical since"
    assert second.lapsed == (why,)
    fleet.later(60)
    again = vote(fleet, "ann")
    assert (again.voters, again.breaker.closed_at, again.lapsed) == (("bob", "ann"), fleet.now, ())
    assert [one.by for one in again.breaker.votes] == ["bob", "ann"]


def test_what_is_no_news_of_the_breakers_cause_leaves_its_votes_alone() -> None:
    fleet = opened()
    vote(fleet, "ann")
    fleet.later(60)
    waiting(fleet.acquire("n1"))  # Seen before ann looked, and still the same incident.
    granted(fleet.acquire("n2", fault_class=FaultClass.DEGRADED))
    granted(fleet.acquire("n3", cluster="d"))
    assert vote(fleet, "bob").breaker.closed_at == fleet.now


def test_a_vote_to_close_a_breaker_lapses_with_time() -> None:
    for more, closed in ((timedelta(), True), (timedelta(seconds=1), False)):
        fleet = opened()
        vote(fleet, "ann")
        fleet.now += VOTE_HOLDS + more
        assert (vote(fleet, "bob").breaker.closed_at is not None) is closed
    fleet = opened()
    vote(fleet, "ann")
    fleet.now += timedelta(days=1)
    late = vote(fleet, "bob")
    assert (late.voters, late.breaker.closed_at) == (("bob",), None)
    assert late.lapsed == ("ann's word of 2026-03-01 03:00 UTC no longer counts: it is more than 60 min old",)


def test_a_vote_on_a_breaker_by_level_lapses_with_any_new_fault() -> None:
    breaker = Breaker("c", LEVEL, T0, "too many", (ClosingVote("ann", T0),))
    seen = [Sighting(FaultClass.DEGRADED, "c", "n7", "i7", T0 + timedelta(seconds=1))]
    assert "1 more node showed a fault since" in weigh(breaker, seen, T0 + timedelta(minutes=1)).lapsed[0]


def test_the_rate_breaker_never_closes_by_itself() -> None:
    fleet = Fleet.of(100)
    runaway(fleet)
    waiting(fleet.acquire("n1"))
    fleet.later(86_400)
    waiting(fleet.acquire("n1"))


def test_a_breaker_is_of_one_class_and_cluster() -> None:
    fleet = Fleet([node(i, cluster=c) for c in "cd" for i in range(100)])
    runaway(fleet)
    waiting(fleet.acquire("n1"))
    granted(fleet.acquire("n2", fault_class=FaultClass.DEGRADED))
    granted(fleet.acquire("n3", cluster="d"))


def test_an_open_breaker_holds_neither_marks_nor_renewals_nor_releases() -> None:
    fleet = Fleet.of(100)
    runaway(fleet)
    held = granted(fleet.acquire("n2", fault_class=FaultClass.PLANNED))
    waiting(fleet.acquire("n1"))
    granted(fleet.mark("n5"))
    assert fleet.renew(held) is not None
    fleet.release(held.lease_id)
    assert not fleet.disrupted()


def test_grants_are_paced_after_a_breaker_closed() -> None:
    limits = ROOMY.model_copy(update={"breaker_level_percent": 10, "grant_pace_s": 60})
    fleet = Fleet.of(100, limits, out=frozenset(f"n{i}" for i in range(50, 60)))
    waiting(fleet.acquire("n1"))
    fleet.out = frozenset()
    granted(fleet.acquire("n1"))
    assert "one grant in 60 s" in waiting(fleet.acquire("n2")).reason
    fleet.later(60)
    granted(fleet.acquire("n2"))


SHIPPED = ROOMY.model_copy(update={"grant_pace_s": Limits().grant_pace_s})


def thawed(fleet: Fleet, scope: str) -> None:
    fleet.state = replace(fleet.state, thawed={**fleet.state.thawed, scope: fleet.now})


@pytest.mark.parametrize("scope", ["all", "cluster/c", "provider/cloud", "pool/c/train"])
def test_as_shipped_a_thaw_lets_one_node_of_a_pool_go_in_a_minute_for_an_hour(scope: str) -> None:
    fleet = Fleet.of(100, SHIPPED)
    thawed(fleet, scope)
    granted(fleet.acquire("n1"))
    assert "train goes slowly after a stop: one grant in 60 s" in waiting(fleet.acquire("n2")).reason
    fleet.later(60)
    granted(fleet.acquire("n2"))
    waiting(fleet.acquire("n3"))
    fleet.later(3_600)
    granted(fleet.acquire("n3"))
    granted(fleet.acquire("n4"))


@pytest.mark.parametrize("scope", ["cluster/d", "pool/c/serve", "provider/another", "node/c/n9"])
def test_a_thaw_elsewhere_slows_nobody(scope: str) -> None:
    fleet = Fleet.of(100, SHIPPED)
    thawed(fleet, scope)
    granted(fleet.acquire("n1"))
    granted(fleet.acquire("n2"))


def test_pools_dont_wait_for_each_other_after_a_stop() -> None:
    fleet = Fleet([*(node(i) for i in range(50)), *(node(i, pool="serve") for i in range(50, 100))], SHIPPED)
    thawed(fleet, "all")
    granted(fleet.acquire("n1"))
    granted(fleet.acquire("n51"))
    waiting(fleet.acquire("n2"))


def test_the_nodes_of_a_gang_go_together_after_a_stop_too() -> None:
    fleet = Fleet.of(100, SHIPPED)
    thawed(fleet, "all")
    granted(fleet.acquire("n1", gang="g"))
    granted(fleet.acquire("n2", gang="g"))
    waiting(fleet.acquire("n3", gang="another"))


def test_a_closed_breaker_slows_only_what_it_stopped() -> None:
    fleet = Fleet.of(100, SHIPPED)
    runaway(fleet)
    waiting(fleet.acquire("n1"))
    for person in ("ada", "bob"):
        vote(fleet, person)
    granted(fleet.acquire("n1", fault_class=FaultClass.DEGRADED))
    granted(fleet.acquire("n2", fault_class=FaultClass.DEGRADED))
    waiting(fleet.acquire("n3"))
