"""78.1 °C for the dwell is a fault; 77.9 °C, or one sample short of the dwell, is nothing."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from medevac.events.event import HealthEvent, Kind, Measurement, Statement
from medevac.faults.classes import FaultClass
from medevac.faults.threshold import Dwell, Threshold, judge
from tests.unit.faults.said import at

HOT = Threshold(
    name="gpu_temp",
    above=78.0,
    clear_below=75.0,
    dwell_s=300,
    fault="thermal/gpu-temp",
    fault_class=FaultClass.TRANSIENT,
    unit="C",
)


def sample(
    value: float, when: datetime, *, window_s: float = 60.0, name: str = "gpu_temp", unit: str = "C"
) -> HealthEvent:
    return HealthEvent(
        source="generic",
        id=f"{name}-{when.isoformat()}",
        dedupe_key="m",
        subject="gpu-node-07",
        kind=Kind.MEASUREMENT,
        entities=("gpu:4",),
        received_at=when,
        measurement=Measurement(name=name, value=value, unit=unit, window_s=window_s),
    )


def run(*values: float, every: float = 60.0, threshold: Threshold = HOT) -> list[HealthEvent | None]:
    state: Dwell | None = None
    said: list[HealthEvent | None] = []
    for i, value in enumerate(values):
        state, event = judge(threshold, state, sample(value, at(i * every)), at(i * every))
        said.append(event)
    return said


def test_above_for_the_dwell_is_a_fault() -> None:
    *before, event = run(*[78.1] * 5)
    assert before == [None] * 4
    assert event is not None
    assert (event.kind, event.fault, event.fault_class) == (Kind.FAULT, "thermal/gpu-temp", FaultClass.TRANSIENT)
    assert event.statement is Statement.LEVEL
    assert event.starts_at == at(-60)
    assert event.entities == ("gpu:4",)
    assert "78.1 C" in event.summary


def test_one_sample_short_of_the_dwell_is_nothing() -> None:
    assert run(*[78.1] * 4) == [None] * 4


def test_just_below_is_nothing_however_long() -> None:
    assert run(*[77.9] * 100) == [None] * 100


def test_exactly_at_the_limit_is_not_above() -> None:
    assert run(*[78.0] * 20) == [None] * 20


def test_one_cooler_sample_begins_anew() -> None:
    assert run(78.1, 78.1, 78.1, 78.1, 77.9, 78.1, 78.1, 78.1, 78.1) == [None] * 9


def test_a_gap_in_the_samples_is_no_evidence() -> None:
    assert run(78.1, 78.1, 78.1, every=400) == [None] * 3


def test_one_long_window_alone_is_not_enough() -> None:
    assert judge(HOT, None, sample(95.0, at(0), window_s=3_600), at(0))[1] is None


def test_it_repeats_while_it_stands_and_clears_once_with_the_same_key() -> None:
    said = [e for e in run(*[80.0] * 6, 76.5, 80.0, *[74.0] * 6) if e is not None]
    kinds = [e.kind for e in said]
    assert kinds == [Kind.FAULT, Kind.FAULT, Kind.FAULT, Kind.RECOVERED]
    assert len({e.dedupe_key for e in said}) == 1
    assert said[-1].ends_at is not None


def test_between_the_two_limits_nothing_clears() -> None:
    said = run(*[80.0] * 5, *[76.0] * 50)
    assert [e.kind for e in said if e is not None] == [Kind.FAULT]


def test_a_sample_delivered_twice_counts_once() -> None:
    state: Dwell | None = None
    said = []
    for i in range(4):
        for _ in range(3):
            state, event = judge(HOT, state, sample(78.1, at(i * 60)), at(i * 60))
            said.append(event)
    assert said == [None] * 12


@pytest.mark.parametrize("odd", [{"name": "power"}, {"unit": "F"}])
def test_another_quantity_or_unit_is_not_judged(odd: dict[str, str]) -> None:
    state: Dwell | None = None
    for i in range(20):
        state, event = judge(HOT, state, sample(200.0, at(i * 60), **odd), at(i * 60))  # type: ignore[arg-type]
        assert event is None


def test_the_clear_limit_lies_below() -> None:
    with pytest.raises(ValidationError, match="must not be greater"):
        Threshold.model_validate({**HOT.model_dump(), "clear_below": 79})


@given(st.lists(st.floats(60, 100), max_size=60))
@settings(derandomize=True, deadline=None)
def test_faults_and_clears_alternate_and_each_has_its_dwell(values: list[float]) -> None:
    stands, above = False, 0
    for value, event in zip(values, run(*values), strict=True):
        above = above + 1 if value > HOT.above else 0
        if event is not None and event.kind is Kind.FAULT and not stands:
            assert above >= 5, "raised before the dwell was over"
            stands = True
        elif event is not None and event.kind is Kind.RECOVERED:
            assert stands, "cleared what did not stand"
            stands = False
