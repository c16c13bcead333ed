"""Leases: how many at once, in every domain, and what an answer says."""

from __future__ import annotations

import pytest

from medevac.faults.classes import FaultClass
from medevac.fleet.fence import Fence
from medevac.fleet.guard_state import Approved
from medevac.fleet.limits import Limits, Share
from tests.unit.fleet.fleet import ROOMY, T0, Fleet, asked, granted, node, waiting

CRITICAL, DEGRADED, PLANNED = FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.PLANNED


def test_the_same_request_gets_the_same_grant() -> None:
    fleet = Fleet.of(100)
    request = fleet.request("n1")
    first = granted(fleet.ask(request))
    fleet.later(60)
    assert granted(fleet.ask(request)) == first
    assert len(fleet.state.grants) == 1


def test_a_lease_that_was_given_back_is_granted_anew_with_a_higher_epoch() -> None:
    fleet = Fleet.of(100)
    first = granted(fleet.acquire("n1"))
    fleet.release(first.lease_id)
    assert granted(fleet.acquire("n1")).epoch > first.epoch


def test_another_plan_of_the_holder_is_another_grant_and_voids_the_first() -> None:
    fleet = Fleet.of(100)
    first = granted(fleet.acquire("n1"))
    second = granted(fleet.acquire("n1", plan_hash="heavier"))
    assert second.epoch > first.epoch
    assert fleet.renew(first) is None
    assert fleet.renew(second) is not None


def test_a_denial_names_the_limit_and_who_holds_it() -> None:
    fleet = Fleet.of(100)
    fleet.acquire("n1")
    answer = waiting(fleet.acquire("n2", fault_class=DEGRADED))
    assert "pool:c/train: 1 at once" in answer.reason
    assert "i-c-n1 (n1)" in answer.reason
    assert answer.holders == ("i-c-n1",)
    assert answer.position == 1


@pytest.mark.parametrize(("size", "allowed"), [(64, 1), (199, 1), (200, 2), (399, 3), (1000, 10)])
def test_percentages_are_rounded_down_with_a_floor_of_one(size: int, allowed: int) -> None:
    limits = ROOMY.model_copy(update={"at_once": {"pool": Share(count=1, percent=1)}})
    fleet = Fleet.of(size, limits)
    classes = list(FaultClass)
    answers = [fleet.acquire(f"n{i}", fault_class=classes[i % 8]) for i in range(allowed + 1)]
    assert [a.kind for a in answers] == ["granted"] * allowed + ["waiting"]


def test_a_lease_counts_in_every_domain() -> None:
    limits = Limits(at_once={"pool": Share(count=9), "rack": Share(count=1)})
    fleet = Fleet([node(i, racks=3) for i in range(30)], limits)
    granted(fleet.acquire("n0"))
    assert "rack:c/r0" in waiting(fleet.acquire("n3", fault_class=DEGRADED)).reason
    granted(fleet.acquire("n1", fault_class=DEGRADED))


def test_nodes_of_unknown_rack_share_one_domain() -> None:
    fleet = Fleet.of(300, Limits(at_once={"pool": Share(count=9), "rack": Share(count=1)}))
    bare = {"cluster": "c", "pool": "c/train"}
    granted(fleet.acquire("n1", domains=bare))
    assert "rack:c/unknown" in waiting(fleet.acquire("n2", domains=bare, fault_class=DEGRADED)).reason


def test_a_limit_on_a_provider_is_shared_by_all_clusters() -> None:
    limits = ROOMY.model_copy(update={"at_once": {"provider": Share(count=2)}})
    fleet = Fleet([node(i, cluster=c) for c in ("a", "b", "d") for i in range(50)], limits)
    granted(fleet.acquire("n1", cluster="a"))
    granted(fleet.acquire("n1", cluster="b"))
    assert "provider:cloud: 2 at once" in waiting(fleet.acquire("n1", cluster="d")).reason
    fleet.release("i-a-n1")
    granted(fleet.acquire("n1", cluster="d"))


def test_a_gang_counts_as_one() -> None:
    fleet = Fleet.of(100)
    granted(fleet.acquire("n1", gang="job-7"))
    granted(fleet.acquire("n2", gang="job-7", fault_class=DEGRADED))
    waiting(fleet.acquire("n3", gang="job-8", fault_class=DEGRADED))


