"""The shipped files: they load, they fit the published schema, and they do what they say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from medevac.events.event import HealthEvent, Kind, Measurement
from medevac.faults.catalogue import rows
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.threshold import judge
from medevac.policy.active import PolicyVersion
from medevac.policy.ladders import GENTLE, LADDERS
from medevac.policy.loading import PRESETS, load, preset, schema
from medevac.policy.plan import Action, Drain, History, Mode, Plan, Rung
from medevac.policy.planner import Context, plan
from medevac.policy.policy import Policy
from medevac.policy.text import Text
from tests.unit.policy.cases import NOW, bare, decide, fault, faults, node, said, with_pool


def acting(name: str, mode: Mode = Mode.AUTO) -> Policy:
    """The preset with its pool turned to the test's node."""
    base = load(preset(name)).model_dump(mode="json")
    base["pools"] = {"train": {"clusters": ["c"], "select": {"pool": "train"}, "mode": mode}}
    return Policy.model_validate(base)


@pytest.mark.parametrize("name", PRESETS)
def test_loads_and_fits_the_schema(name: str) -> None:
    text = preset(name)
    assert load(text, name).name == name
    jsonschema.Draft202012Validator(schema()).validate(Text(text).data)


def test_the_schema_refuses_what_loading_refuses() -> None:
    checker = jsonschema.Draft202012Validator(schema())
    for wrong in (
        {"version": 1},
        {"version": 1, "name": "t", "ruls": []},
        {"version": 1, "name": "t", "watch": "fast"},
    ):
        assert not checker.is_valid(wrong)


@pytest.mark.parametrize("name", ["default", "modal", "krea"])
def test_shipped_policies_only_observe_and_let_nothing_destructive_go_by_itself(name: str) -> None:
    found = load(preset(name))
    assert not found.simulated_only
    assert {pool.mode for pool in found.pools.values()} == {Mode.OBSERVE}
    assert set(found.auto) <= GENTLE


def test_the_default_file_says_what_the_code_defaults_to() -> None:
    found, bare_minimum = load(preset("default")), Policy(name="default")
    assert found.ladders == bare_minimum.ladders == dict(LADDERS)
    for part in type(found).model_fields:
        if part not in ("pools", "rules", "thresholds"):
            assert getattr(found, part) == getattr(bare_minimum, part), part


EXPECTED = {
    FaultClass.CRITICAL: {Action.ACT, Action.HAND_OVER},
    FaultClass.DEGRADED: {Action.ACT, Action.HAND_OVER},
    FaultClass.TRANSIENT: {Action.WATCH},
    FaultClass.PLANNED: {Action.ACT},
    FaultClass.APPLICATION: {Action.RECORD},
    FaultClass.RECORD: {Action.RECORD},
    FaultClass.MONITOR: {Action.ACT, Action.OBSERVE},
    FaultClass.UNKNOWN: {Action.OBSERVE},
}


@pytest.mark.parametrize("where", [node(), bare()], ids=["cloud", "bare-metal"])
def test_one_outcome_for_every_code_of_the_catalogue(where: Any) -> None:
    version = PolicyVersion.of(acting("default").model_dump_json(), "ann", NOW)
    wrong = []
    for code, row in rows().items():
        made = _plan(code, version, where)
        ours = made.action in EXPECTED[row.fault_class]
        marked = made.mark == row.fault_class.repairable
        drained = made.drain is None or row.fault_class.repairable
        if not (ours and marked and drained and made.reasons and code in said(made)):
            wrong.append((code, row.fault_class, made.action, made.rung, said(made)))
    assert wrong == []


def _plan(code: str, version: PolicyVersion, where: Any) -> Plan:
    context = Context(
        incident="inc-1", n=1, cluster="c", node_name="n1", node=where, faults=faults(fault(code)), history=History(),
        opened_at=NOW, check_covers=frozenset(Covers),
    )  # fmt: skip
    return plan(context, version, NOW)


@pytest.mark.parametrize(
    ("code", "cloud", "metal", "drain"),
    [
        ("xid/48", Rung.REPLACE, Rung.REBOOT, Drain.SOON),
        ("xid/64", Rung.REPLACE, Rung.RMA, Drain.SOON),
        ("xid/79", Rung.REPLACE, Rung.REBOOT, Drain.SOON),
        ("xid/95", Rung.REPLACE, Rung.REBOOT, Drain.SOON),
        ("row-remap/failure", Rung.REPLACE, Rung.RMA, Drain.SOON),
        ("ecc/uncontained", Rung.REPLACE, Rung.REBOOT, Drain.SOON),
        ("device-count/short", Rung.REPLACE, Rung.REBOOT, Drain.SOON),
        *((f"xid/{n}", Rung.REBOOT, Rung.REBOOT, Drain.CHECKPOINT) for n in (46, 62, 109, 119, 120, 143)),
        *((f"xid/{n}", Rung.REPLACE, Rung.REBOOT, Drain.CHECKPOINT) for n in (74, 140)),
    ],
)
def test_named_codes_of_the_default_table(code: str, cloud: Rung, metal: Rung, drain: Drain) -> None:
    under = acting("default")
    first = decide(code, under=under)
    assert (first.rung, first.drain if first.rung is not Rung.RMA else drain) == (cloud, drain)
    assert decide(code, under=under, where=bare()).rung is metal


