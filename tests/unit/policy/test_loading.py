"""A wrong policy is refused with its place, what is wrong, and what to write instead."""

from __future__ import annotations

import json

import pytest

from medevac.faults.catalogue import lookup
from medevac.faults.classes import FaultClass
from medevac.policy import bounds
from medevac.policy.active import PolicyVersion, policy_hash
from medevac.policy.loading import PolicyError, load, schema
from medevac.policy.plan import AtBudget
from medevac.policy.text import MAX_BYTES
from tests.unit.policy.cases import NOW, policy, version

HEAD = "version: 1\nname: t\n"
RULE = HEAD + "rules:\n- name: a\n  match: "
POOL = HEAD + "pools:\n  gpu:\n    clusters: [c]\n    select: {pool: gpu}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml:1:1: no mapping of settings; write `name: value`, one a line"),
        ("- a\n", "p.yaml:1:1: no mapping of settings; write `name: value`, one a line"),
        ("version: 1\n", "p.yaml:1:1: name: is missing; add it"),
        ("version: 2\nname: t\n", "p.yaml:1:10: version: `2` is not one of 1; remove it or use one of 1"),
        (HEAD + "ruls: []\n", "p.yaml:3:1: ruls: unknown key; did you mean `rules`?"),
        (HEAD + "name: u\n", "p.yaml:3:1: `name` stands here twice (first on line 2); remove one of them"),
        (HEAD + "drains:\n\tsoon: 1m\n", "p.yaml:4:1: a tab; indent with spaces"),
        (HEAD + "drains: {soon: fast}\n", "p.yaml:3:16: drains.soon: `fast` is no length of time; write it like"),
        (HEAD + "drains: {soon: 16m}\n", "p.yaml:3:16: drains.soon: input should be less than or equal to 900"),
        (HEAD + "x: &a 1\n", "p.yaml:3:4: anchors and aliases are not read; write the value out where it is needed"),
        (HEAD + "x: !!python/object:os.system 1\n", "p.yaml:3:4: tag"),
        (HEAD + "auto: [reboot\n", "p.yaml:4:1: not YAML:"),
        (HEAD + "a: 1\n---\nb: 2\n", "p.yaml:4:1: not YAML: but found another document"),
        ("[" * 50_000, "p.yaml:1:1: nested too deeply"),
        ("#" + "x" * MAX_BYTES, "p.yaml:1:1: the file is larger than 256 KiB"),
        (HEAD + "attempts: {same_rung: 3}\n", "p.yaml:3:23: attempts.same_rung: input should be less than or"),
        (HEAD + "attempts: {window: 6d}\n", "p.yaml:3:20: attempts.window: input should be greater than"),
        (RULE + "{}\n", "p.yaml:5:10: rules[0].match: an empty match never means every fault"),
        (RULE + "{codes: ['*']}\n", "p.yaml:5:19: rules[0].match.codes[0]: `*` is no valid name or code"),
        (RULE + "{classes: [critcal]}\n", "did you mean `critical`?"),
        (POOL + "    mode: autoo\n", "p.yaml:7:11: pools.gpu.mode: `autoo` is not one of observe, approve, auto;"),
        (HEAD + "pools: {gpu: {clusters: [c]}}\n", "p.yaml:3:9: pools.gpu.select: is missing; add it"),
        (HEAD + "pools: {gpu: {clusters: [], select: {pool: a}}}\n", "p.yaml:3:25: pools.gpu.clusters:"),
        (HEAD + "pools: {gpu: {clusters: ['*'], select: {pool: a}}}\n", "without wildcards"),
        (HEAD + "pools: {gpu: {clusters: [c], select: {}}}\n", "an empty selector never means all nodes"),
        (HEAD + "pools: {gpu: {clusters: [c], select: {nodes: ['*']}}}\n", "without wildcards"),
    ],
)  # fmt: skip
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        load(text, "p.yaml")
    assert message in str(refused.value)


def test_all_that_is_wrong_is_said_at_once_in_the_files_order() -> None:
    with pytest.raises(PolicyError) as refused:
        load(HEAD + "quite: 1\ndrains: {soon: 16m}\nfoo: 2\n", "p.yaml")
    places = [line.split(": ")[0] for line in str(refused.value).splitlines()]
    assert places == ["p.yaml:3:1", "p.yaml:4:16", "p.yaml:5:1"]


def test_a_flood_of_mistakes_is_bounded() -> None:
    with pytest.raises(PolicyError) as refused:
        load(HEAD + "".join(f"k{i}: 1\n" for i in range(500)))
    assert len(str(refused.value).splitlines()) == 31


def test_many_aliases_cost_nothing() -> None:
    bomb = "a: &a [1]\n" + "".join(f"b{i}: &b{i} [*{'a' if not i else f'b{i - 1}'}, *a]\n" for i in range(60))
    with pytest.raises(PolicyError, match="anchors"):
        load(bomb)


def test_json_is_read_as_well_and_means_the_same() -> None:
    made = policy()
    assert load(made.model_dump_json()) == made
    assert policy_hash(made.model_dump_json()) == policy_hash(json.dumps(json.loads(made.model_dump_json()), indent=2))


def test_the_older_spelling_of_what_comes_at_a_budget_is_read() -> None:
    assert load(HEAD).drains.at_budget is AtBudget.ASK
    assert load(HEAD + "drains: {bypass_budgets: true}\n").drains.at_budget is AtBudget.DELETE
    assert load(HEAD + "drains: {bypass_budgets: false}\n").drains.at_budget is AtBudget.ASK
    with pytest.raises(PolicyError, match=r"p.yaml:3:9: drains: .*older way to write"):
        load(HEAD + "drains: {bypass_budgets: true, at_budget: wait}\n", "p.yaml")
    with pytest.raises(PolicyError, match="not one of hand_over, wait, ask, delete"):
        load(HEAD + "drains: {at_budget: delte}\n", "p.yaml")


def test_comments_and_spelling_do_not_change_the_hash() -> None:
    a, b = HEAD + "watch: 10m  # a while\n", '{"name": "t", "version": 1, "watch": 600}'
    assert policy_hash(a) == policy_hash(b)
    assert policy_hash(a) != policy_hash(HEAD + "watch: 11m\n")


def test_a_version_reads_its_text_and_says_when_it_cannot() -> None:
    found = version(policy())
    assert found.policy == policy()
    assert PolicyVersion.model_validate_json(found.model_dump_json()).policy == policy()
    broken = found.model_copy(update={"text": "nonsense: 1", "version": 7})
    with pytest.raises(PolicyError, match="policy version 7:1:1"):
        _ = broken.policy
    with pytest.raises(PolicyError):
        PolicyVersion.of("nonsense: 1", "ann", NOW)


def test_a_newer_catalogue_never_makes_the_active_policy_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + "rules:\n- {name: a, match: {codes: [xid/46]}, raise_to: degraded, do: repair}\n"
    taken = PolicyVersion.of(text, "ann", NOW)
    worse = lookup("xid/46").model_copy(update={"fault_class": FaultClass.CRITICAL})
    monkeypatch.setattr(bounds, "lookup", lambda code: worse)
    load.cache_clear()
    assert taken.policy.rules[0].name == "a"
    with pytest.raises(PolicyError, match="may only make it worse"):
        load(text)


def test_the_schema_names_every_part() -> None:
    found = schema()
    assert found["title"] == "medevac policy"
    assert {"pools", "rules", "ladders", "limits", "who_may"} <= found["properties"].keys()