def test_a_provider_s_limit_counts_machines_also_those_of_one_gang() -> None:
    fleet = Fleet.of(100)
    fleet.limits = Limits(at_once={"pool": Share(count=1), "provider": Share(count=2)})
    granted(fleet.acquire("n1", gang="c/job-7"))
    granted(fleet.acquire("n2", gang="c/job-7", fault_class=DEGRADED))
    assert "provider:" in waiting(fleet.acquire("n3", gang="c/job-7", fault_class=DEGRADED)).reason


def test_what_others_have_out_of_service_counts() -> None:
    fleet = Fleet.of(100, out=frozenset({"n7"}))
    answer = waiting(fleet.acquire("n1"))
    assert "out of service: c/n7" in answer.reason
    assert answer.holders == ("c/n7",)


def test_the_node_itself_is_not_counted_twice() -> None:
    fleet = Fleet.of(100, out=frozenset({"n1"}))
    granted(fleet.acquire("n1"))
    granted(fleet.acquire("n1"))
    # Leased and not ready is still one node.
    fleet.limits = Limits(at_once={"pool": Share(count=2)})
    granted(fleet.acquire("n2", fault_class=DEGRADED))


def test_our_own_mark_is_not_somebody_elses_outage() -> None:
    fleet = Fleet.of(100, out=frozenset({"n7"}), marked=frozenset({"n7"}))
    granted(fleet.acquire("n1"))


def test_an_unreadable_cluster_is_a_no() -> None:
    fleet = Fleet.of(100)
    assert "can't be read" in waiting(fleet.ask(fleet.request("n1"), readable=False)).reason
    assert not fleet.disrupted()


def test_one_incident_at_a_time_on_a_node() -> None:
    fleet = Fleet.of(100)
    granted(fleet.acquire("n1", incident="old"))
    assert "old" in waiting(fleet.acquire("n1", incident="new")).reason


def test_an_expired_lease_still_counts_until_it_is_reaped() -> None:
    fleet = Fleet.of(100)
    granted(fleet.acquire("n1"))
    fleet.later(fleet.limits.lease_ttl_s + 1)
    waiting(fleet.acquire("n2", fault_class=DEGRADED))
    fleet.state, reaped = fleet.guard.reap(fleet.state, "i-c-n1", fleet.now)
    assert reaped is not None
    assert reaped.node == "n1"
    granted(fleet.acquire("n2", fault_class=DEGRADED))


def test_a_live_lease_is_never_reaped() -> None:
    fleet = Fleet.of(100)
    granted(fleet.acquire("n1"))
    fleet.state, reaped = fleet.guard.reap(fleet.state, "i-c-n1", fleet.now)
    assert reaped is None
    assert fleet.disrupted() == {"c/n1"}


def test_a_holder_that_still_runs_keeps_its_lease_even_late() -> None:
    fleet = Fleet.of(100)
    first = granted(fleet.acquire("n1"))
    fleet.later(fleet.limits.lease_ttl_s + 1)
    renewed = fleet.renew(first)
    assert renewed is not None
    assert renewed.epoch == first.epoch
    assert renewed.until > fleet.now


def test_a_small_pool_asks_a_person_for_each_node() -> None:
    fleet = Fleet.of(4)
    request = fleet.request("n1")
    answer = asked(fleet.ask(request))
    assert not answer.fleet_wide
    assert answer.need.threshold == 1
    assert asked(fleet.ask(request)).approval == answer.approval
    granted(fleet.ask(request, Approved(answer.approval, fleet_wide=False)))


def test_a_small_pools_question_that_was_left_is_over_and_the_next_is_another() -> None:
    fleet = Fleet.of(4)
    request = fleet.request("n1")
    first = asked(fleet.ask(request))
    again = [asked(fleet.ask(request.model_copy(update={"asks": n}))).approval for n in (0, 1, 1, 2)]
    assert again[0] == first.approval
    assert again[1] == again[2]
    assert len({*again}) == 3


def test_a_small_pool_asks_no_second_person_where_the_plan_asks_one() -> None:
    granted(Fleet.of(4).acquire("n1", person_asked=True))


def test_no_lease_while_spares_are_none_and_the_job_runs() -> None:
    fleet = Fleet.of(100, spares={"c/train": 0})
    assert "0 spares" in waiting(fleet.acquire("n1")).reason
    granted(fleet.acquire("n2", job_running=False, fault_class=DEGRADED))


