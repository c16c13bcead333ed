"""A campaign lists, begins small, widens, and stops by itself when it does harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from medevac.campaigns.halting import Evidence, binomial_tail, poisson_tail, why_halt
from medevac.campaigns.listing import CampaignPlan, Nothing, list_nodes
from medevac.campaigns.progress import (
    Beside,
    CampaignState,
    NodeProgress,
    NodeState,
    caps,
    evidence,
    step,
    tally,
    widened,
)
from medevac.campaigns.spec import Act, Care, Selector, Spec
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Capability, Node
from medevac.policy.plan import Attempt, Mode, Rung
from tests.unit.campaigns.fleet import Fleet
from tests.unit.policy.cases import job, node, policy, with_pool

CAMPAIGNS = int(os.environ.get("MEDEVAC_CAMPAIGNS", "0"))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CARE = Care()


def spec(**given: Any) -> Spec:
    defaults: dict[str, Any] = {
        "id": "drv-580", "act": "reboot", "reason": "driver 580", "requested_by": "ada",
        "selector": {"pools": ["train"]},
    }  # fmt: skip
    return Spec.model_validate(defaults | given)


def fleet(count: int = 12, racks: int = 4, **given: Any) -> list[Node]:
    return [node(name=f"n{n:02}", topology={"rack": f"r{n % racks}"}, **given) for n in range(count)]


def listed(nodes: list[Node], wanted: Spec | None = None, **given: Any) -> CampaignPlan:
    keys = [f"{one.cluster}/{one.name}" for one in nodes]
    defaults: dict[str, Any] = {
        "policy": policy(Mode.APPROVE), "policy_version": 1, "in_incident": {}, "workloads": {}, "can_check": keys,
        "around": {}, "now": NOW,
    }  # fmt: skip
    return list_nodes(wanted or spec(), nodes, **(defaults | given))


# -- the list --------------------------------------------------------------------------------------------------


def test_an_empty_selector_is_an_error_never_all() -> None:
    with pytest.raises(ValidationError, match="never means all"):
        Selector()
    with pytest.raises(ValidationError):
        Selector(pools=("*",))


def test_every_node_is_listed_or_left_out_with_a_reason() -> None:
    nodes = fleet()
    nodes[0] = nodes[0].model_copy(update={"hands_off": "storage-team"})
    nodes[1] = nodes[1].model_copy(update={"foreign_cordon": "kim"})
    nodes[2] = nodes[2].model_copy(update={"ready": False})
    weak = nodes[4].machine.model_copy(update={"capabilities": frozenset({Capability.SERIAL})})
    nodes[4] = nodes[4].model_copy(update={"machine": weak})
    unchecked = [f"c/{one.name}" for one in nodes if one.name != "n05"]
    plan = listed(nodes, in_incident={"c/n03": "inc-7"}, can_check=unchecked)
    assert {one.node: one.why for one in plan.skipped} == {
        "n00": "storage-team asked for hands off it",
        "n01": "kim has cordoned it",
        "n02": "it is not ready",
        "n03": "incident inc-7 has it",
        "n04": "its provider skyline can't reboot",
        "n05": "no check could prove it well afterwards",
    }
    assert sorted(one.node for one in plan.members) == [f"n{n:02}" for n in range(6, 12)]


def test_what_a_policy_only_observes_is_left_out_and_nothing_left_is_an_error() -> None:
    with pytest.raises(Nothing, match="mode observe"):
        listed(fleet(), policy=policy(Mode.OBSERVE))
    with pytest.raises(Nothing, match="fits none"):
        listed(fleet(), spec(selector={"labels": {"row": "7"}}))


@pytest.mark.parametrize("name", ["clusters", "pools", "providers", "skus"])
def test_a_slip_of_the_pen_never_leaves_nodes_out_in_silence(name: str) -> None:
    right = {"clusters": "c", "pools": "train", "providers": "skyline", "skus": "h100"}[name]
    with pytest.raises(Nothing, match=rf"selector\.{name}: no node is in trian; there are {right}"):
        listed(fleet(sku="h100"), spec(selector={name: [right, "trian"]}))


def test_a_node_that_is_wanted_by_name_and_not_there_is_left_out_with_the_reason() -> None:
    wanted = {"nodes": ["n01", "c/n02", "n99", "x/n01", "n03"], "domains": {"rack": "r1"}}
    plan = listed(fleet(), spec(selector=wanted))
    assert [one.node for one in plan.members] == ["n01"]
    assert [(one.cluster, one.node, one.why) for one in plan.skipped] == [
        ("c", "n02", "the rest of the selector leaves it out"),
        ("?", "n99", "there is no node of that name"),
        ("x", "n01", "there is no node of that name"),
        ("?", "n03", "the rest of the selector leaves it out"),
    ]


def test_the_canary_takes_idle_nodes_and_one_of_each_rack() -> None:
    plan = listed(fleet(), workloads={"c/n00": (job(),), "c/n01": (job(),)})
    first = [one.node for one in plan.members[:4]]
    assert len({one.rack for one in plan.members[:4]}) == 4
    assert not {"n00", "n01"} & set(first)
    assert plan.jobs == ("research/llm-1",)


def test_the_yes_is_bound_to_the_nodes_and_the_care_not_to_the_minute() -> None:
    plan = listed(fleet())
    assert listed(fleet(), now=NOW + timedelta(hours=1)).hash == plan.hash
    assert listed(fleet(13)).hash != plan.hash
    assert listed(fleet(), spec(care={"stages": [5.0]})).hash != plan.hash


def test_it_is_no_faster_than_the_budget_of_its_pools() -> None:
    assert listed(fleet(250, 50)).at_once == 2, "1 % of the pool"
    tight = with_pool(policy(Mode.AUTO))
    assert listed(fleet(40, 40), policy=tight).at_once == 1


def test_what_no_campaign_may_touch_is_not_checked_either() -> None:
    wanted = spec(act="check")
    kept = {
        "n00": {"hands_off": "storage-team"}, "n01": {"foreign_cordon": "kim"}, "n02": {"ready": False},
    }  # fmt: skip
    nodes = [one.model_copy(update=kept.get(one.name, {})) for one in fleet(4)]
    found = listed(nodes, wanted)
    assert [member.node for member in found.members] == ["n03"]
    assert {one.node for one in found.skipped} == set(kept)
    with pytest.raises(Nothing, match="mode observe"):
        listed(fleet(4), wanted, policy=policy(Mode.OBSERVE))
    stray = spec(act="check", selector={"clusters": ["c"]})
    with pytest.raises(Nothing, match="in no pool"):
        listed([node(name="n9", pool=None)], stray, policy=policy(Mode.AUTO))


def test_a_machine_that_was_rebooted_too_often_is_left_out_with_the_reason() -> None:
    def begun(fault_class: FaultClass, days: int) -> Attempt:
        at = NOW - timedelta(days=days)
        return Attempt(incident="i", rung=Rung.REBOOT, fault_class=fault_class, fault="f", at=at, outcome="proved")

    tried = {
        "sim-a/n00": [begun(FaultClass.PLANNED, 1), begun(FaultClass.PLANNED, 2)],
        "sim-a/n01": [begun(FaultClass.CRITICAL, 1), begun(FaultClass.DEGRADED, 2)],
        "sim-a/n02": [begun(FaultClass.PLANNED, 1), begun(FaultClass.PLANNED, 8)],
    }
    tried = {key.replace("sim-a", fleet(1)[0].cluster): past for key, past in tried.items()}
    plan = listed(fleet(4), tried=tried)
    assert {one.node: one.why for one in plan.skipped} == {
        "n00": "tried twice on this machine in 7 d", "n01": "this machine was rebooted twice in 7 d",
    }  # fmt: skip
    assert len(listed(fleet(4), spec(act="check"), tried=tried).members) == 4, "looking wears nothing"


# -- stopping --------------------------------------------------------------------------------------------------


def test_tails_are_exact() -> None:
    assert poisson_tail(1, 0.1) == pytest.approx(0.0951626, rel=1e-4)
    assert binomial_tail(2, 20, 0.1) == pytest.approx(0.608253, rel=1e-4)
    assert binomial_tail(1_500, 2_000, 0.5) == pytest.approx(0.0, abs=1e-9)
    assert poisson_tail(0, 1.0) == binomial_tail(0, 5, 0.5) == 1.0


HOUR_NODES = 20 * 3_600.0


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (Evidence(acted=20, faulted=2, exposure_node_s=HOUR_NODES), "had a fault"),
        (Evidence(acted=20, jobs_hurt=2, exposure_node_s=HOUR_NODES), "lost a job"),
        (Evidence(acted=20, failed=3, exposure_node_s=HOUR_NODES), "failed on 3 of 20"),
        (Evidence(acted=20, out={"c/train": 10.0, "c/infer": 3.0}), "out of service"),
    ],
)
def test_it_halts_for(seen: Evidence, word: str) -> None:
    assert word in why_halt(CARE, seen, staged=True)


def test_one_bad_node_is_no_reason_and_neither_is_what_happens_beside_it_too() -> None:
    assert not why_halt(CARE, Evidence(acted=20, faulted=1, exposure_node_s=HOUR_NODES), staged=True)
    stormy = Evidence(
        acted=200, faulted=3, exposure_node_s=200 * 3_600.0, beside_faults=40, beside_node_s=1_800 * 3_600.0
    )
    assert not why_halt(CARE, stormy, staged=True), "the nodes beside fault as often"
    calm = stormy.model_copy(update={"beside_faults": 0})
    assert why_halt(CARE, calm, staged=True)


@pytest.mark.parametrize(("size", "at_once"), [(24, 4), (24, 1), (16, 2), (39, 2), (60, 4), (3, 3), (200, 4)])
def test_a_canary_that_fails_is_the_last_node(size: int, at_once: int) -> None:
    run = Fleet(size, 1, fails=1.0)
    run.at_once = at_once
    assert run.run() is CampaignState.HALTED
    assert run.acted <= max(1, size // 100)
    assert f"it failed on {run.acted} of {run.acted} node" in run.why


def test_a_canary_that_faults_is_the_last_node_too() -> None:
    run = Fleet(24, 1, fails=0.0, bad=1.0)
    run.at_once = 4
    assert run.run() is CampaignState.HALTED
    assert (run.acted, "1 of 1 node had a fault" in run.why) == (1, True)


def test_half_of_a_stage_is_too_much_and_one_of_many_is_not() -> None:
    assert why_halt(CARE, Evidence(acted=2, failed=1), staged=True)
    assert not why_halt(CARE, Evidence(acted=1, failed=1), staged=True, in_hand=19), "the others may tell otherwise"
    assert not why_halt(CARE, Evidence(acted=3, failed=1), staged=True)


def test_a_short_list_is_tried_on_one_then_on_a_few_and_then_on_the_rest() -> None:
    assert [caps(CARE, size) for size in (5, 24, 60, 1_000)] == [(1, 2, 3), (1, 2, 3), (1, 2, 3), (10, 30, 50)]


def test_the_watch_says_what_failed() -> None:
    ended = {"sent_at": NOW, "over_at": NOW}
    nodes = nodes_of(1_000, lambda n: {**ended, "state": "failed" if n < 1 else "done"} if n < 10 else {})
    found = step(CARE, 20, CampaignState.SOAKING, 0, nodes, Beside(), NOW)
    assert found.why == "9 of 1000 done, 1 failed; watched for 65 min more"
    nodes[999] = nodes[999].model_copy(update={"state": NodeState.SKIPPED, "why": "it is gone"})
    found = step(CARE, 20, CampaignState.SOAKING, 0, nodes, Beside(), NOW)
    assert found.why == "9 of 1000 done, 1 failed, 1 skipped; watched for 65 min more"


# -- widening --------------------------------------------------------------------------------------------------


def nodes_of(count: int, change: Callable[[int], dict[str, Any]] = lambda n: {}) -> list[NodeProgress]:
    return [NodeProgress(cluster="c", node=f"n{n}", **change(n)) for n in range(count)]


def through(n: int, upto: int, at: datetime) -> dict[str, Any]:
    return {"state": "done", "sent_at": at, "over_at": at} if n < upto else {}


def test_the_canary_is_watched_before_anything_follows() -> None:
    first = step(CARE, 20, CampaignState.RUNNING, 0, nodes_of(1_000), Beside(), NOW)
    assert len(first.send) == 10
    soaking = step(CARE, 20, CampaignState.RUNNING, 0, nodes_of(1_000, lambda n: through(n, 10, NOW)), Beside(), NOW)
    assert (soaking.state, soaking.send) == (CampaignState.SOAKING, ())
    later = NOW + timedelta(seconds=CARE.soak)
    after = step(CARE, 20, CampaignState.SOAKING, 0, nodes_of(1_000, lambda n: through(n, 10, NOW)), Beside(), later)
    assert (after.passed, len(after.send)) == (1, 20)


def test_paused_and_halted_begin_nothing() -> None:
    for state in (CampaignState.ASKED, CampaignState.PAUSED, CampaignState.HALTED, CampaignState.ENDED):
        assert step(CARE, 20, state, 0, nodes_of(100), Beside(), NOW).send == ()


def test_let_go_on_after_a_halt_only_what_comes_then_halts_it_again() -> None:
    def nodes(bad: int, good: int) -> list[NodeProgress]:
        ended = {"sent_at": NOW, "over_at": NOW}
        return nodes_of(
            1_000, lambda n: {**ended, "state": "failed" if n < bad else "done"} if n < bad + good else {}
        )  # fmt: skip

    halted = step(CARE, 20, CampaignState.RUNNING, 0, nodes(2, 3), Beside(), NOW)
    assert halted.state is CampaignState.HALTED
    known = evidence(tally(CARE, nodes(2, 3), NOW), Beside())
    later = NOW + timedelta(seconds=CARE.soak)
    resumed = step(CARE, 20, CampaignState.RUNNING, 0, nodes(2, 3), Beside(), later, known=known)
    assert (resumed.state, len(resumed.send)) == (CampaignState.RUNNING, 5)
    again = step(CARE, 20, CampaignState.RUNNING, 0, nodes(4, 3), Beside(), later, known=known)
    assert (again.state, "2 of 2 nodes" in again.why) == (CampaignState.HALTED, True)


def looks_at(out: dict[str, float], known: Evidence | None) -> tuple[str, Evidence | None]:
    """Why it halts at this look, and what is weighed from then on."""
    known = known and known.still_weighed(out, CARE.out_percent)
    found = step(CARE, 20, CampaignState.RUNNING, 0, nodes_of(100), Beside(out=out), NOW, known=known)
    return (found.why if found.state is CampaignState.HALTED else ""), known


def test_nodes_out_of_service_that_people_have_weighed_halt_it_again_only_where_they_become_more() -> None:
    known: Evidence | None = Evidence(out={"c/train": 18.75})
    for out in ({"c/train": 18.75}, {"c/train": 11.0}, {"c/train": 18.75}, {"c/train": 18.75, "c/serve": 9.0}):
        why, known = looks_at(out, known)
        assert not why
    assert "25.0 % of pool c/train" in looks_at({"c/train": 25.0}, known)[0]
    assert "12.0 % of pool c/serve" in looks_at({"c/train": 18.75, "c/serve": 12.0}, known)[0], "which nobody weighed"
    why, known = looks_at({"c/train": 6.0}, known)
    assert not why
    assert "12.0 % of pool c/train" in looks_at({"c/train": 12.0}, known)[0], "that it fell was the end of the first"


def a_part_left_out(acted: int, untouched: int, good: int, total: int = 1_000, **more: Any) -> list[NodeProgress]:
    """The first of the list were left out by ada, after the act and before it; the next ones went well."""

    def change(n: int) -> dict[str, Any]:
        if n < acted + untouched:
            after: dict[str, Any] = {"over_at": NOW, **more} if n < acted else {}
            return {"state": "skipped", "by": "ada", "sent_at": NOW, **after}
        return {"state": "done", "sent_at": NOW, "over_at": NOW} if n < acted + untouched + good else {}

    return nodes_of(total, change)


@pytest.mark.parametrize("acted", [0, 4])
def test_what_a_person_leaves_out_is_neither_a_failure_nor_a_success_and_another_takes_its_place(acted: int) -> None:
    nodes = a_part_left_out(acted, 6 - acted, 4)
    seen = evidence(tally(CARE, nodes, NOW), Beside())
    assert (seen.acted, seen.failed, seen.left_out, seen.faulted) == (4, 0, acted, 0)
    found = step(CARE, 20, CampaignState.RUNNING, 0, nodes, Beside(), NOW)
    assert (found.state, found.send) == (CampaignState.RUNNING, tuple(f"c/n{n}" for n in range(10, 16)))
    assert "6 left out by people (6 by ada)" in found.why


def test_a_fault_after_the_act_tells_of_it_though_a_person_left_the_node_out() -> None:
    later = NOW + timedelta(minutes=30)
    halted = step(CARE, 20, CampaignState.RUNNING, 0, a_part_left_out(2, 0, 3, fault="xid/79"), Beside(), later)
    assert halted.state is CampaignState.HALTED
    assert "2 of 5 nodes had a fault" in halted.why
    known = evidence(tally(CARE, a_part_left_out(2, 0, 3, fault="xid/79"), later), Beside())
    assert known.since(known).left_out == 0
    calm = step(CARE, 20, CampaignState.RUNNING, 0, a_part_left_out(2, 0, 3), Beside(), later)
    assert calm.state is CampaignState.RUNNING


def test_a_stage_is_watched_from_its_last_act_also_of_a_node_left_out() -> None:
    nodes = a_part_left_out(1, 0, 10)
    nodes[0] = nodes[0].model_copy(update={"over_at": NOW + timedelta(minutes=10)})
    later = NOW + timedelta(seconds=CARE.soak)
    assert step(CARE, 20, CampaignState.RUNNING, 0, nodes, Beside(), later).state is CampaignState.SOAKING


def test_an_end_without_what_people_left_out_is_not_told_as_the_whole_list() -> None:
    later = NOW + timedelta(seconds=CARE.soak)
    nodes = a_part_left_out(1, 2, 4, 8)
    nodes[1] = nodes[1].model_copy(update={"by": "grace"})
    nodes[7] = nodes[7].model_copy(update={"state": NodeState.SKIPPED, "why": "it is gone"})
    found = step(CARE, 20, CampaignState.RUNNING, 3, nodes, Beside(), later)
    assert found.state is CampaignState.ENDED
    assert found.why == "not the whole list: 4 done, 0 failed, 1 skipped, 3 left out by people (2 by ada, 1 by grace)"


def test_a_person_widens_to_the_next_stage_that_takes_more_nodes() -> None:
    assert widened(CARE, 0, nodes_of(1_000, lambda n: through(n, 10, NOW)), NOW) == 1
    small = nodes_of(24, lambda n: through(n, 1, NOW))
    passed = widened(CARE, 0, small, NOW)
    assert passed == 1, "one stage at a time, also of a short list"
    assert len(step(CARE, 4, CampaignState.RUNNING, passed, small, Beside(), NOW).send) == 1


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 120), at_once=st.integers(1, 30), seed=st.integers(0, 1_000))
def test_never_more_at_once_than_allowed_and_never_past_a_stage(size: int, at_once: int, seed: int) -> None:
    run = Fleet(size, seed, care=Care(soak=600.0), percent=100.0 * at_once / size)
    run.at_once, most = at_once, 0
    real = run._live

    def live() -> None:
        nonlocal most
        most = max(most, sum(one.state is NodeState.SENT for one in run.nodes.values()))
        if run.passed < len(run.care.stages):
            assert run.acted <= caps(run.care, size)[run.passed]
        real()

    run._live = live  # type: ignore[method-assign]
    assert run.run() in (CampaignState.ENDED, CampaignState.HALTED)
    assert most <= at_once


@pytest.mark.parametrize("seed", range(CAMPAIGNS or 12))
def test_a_bad_image_is_halted_within_a_twentieth_of_the_fleet(seed: int) -> None:
    run = Fleet(2_000, seed, bad=0.1)
    assert run.run() is CampaignState.HALTED
    assert run.acted <= 100
    assert "had a fault" in run.why


@pytest.mark.timeout(60 + 30 * CAMPAIGNS)
def test_good_ones_are_hardly_ever_halted_and_finish_near_their_budgets_best_time() -> None:
    runs = [Fleet(2_000, seed) for seed in range(CAMPAIGNS)] or [Fleet(800, 4)]
    ended = [run for run in runs if run.run() is CampaignState.ENDED]
    slowest = max(run.worked_s / run.best_s for run in ended)
    print(f"{len(runs) - len(ended)} of {len(runs)} halted; slowest {slowest:.2f} times its budget's best time")
    assert len(runs) - len(ended) <= len(runs) // 100
    assert all(run.acted == run.size for run in ended)
    assert slowest <= 1.2


def test_a_drain_is_a_wait_for_the_ladder_and_only_reinstall_takes_an_image() -> None:
    assert Act.DRAIN.rung == "wait"
    with pytest.raises(ValidationError, match="takes none"):
        spec(image="ubuntu")
