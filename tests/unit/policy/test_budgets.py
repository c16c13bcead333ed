"""What a plan lets become of pods that a disruption budget still refuses, as the policy says."""

from __future__ import annotations

import pytest

from medevac.policy.plan import AtBudget, Plan, Rung
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


def test_a_plan_from_before_there_was_a_choice_keeps_its_hash() -> None:
    plan = drained(AtBudget.WAIT)
    older = Plan.model_validate(plan.model_dump(exclude={"budget_need", "budget_waits"}))
    assert older.hash == plan.hash
    assert len({drained(at_budget).hash for at_budget in AtBudget}) == len(AtBudget)
