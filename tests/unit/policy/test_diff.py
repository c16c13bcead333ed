"""What a change of policy widens: never missed, and not cried where something only narrows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medevac.faults.classes import Covers
from medevac.policy.compared import effect, newly_let_act
from medevac.policy.diff import changes, widens
from medevac.policy.loading import PRESETS, load, preset
from medevac.policy.plan import History, Mode
from medevac.policy.planner import Context
from medevac.policy.policy import Policy
from tests.unit.policy.cases import NOW, faults, node, policy, version

Edit = Callable[[dict[str, Any]], object]


def edited(edit: Edit, base: Policy | None = None) -> Policy:
    data = (base or rich()).model_dump(mode="json")
    edit(data)
    return Policy.model_validate(data)


def rich() -> Policy:
    """A policy with something in every part, each away from its bounds."""
    return policy(
        Mode.APPROVE,
        checkpoints=[{"kinds": ["Job"], "interval": "30m"}],
        watch=900,
        ask_above_gpu_hours=100,
        windows={"freeze": {"cron": "0 0 1 1 *", "lasts": "1d", "zone": "UTC"},
                 "office": {"cron": "0 9 * * 1-5", "lasts": "9h", "zone": "UTC", "asks": True}},
        evidence="required",
        attempts={"same_rung": 1, "window": 864_000, "incidents": 3},
        drains={"now": 20, "soon": 600, "checkpoint": 1_800, "job_end": 43_200, "pod_grace": 20,
                "at_budget": "wait", "at_job_end": "ask"},
        limits={"fleet_nodes": 2, "fleet_percent": 1, "fleet_window_s": 7_200, "same_fault_nodes": 3, "min_spares": 2,
                "same_fault_window_s": 3_600, "marks": {"count": 2, "percent": 1}, "marks_window_s": 1_200,
                "marks_standing_percent": 5, "breaker_level_percent": 5, "breaker_rate": 5, "breaker_window_s": 1_200,
                "grant_pace_s": 60,
                "at_once": {"rack": {"count": 2}, "pool": {"count": 2}, "cluster": {"count": 2}}},
        who_may={"reboot": {"groups": ["operator", "approver"], "votes": 2},
                 "replace": {"groups": ["approver", "lead"], "votes": 2},
                 "loss": {"groups": ["approver"], "votes": 3},
                 "fleet": {"groups": ["approver", "capacity-owners"], "votes": 3, "one_of": "capacity-owners"}},
    )  # fmt: skip


def put(*path: str | int, to: Any) -> Edit:
    def edit(data: dict[str, Any]) -> None:
        at: Any = data
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = to

    return edit


def rule(data: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in data["rules"] if r["name"] == name)
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_the_same_policy_has_no_changes(name: str) -> None:
    assert changes(load(preset(name)), load(preset(name))) == []
    assert newly_let_act(load(preset(name)), load(preset(name))) == []


WIDER: dict[str, Edit] = {
    "mode up": put("pools", "train", "mode", to="auto"),
    "pool added": put("pools", "new", to={"clusters": ["c"], "select": {"pool": "new"}}),
    "cluster added": put("pools", "train", "clusters", to=["c", "d"]),
    "selector changed": put("pools", "train", "select", to={"labels": {"a": "b"}}),
    "role included": put("pools", "train", "includes", to=["control-plane"]),
    "coexist said": put("pools", "train", "coexist", to="yield"),
    "pool's ladder": put("pools", "train", "ladder", to="bare_metal"),
    "rung added": lambda d: d["ladders"]["cloud"].append({"rung": "terminate"}),
    "first rung gone": lambda d: d["ladders"]["cloud"].pop(0),
    "more attempts": put("ladders", "cloud", 0, "attempts", to=2),
    "rung for more faults": put("ladders", "cloud", 0, "only", to=None),
    "rung goes by itself": lambda d: d.update(simulated_only=True, auto=[*d["auto"], "replace"]),
    "more votes off": put("who_may", "reboot", "votes", to=1),
    "group added": put("who_may", "replace", "groups", to=["approver", "lead", "intern"]),
    "no owner asked": put("who_may", "fleet", "one_of", to="approver"),
    "fewer may stop": put("who_may", "stop", "groups", to=["viewer"]),
    "approvals last longer": put("approval_expires", to=20_000),
    "a second group": put("who_may", "replace", "then", to=["oncall"]),
    "another reminder": put("approval_reminder", to=600),
    "unknown repaired by name": lambda d: d["rules"].insert(0, {
        "name": "x", "match": {"codes": ["alert/X"]}, "raise_to": "degraded", "do": "repair"}),
    "restraint removed": lambda d: d["rules"].pop(0),
    "class raised": lambda d: d["rules"].insert(
        0, {"name": "x", "match": {"codes": ["xid/119"]}, "raise_to": "critical"}),
    "drained sooner": lambda d: rule(d, "degraded").update(drain="now"),
    "watched less": lambda d: rule(d, "may-clear").update(watch=60),
    "other ladder": lambda d: rule(d, "degraded").update(ladder="bare_metal"),
    "threshold added": lambda d: d["thresholds"].append(
        {"name": "t", "above": 1, "clear_below": 1, "dwell_s": 60, "fault": "thermal/t", "fault_class": "critical"}),
    "threshold lowered": put("thresholds", 0, "above", to=87),
    "threshold's dwell": put("thresholds", 0, "dwell_s", to=60),
    "threshold's class": put("thresholds", 0, "fault_class", to="critical"),
    "same rung": put("attempts", "same_rung", to=2),
    "window": put("attempts", "window", to=604_800),
    "drain": put("drains", "soon", to=60),
    "budgets in the older spelling": lambda d: (d["drains"].pop("at_budget"), d["drains"].update(bypass_budgets=True)),
    "budgets": put("drains", "at_budget", to="delete"),
    "budgets asked about": put("drains", "at_budget", to="ask"),
    "jobs' ends": put("drains", "at_job_end", to="evict"),
    "limit": put("limits", "at_once", "rack", "count", to=3),
    "limit in percent": put("limits", "at_once", "rack", "percent", to=1),
    "fleet": put("limits", "fleet_nodes", to=3),
    "fleet's window": put("limits", "fleet_window_s", to=3_600),
    "marks": put("limits", "marks", "count", to=3),
    "spares": put("limits", "min_spares", to=1),
    "pace": put("limits", "grant_pace_s", to=0),
    "probation": put("probation", to=60),
    "checkpoints": put("checkpoints", to=[]),
    "simulated": put("simulated_only", to=True),
    "cost no longer asked about": put("ask_above_gpu_hours", to=None),
    "more may be lost": put("ask_above_gpu_hours", to=200),
    "a window that held asks": put("windows", "freeze", "asks", to=True),
    "a window that asked is gone": lambda d: d["windows"].pop("office"),
    "evidence not waited for": put("evidence", to="wanted"),
}  # fmt: skip


def restrained() -> Policy:
    """With a rule on top that holds back."""

    def hold(data: dict[str, Any]) -> None:
        data["rules"].insert(0, {"name": "careful", "match": {"codes": ["xid/79"]}, "mode": "observe", "do": "notify"})

    return edited(hold)


@pytest.mark.parametrize("name", WIDER)
def test_a_widening_is_never_missed(name: str) -> None:
    before = restrained()
    after = edited(WIDER[name], before)
    found = changes(before, after)
    assert found, name
    assert any(change.widening for change in found), [change.text for change in found]


NARROWER: dict[str, Edit] = {
    "mode down": put("pools", "train", "mode", to="observe"),
    "only pool removed": lambda d: d["pools"].clear(),
    "rule with a lower mode": lambda d: d["rules"].insert(
        0, {"name": "x", "match": {"classes": ["critical"]}, "mode": "observe"}),
    "only notified": lambda d: rule(d, "degraded").update(do="notify"),
    "later drain": lambda d: rule(d, "critical").update(drain="job_end"),
    "watched longer": lambda d: rule(d, "may-clear").update(watch=7_200),
    "last rung gone": lambda d: d["ladders"]["bare_metal"].pop(),
    "asks before reboots": lambda d: d["auto"].remove("reboot"),
    "group removed": put("who_may", "replace", "groups", to=["approver"]),
    "more votes": put("who_may", "reboot", "votes", to=3),
    "owner asked": put("who_may", "reboot", "one_of", to="approver"),
    "approvals end sooner": put("approval_expires", to=600),
    "a group only after the reminder": lambda d: d["who_may"]["replace"].update(groups=["approver"], then=["lead"]),
    "a page at the reminder": put("approval_pages", to=True),
    "threshold removed": lambda d: d["thresholds"].clear(),
    "threshold raised": put("thresholds", 0, "above", to=95),
    "limit": put("limits", "at_once", "pool", "count", to=1),
    "limit added": put("limits", "at_once", "provider", to={"count": 1}),
    "fleet": put("limits", "fleet_percent", to=0.5),
    "fleet's window": put("limits", "fleet_window_s", to=9_000),
    "marks": put("limits", "marks_standing_percent", to=1),
    "spares": put("limits", "min_spares", to=5),
    "same rung stays, window longer": put("attempts", "window", to=2_000_000),
    "drain": put("drains", "soon", to=900),
    "less may be lost": put("ask_above_gpu_hours", to=0),
    "a window that asked holds": put("windows", "office", "asks", to=False),
    "a window more that asks": put(
        "windows", "more", to={"cron": "0 1 * * *", "lasts": 60, "zone": "UTC", "asks": True}),
    "budgets not waited for": put("drains", "at_budget", to="hand_over"),
    "jobs' ends not asked about": put("drains", "at_job_end", to="hand_over"),
    "probation": put("probation", to=200_000),
    "name": put("name", to="other"),
    "quiet": put("quiet", to=60),
    "audience": put("audiences", "everyday", to="elsewhere"),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROWER)
def test_a_narrowing_applies_at_once(name: str) -> None:
    before = rich()
    found = changes(before, edited(NARROWER[name], before))
    assert found, name
    assert not any(change.widening for change in found), [change.text for change in found]


def test_lengths_of_time_read_as_they_are_written() -> None:
    before = rich()
    for path, to, said in (("soon", 900, "10 min → 15 min"), ("soon", 605, "10 min → 605 s")):
        [change] = changes(before, edited(put("drains", path, to=to), before))
        assert change.text == f"drains.{path}: {said}"


@given(st.lists(st.sampled_from(sorted(NARROWER)), max_size=6, unique=True))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_tightenings_together_never_widen(names: list[str]) -> None:
    after = rich()
    for name in names:
        try:
            after = edited(NARROWER[name], after)
        except (KeyError, IndexError):
            continue  # an earlier edit has taken that part away
    assert not widens(rich(), after)


@given(
    st.lists(st.sampled_from(sorted(NARROWER)), max_size=4, unique=True),
    st.sampled_from(sorted(set(WIDER) - {"restraint removed", "simulated"})),
)
@settings(max_examples=80, derandomize=True, deadline=None)
def test_a_widening_is_not_hidden_by_tightenings_beside_it(names: list[str], wider: str) -> None:
    before = rich()
    try:
        base = before
        for name in names:
            base = edited(NARROWER[name], base)
        after = edited(WIDER[wider], base)
    except (KeyError, IndexError, ValueError):
        return  # the edits speak of the same part
    if widens(base, after) and not widens(before, after):
        # Only where a tightening took back exactly what was widened may nothing be left of it.
        touched = {change.path.split(".")[0] for change in changes(base, after) if change.widening}
        assert touched & {change.path.split(".")[0] for change in changes(before, base)}


def test_moving_a_rule_hides_nothing() -> None:
    before = restrained()
    after = edited(lambda d: d["rules"].append(d["rules"].pop(0)), before)
    (change,) = changes(before, after)
    assert change.path == "rules"
    assert change.widening


def test_a_pool_that_hid_another_widens_when_it_goes() -> None:
    def both(data: dict[str, Any]) -> None:
        data["pools"]["also"] = {"clusters": ["c"], "select": {"labels": {"a": "b"}}, "mode": "observe"}

    before = edited(both)
    (change,) = changes(before, edited(lambda d: d["pools"].pop("also"), before))
    assert change.widening
    assert "mode observe would narrow at once" in change.text


def test_who_is_newly_let_act_is_said_in_words() -> None:
    observed, auto = policy(Mode.OBSERVE), policy(Mode.AUTO)
    (line,) = newly_let_act(observed, auto)
    assert line == (
        "pool `train` may act by itself on critical faults, degraded faults, transient faults, planned faults, "
        "monitor faults (until now: observe)"
    )
    assert newly_let_act(auto, observed) == []
    named = {"name": "x", "match": {"codes": ["alert/X"]}, "raise_to": "degraded", "do": "repair"}
    raised = policy(rules=[*auto.model_dump(mode="json")["rules"], named])
    assert newly_let_act(auto, raised) == []  # the default says notify above it, and the first word counts
    first = policy(rules=list(reversed(raised.model_dump(mode="json")["rules"])))
    assert "pool `train` may act by itself on alert/X (until now: observe)" in newly_let_act(auto, first)


def test_effect_on_open_incidents() -> None:
    def context(code: str, incident: str) -> Context:
        return Context(
            incident=incident, n=1, cluster="c", node_name="n1", node=node(), faults=faults(code), history=History(),
            opened_at=NOW, check_covers=frozenset(Covers),
        )  # fmt: skip

    old, new = version(policy(Mode.OBSERVE)), version(policy(Mode.AUTO), 2)
    rows = effect(old, new, [context("xid/119", "a"), context("alert/Odd", "b")], NOW)
    assert [(row.incident, row.old, row.new, row.changed) for row in rows] == [
        ("a", "observe", "act reboot, drain checkpoint", True),
        ("b", "observe", "observe", False),
    ]