def test_unknown_spares_stop_nothing() -> None:
    granted(Fleet.of(100, spares={"c/infer": 0}).acquire("n1"))


def test_a_fence_stops_destruction_and_only_with_marks_also_marks() -> None:
    fleet = Fleet.of(100)
    fence = Fence(epoch=1, scope="pool/c/train", by="ann", reason="upgrade", at=T0)
    fleet.state = fleet.state.put(fences=(fence,))
    assert "ann: upgrade" in waiting(fleet.acquire("n1")).reason
    granted(fleet.mark("n1"))
    fleet.state = fleet.state.put(fences=(fence.model_copy(update={"marks": True}),))
    waiting(fleet.mark("n2"))


def test_a_fence_elsewhere_stops_nothing() -> None:
    fleet = Fleet.of(100)
    fleet.state = fleet.state.put(fences=(Fence(epoch=1, scope="pool/c/infer", by="ann", reason="", at=T0),))
    granted(fleet.acquire("n1"))


# -- order -----------------------------------------------------------------------------------------------------


def test_severity_goes_first_then_age() -> None:
    fleet = Fleet.of(100)
    fleet.acquire("n0", fault_class=PLANNED)
    for name, cause in (("n1", DEGRADED), ("n2", CRITICAL), ("n3", CRITICAL)):
        waiting(fleet.acquire(name, fault_class=cause))
        fleet.later(1)
    assert fleet.release("i-c-n0") == ("node/c/n2", "node/c/n3", "node/c/n1")
    assert "i-c-n2" in waiting(fleet.acquire("n1", fault_class=DEGRADED)).reason
    assert waiting(fleet.acquire("n3")).position == 2
    granted(fleet.acquire("n2"))


def test_age_beats_severity_in_the_end() -> None:
    fleet = Fleet.of(100)
    fleet.acquire("n0", fault_class=PLANNED)
    old = fleet.request("n1", fault_class=DEGRADED)
    waiting(fleet.ask(old))
    fleet.later(1_900)
    waiting(fleet.ask(old))
    waiting(fleet.acquire("n2"))
    fleet.release("i-c-n0")
    waiting(fleet.acquire("n2"))
    granted(fleet.ask(old))


def test_who_stops_asking_leaves_the_line() -> None:
    fleet = Fleet.of(100)
    fleet.acquire("n0", fault_class=PLANNED)
    waiting(fleet.acquire("n1"))
    fleet.release("i-c-n0")
    waiting(fleet.acquire("n2", fault_class=DEGRADED))
    fleet.later(300)
    granted(fleet.acquire("n2", fault_class=DEGRADED))


def test_who_waits_for_others_outages_keeps_nobody_waiting() -> None:
    limits = Limits(at_once={"pool": Share(count=2), "rack": Share(count=1)})
    fleet = Fleet([node(i, racks=10) for i in range(100)], limits, out=frozenset({"n10"}))
    assert "rack:c/r0" in waiting(fleet.acquire("n0")).reason
    fleet.later(5)
    granted(fleet.acquire("n1"))


def test_two_domains_cannot_refuse_the_first_in_line_by_turns() -> None:
    limits = ROOMY.model_copy(update={"at_once": {"rack": Share(count=1), "pool": Share(count=1)}})
    same_rack = [node(i, pool="other", racks=1) for i in range(10, 20)]
    same_pool = [node(i, pool="train", racks=100) for i in range(20, 30)]
    fleet = Fleet([node(0, pool="train", racks=1), *same_rack, *same_pool], limits)
    yes = Approved("fleet-1", fleet_wide=True)
    for holder in ("n10", "n20"):
        granted(fleet.ask(fleet.request(holder), yes))
    first = fleet.request("n0")
    waiting(fleet.ask(first, yes))
    for i in range(1, 8):
        for freed, next_one in ((f"n{19 + i}", f"n{20 + i}"), (f"n{9 + i}", f"n{10 + i}")):
            fleet.later(10)
            fleet.release(f"i-c-{freed}")
            fleet.ask(first, yes)
            fleet.ask(fleet.request(next_one), yes)
    assert "c/n0" in fleet.disrupted()


def test_giving_back_wakes_who_waited_for_that_domain() -> None:
    fleet = Fleet.of(100)
    fleet.acquire("n0", fault_class=PLANNED)
    waiting(fleet.acquire("n1"))
    assert fleet.release("i-c-n0") == ("node/c/n1",)
    assert fleet.release("never-granted") == ()
