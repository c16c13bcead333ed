"""What no policy file may loosen, whoever approves it."""

from __future__ import annotations

import pytest

from medevac.policy.loading import PolicyError, load
from medevac.policy.policy import Policy
from tests.unit.policy.cases import policy

HEAD = "version: 1\nname: t\n"
SIMULATED = HEAD + "simulated_only: true\n"
POOL = "pools:\n  gpu:\n    clusters: [c]\n    select: {pool: gpu}\n"
RULE = HEAD + "rules:\n- name: a\n  match: "


def refusal(text: str) -> str:
    with pytest.raises(PolicyError) as refused:
        load(text, "p.yaml")
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        # Rule 3: the sum of destruction. In simulations as well.
        ("limits: {fleet_nodes: 4}", "4:23", "at most 3"),
        ("limits: {fleet_percent: 5.1}", "4:25", "less than or equal to 5"),
        ("limits: {fleet_window_s: 3599}", "4:26", "at least 3600"),
        ("limits: {same_fault_nodes: 6}", "4:28", "less than or equal to 5"),
        ("limits: {same_fault_window_s: 900}", "4:31", "greater than or equal to 1800"),
        ("limits: {at_once: {pool: {count: 1}, cluster: {count: 1}}}", "4:19", "no limit for one rack"),
        ("limits: {marks_window_s: 60}", "4:26", "at least 600"),
        ("limits: {breaker_rate: 11}", "4:24", "at most 10"),
        # Who may.
        ("who_may: {fleet: {groups: [a], votes: 1, one_of: a}}", "4:39", "at least 2"),
        ("who_may: {fleet: {groups: [a], votes: 2}}", "4:18", "add `one_of: capacity-owners`"),
        ("who_may: {loss: {groups: [a], votes: 1}}", "4:38", "at least 2"),
        ("who_may: {stop: {groups: [viewer], votes: 2}}", "4:17", "one person alone can always stop"),
        ("who_may: {stop: {groups: [approver]}}", "4:26", "add `viewer`"),
        ("who_may: {replace: {groups: [], votes: 1}}", "4:29", "at least 1 item"),
        ("who_may: {stop: {groups: [viewer], then: [approver]}}", "4:42", "never put to a vote"),
        ("who_may: {replace: {groups: [a], then: [a]}}", "4:40", "may vote from the beginning"),
        ("approval_reminder: 4h", "4:20", "give less than `approval_expires`"),
        # Attempts and drains.
        ("attempts: {incidents: 4}", "4:23", "less than or equal to 3"),
        ("drains: {now: 31s}", "4:15", "less than or equal to 30"),
        ("drains: {job_end: 25h}", "4:19", "less than or equal to 86400"),
        ("drains: {checkpoint: 46m}", "4:22", "less than or equal to 2700"),
    ],
)
def test_bounds_hold_in_simulations_too(text: str, place: str, what: str) -> None:
    message = refusal(SIMULATED + text + "\n")
    assert f"p.yaml:{place}: " in message
    assert what in message


@pytest.mark.parametrize("rung", ["reinstall", "replace", "terminate"])
def test_what_destroys_never_goes_by_itself_on_real_machines(rung: str) -> None:
    text = f"auto: [reboot, {rung}]\n"
    assert f"p.yaml:3:16: auto[1]: `{rung}` destroys" in refusal(HEAD + text)
    assert load(SIMULATED + text).auto[1].value == rung


@pytest.mark.parametrize("share", ["rack: {count: 4, percent: 0}", "pool: {count: 1, percent: 6}"])
def test_at_once_on_real_machines(share: str) -> None:
    base = {"rack": "{count: 1}", "pool": "{count: 1}", "cluster": "{count: 1}"} | dict([share.split(": ", 1)])
    text = f"limits: {{at_once: {{{', '.join(f'{k}: {v}' for k, v in base.items())}}}}}\n"
    assert "at most" in refusal(HEAD + text)
    assert load(SIMULATED + text)


def test_more_limits_may_be_named() -> None:
    base = policy().model_dump(mode="json")
    base["limits"]["at_once"]["provider"] = {"count": 2, "percent": 0}
    assert Policy.model_validate(base)