# -- modal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("xid", [9, 26, 46, 48, 62, 64, 68, 74, 79, 95, 110, 119, 120, 140, 143, 154, 167, 171, 172])
def test_modal_takes_the_whole_host_out_for_a_critical_fault(xid: int) -> None:
    under = acting("modal")
    made = decide(f"xid/{xid}", under=under)
    assert (made.action, made.rung, made.drain, made.fault_class) == (
        Action.ACT, Rung.REPLACE, Drain.SOON, FaultClass.CRITICAL,
    )  # fmt: skip
    assert made.approval is not None
    no_spares = bare(capabilities=frozenset(bare().machine.capabilities) - {"replace", "terminate"})
    assert decide(f"xid/{xid}", under=under, where=no_spares).rung is Rung.REINSTALL


@pytest.mark.parametrize(
    "code", ["xid/13", "xid/31", "xid/43", "xid/63", "xid/92", "xid/94", "xid/144", "thermal/gpu-temp"]
)
def test_modal_only_tells_what_is_not_critical(code: str) -> None:
    made = decide(code, under=acting("modal"), at=NOW + timedelta(hours=1))
    assert made.action in (Action.OBSERVE, Action.RECORD)
    assert not made.mark


# -- krea --------------------------------------------------------------------------------------------------------


def sampled(*values: float, every_s: float = 20) -> HealthEvent | None:
    """What the preset's threshold says to these samples of one GPU."""
    (threshold,) = load(preset("krea")).thresholds
    state, event = None, None
    for i, value in enumerate(values):
        sample = HealthEvent(
            source="generic", id=f"m-{i}", dedupe_key="temp", subject="n1", kind=Kind.MEASUREMENT, entities=("gpu:4",),
            measurement=Measurement(name="gpu_temp", value=value, unit="C"),
        )  # fmt: skip
        state, event = judge(threshold, state, sample, NOW + i * timedelta(seconds=every_s))
    return event


def test_krea_at_78_1_for_the_dwell_asks_for_a_successor_first_and_repairs_nothing() -> None:
    event = sampled(78.1, 78.1, 78.1, 78.1)
    assert event is not None
    assert event.fault == "thermal/gpu-temp"
    assert event.fault_class is not None
    hot = fault(event.fault, fault_class=event.fault_class, covers=event.covers)
    for mode in (Mode.AUTO, Mode.APPROVE):
        made = decide(hot, under=acting("krea", mode))
        assert (made.action, made.mark, made.mark_after_approval) == (Action.ACT, True, False)
        assert (made.rung, made.request_first, made.drain) == (Rung.REPLACE, True, Drain.SOON)
        after = decide(hot, under=acting("krea", mode), asked_rungs=(Rung.REPLACE,))
        assert after.rung in (Rung.RMA, None)


def test_krea_says_the_same_where_the_catalogue_classed_it() -> None:
    assert decide("thermal/gpu-temp", under=acting("krea")).request_first


@pytest.mark.parametrize(
    "values", [(77.9,) * 10, (78.1, 78.1, 78.1), (78.1, 78.1, 77.9, 78.1, 78.1, 78.1), (78.0,) * 9]
)
def test_krea_below_or_one_sample_short_does_nothing(values: tuple[float, ...]) -> None:
    assert sampled(*values) is None


def test_thermal_eject_ships_off() -> None:
    found = load(preset("default"))
    assert all(threshold.above >= 88 for threshold in found.thresholds)
    assert "eject" not in found.ladders


# -- demo --------------------------------------------------------------------------------------------------------


def test_the_demo_is_quick_and_shows_a_reboot_by_itself_and_a_replacement_with_approval() -> None:
    found = load(preset("demo"))
    assert found.simulated_only
    for pool in found.pools:
        where = node(cluster="sim-a", pool=pool, simulated=True)
        reboot = decide("xid/119", under=found, where=where, cluster="sim-a")
        assert (reboot.rung, reboot.approval) == (Rung.REBOOT, None)
        replace = decide("xid/79", under=found, where=where, cluster="sim-a")
        assert replace.rung is Rung.REPLACE
        assert replace.approval is not None
        assert reboot.drain_s + reboot.step_s + reboot.verify_s + reboot.probation_s < 40
    assert decide("xid/119", under=found, where=node(cluster="sim-a")).action is Action.OBSERVE


def test_a_pool_may_choose_its_ladder() -> None:
    under = with_pool(acting("modal"), ladder="bare_metal")
    assert under.pools["train"].ladder == "bare_metal"


def test_the_handbooks_example_is_a_policy() -> None:
    handbook = Path(__file__).parents[3] / "docs" / "policy.md"
    example = handbook.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    found = load(example, "policy.md")
    assert found.pools["research"].mode is Mode.OBSERVE
    assert decide("alert/OurGpuBroken", under=found, where=node(cluster="main", labels={"pool": "research"})).would
