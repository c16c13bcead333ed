"""What a plan lets become of what still stays when its drain's time is over, as the policy says."""

from __future__ import annotations

import pytest

from medevac.policy.plan import AtBudget, Drain, Plan, Rung
from tests.unit.policy.cases import decide, policy


def drained(at_budget: AtBudget) -> Plan:
    return decide("xid/119", under=policy(drains={"at_budget": at_budget}))


@pytest.mark.parametrize(
    ("at_budget", "bypass", "asks", "waits"),
    [
        (AtBudget.HAND_OVER, False, False, False),
        (AtBudget.WAIT, False, False, True),
        (AtBudget.ASK, False, True, True),
        (AtBudget.DELETE, True, False, True),
    ],
)
def test_each_word_of_the_policy(at_budget: AtBudget, bypass: bool, asks: bool, waits: bool) -> None:
    plan = drained(at_budget)
    assert (plan.budget_bypass, plan.budget_need is not None, plan.budget_waits) == (bypass, asks, waits)


def test_the_shipped_policy_asks_those_who_may_replace_and_bypasses_nothing() -> None:
    plan = decide("xid/119")
    assert not plan.budget_bypass
    assert plan.budget_need is not None
    assert plan.budget_need.groups == policy().who_may.replace.groups
    assert plan.approval is None, "the plan itself goes on without asking"


def test_what_empties_no_node_asks_about_no_budget() -> None:
    plan = decide("monitor/exporter-silent")
    assert (plan.rung, plan.drain) == (Rung.RESTART_AGENT, None)
    assert plan.budget_need is None


def waits_for_jobs(at_job_end: str | None = None) -> Plan:
    rules = [{"name": "slowly", "match": {"classes": ["degraded"]}, "do": "repair", "drain": "job_end"}]
    drains = {} if at_job_end is None else {"at_job_end": at_job_end}
    return decide("xid/119", under=policy(rules=rules, drains=drains))


@pytest.mark.parametrize(("said", "evicts", "asks"), [
    (None, False, True), ("ask", False, True), ("hand_over", False, False), ("evict", True, False),
])  # fmt: skip
def test_a_job_that_outlasts_job_end_is_asked_about_as_shipped(said: str | None, evicts: bool, asks: bool) -> None:
    plan = waits_for_jobs(said)
    assert plan.drain is Drain.JOB_END
    assert (plan.job_end_evicts, plan.job_end_need is not None) == (evicts, asks)
    if plan.job_end_need is not None:
        assert plan.job_end_need.groups == policy().who_may.replace.groups


def test_a_drain_that_waits_for_no_jobs_asks_about_none() -> None:
    plan = decide("xid/119", under=policy(drains={"at_job_end": "evict"}))
    assert plan.drain is not Drain.JOB_END
    assert (plan.job_end_evicts, plan.job_end_need) == (False, None)


def test_a_yes_to_a_plan_that_leaves_jobs_alone_is_none_to_evicting_them() -> None:
    asks, evicts = waits_for_jobs("ask"), waits_for_jobs("evict")
    assert not evicts.stays_within(asks)
    assert len({waits_for_jobs(said).hash for said in ("hand_over", "ask", "evict")}) == 3
    older = waits_for_jobs("hand_over")
    kept = Plan.model_validate(older.model_dump(exclude={"job_end_evicts", "job_end_need"}))
    assert kept.hash == older.hash


def test_a_plan_from_before_there_was_a_choice_keeps_its_hash() -> None:
    plan = drained(AtBudget.WAIT)
    older = Plan.model_validate(plan.model_dump(exclude={"budget_need", "budget_waits"}))
    assert older.hash == plan.hash
    assert len({drained(at_budget).hash for at_budget in AtBudget}) == len(AtBudget)