@pytest.mark.parametrize(
    ("rule", "place", "what"),
    [
        ("{codes: [xid/79]}\n  raise_to: degraded", "6:13", "may only make it worse"),
        ("{classes: [critical]}\n  raise_to: transient", "6:13", "may only make it worse"),
        ("{codes: [xid/13]}\n  raise_to: record", "6:13", "nothing is raised to `record`"),
        ("{classes: [unknown]}\n  raise_to: critical", "5:21", "name the `codes` that are meant"),
        ("{classes: [monitor]}\n  raise_to: critical", "5:21", "never a node's"),
        ("{codes: [monitor/exporter-silent]}\n  raise_to: critical", "5:19", "never a node's"),
        ("{pools: [gpu]}\n  do: repair", "5:10", "a fault is repaired only by a rule that names it"),
        ("{classes: [unknown]}\n  do: repair", "5:21", "never a node's by themselves"),
        ("{classes: [application]}\n  do: repair", "5:21", "never a node's by themselves"),
        ("{classes: [monitor]}\n  do: repair\n  ladder: cloud", "5:21", "`ladder: monitor`"),
        ("{classes: [monitor]}\n  do: repair", "5:21", "`ladder: monitor`"),
        ("{codes: [xid/79]}\n  ladder: nowhere", "6:11", "there is no ladder `nowhere`; known: `cloud`"),
        ("{pools: [nowhere]}\n  mode: observe", "5:19", "there is no pool `nowhere`"),
        ("{codes: [xid/79]}\n  notify: nobody", "6:11", "there is no audience `nobody`"),
    ],
)
def test_rules(rule: str, place: str, what: str) -> None:
    message = refusal(HEAD + "rules:\n- name: a\n  match: " + rule + "\n" + POOL)
    assert f"p.yaml:{place}: " in message
    assert what in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ladders: {cloud: [{rung: reboot}]}", "`bare_metal` is missing"),
        ("ladders: {cloud: []}", "at least 1 item"),
        (POOL + "    ladder: nowhere", "there is no ladder `nowhere`"),
        (POOL + "    includes: [storage]", "name it in `storage_probe`"),
        (POOL + "    includes: [storage]\n    storage_probe: weka", "storage nodes go one at a time"),
        ("thresholds: [{name: t, above: 78, clear_below: 74, dwell_s: 0, fault: thermal/t, fault_class: critical}]",
         "a single moment is no finding"),
        ("thresholds: [{name: t, above: 78, clear_below: 74, dwell_s: 9, min_samples: 1, fault: thermal/t, "
         "fault_class: critical}]", "a single sample is no finding"),
        ("thresholds: [{name: t, above: 78, clear_below: 79, dwell_s: 9, fault: thermal/t, fault_class: critical}]",
         "must not be greater"),
        ("checkpoints: [{kinds: [Job]}]", "exactly one of `annotation`, `command` and `interval`"),
    ],
)  # fmt: skip
def test_other_parts(text: str, what: str) -> None:
    assert what in refusal(HEAD + text + "\n")


def test_rungs_of_one_ladder() -> None:
    base = policy().model_dump(mode="json")

    def ladder(*steps: dict[str, object]) -> str:
        with pytest.raises(ValueError, match="ladders") as refused:
            Policy.model_validate(base | {"ladders": base["ladders"] | {"mine": list(steps)}})
        return str(refused.value)

    assert "stands here twice" in ladder({"rung": "reboot"}, {"rung": "reboot"})
    assert "asks for no successor" in ladder({"rung": "reboot", "request_first": True})
    assert "ends a ladder" in ladder({"rung": "escalate"}, {"rung": "reboot"})
    assert "less than or equal to 2" in ladder({"rung": "reboot", "attempts": 3})


def test_two_pools_that_name_the_same_node() -> None:
    text = "pools:\n  a: {clusters: [c], select: {nodes: [n1, n2]}}\n  b: {clusters: [c], select: {nodes: [n2]}}\n"
    assert "p.yaml:5:38: pools.b.select.nodes: n2 stands in pool `a` as well" in refusal(HEAD + text)


def test_equal_names_of_rules() -> None:
    rule = "- {name: a, match: {codes: [xid/79]}}\n"
    assert refusal(HEAD + "rules:\n" + rule + rule).count("`a` names 2 rules") == 2
