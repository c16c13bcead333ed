"""Shifts change by the wall's clock, also on the nights when it changes itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from medevac.policy.shifts import Shifts
from tests.unit.policy.test_bounds import HEAD, refusal

BERLIN = ZoneInfo("Europe/Berlin")


def wall(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).astimezone(UTC)


def shifts(*at: str) -> Shifts:
    return Shifts(at=at, zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 11), ("2026-07-10", 12), ("2026-10-25", 13)], ids=["spring", "summer", "autumn"]
)
def test_eight_is_eight_on_the_wall_every_day(day: str, hours: int) -> None:
    found = shifts("08:00", "20:00")
    began, ended = found.last(wall(f"{day}T08:00"))
    assert ended == wall(f"{day}T08:00")
    assert ended - began == timedelta(hours=hours)
    assert found.last(wall(f"{day}T08:00") - timedelta(seconds=1))[1] == began
    assert found.last(wall(f"{day}T19:59"))[1] == ended


def test_a_time_that_the_clocks_skip_is_after_the_gap() -> None:
    assert shifts("02:30").last(wall("2026-03-29T04:00"))[1] == wall("2026-03-29T03:00")


def test_a_time_that_comes_twice_counts_the_first_time() -> None:
    found = shifts("02:30")
    first, second = wall("2026-10-25T02:30"), wall("2026-10-25T02:30", fold=1)
    assert second - first == timedelta(hours=1)
    for moment in (first, second, second + timedelta(hours=2)):
        assert found.last(moment)[1] == first


@given(st.integers(0, 366 * 24 * 60))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_a_shift_ends_where_the_next_begins(minutes: int) -> None:
    found, now = shifts("02:30", "14:00", "22:15"), wall("2026-01-01T00:00") + timedelta(minutes=minutes)
    began, ended = found.last(now)
    assert began < ended <= now < ended + timedelta(hours=13)
    assert found.last(ended) == (began, ended)
    assert found.last(ended - timedelta(microseconds=1))[1] == began


@pytest.mark.parametrize(
    "wrong",
    [{"at": ["08:00"]}, {"at": [], "zone": "UTC"}, {"at": ["24:00"], "zone": "UTC"}, {"at": ["8"], "zone": "UTC"}],
)
def test_what_is_no_shift_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Shifts.model_validate(wrong)


def test_the_zone_is_required_where_the_policy_names_times() -> None:
    assert "zone" in refusal(HEAD + 'handover: {at: ["08:00"]}\n')
    assert "no IANA time zone" in refusal(HEAD + 'handover: {at: ["08:00"], zone: Berlin}\n')
