"""Windows keep the wall's time on the nights when clocks change, both ways, by cron and by calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from medevac.policy.diff import widens
from medevac.policy.policy import Policy
from medevac.policy.silences import Holds
from medevac.policy.windows import Window

BERLIN = ZoneInfo("Europe/Berlin")


def wall(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def cron(expression: str, lasts: str, **more: object) -> Window:
    return Window.model_validate({"cron": expression, "lasts": lasts, "zone": "Europe/Berlin", **more})


def ical(*events: str, zone: str = "Europe/Berlin") -> Window:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN"]
    for number, event in enumerate(events):
        lines += ["BEGIN:VEVENT", f"UID:{number}", "DTSTAMP:20260101T000000Z", *event.split("|"), "END:VEVENT"]
    return Window(zone=zone, ical="\r\n".join([*lines, "END:VCALENDAR", ""]))


NIGHTLY = (
    cron("0 22 * * *", "8h"),
    ical("DTSTART:20260101T220000|DTEND:20260102T060000|RRULE:FREQ=DAILY"),
    ical("DTSTART;TZID=Europe/Berlin:20260101T220000|DTEND;TZID=Europe/Berlin:20260102T060000|RRULE:FREQ=DAILY",
         zone="UTC"),
)  # fmt: skip


@pytest.mark.parametrize("window", NIGHTLY, ids=["cron", "floating", "zoned"])
@pytest.mark.parametrize("night", ["2026-03-28", "2026-07-10", "2026-10-24"], ids=["spring", "summer", "autumn"])
def test_ten_to_six_is_ten_to_six_in_every_night(window: Window, night: str) -> None:
    evening = datetime.fromisoformat(night)
    end = (evening + timedelta(days=1)).replace(hour=6, tzinfo=BERLIN)
    assert window.until(evening.replace(hour=21, minute=59, tzinfo=BERLIN)) is None
    for moment in (evening.replace(hour=22, tzinfo=BERLIN), end - timedelta(minutes=1)):
        assert window.until(moment.astimezone(UTC)) == end
    assert window.until(end.astimezone(UTC)) is None
    begin, ends = next(window.spans(evening.replace(hour=12, tzinfo=BERLIN).astimezone(UTC)))
    assert (begin, ends) == (evening.replace(hour=22, tzinfo=BERLIN), end)


def test_a_start_that_the_clocks_skip_is_after_the_gap() -> None:
    window = cron("30 2 * * *", "2h")
    assert window.until(wall("2026-03-29T01:59").astimezone(UTC)) is None
    assert window.until(wall("2026-03-29T03:00").astimezone(UTC)) == wall("2026-03-29T05:00")


def test_a_start_that_comes_twice_counts_once() -> None:
    window = cron("30 2 * * *", "20m")
    first, second = wall("2026-10-25T02:35"), wall("2026-10-25T02:35", fold=1)
    assert first.astimezone(UTC) != second.astimezone(UTC)
    assert window.until(first.astimezone(UTC)) is not None
    assert window.until(second.astimezone(UTC)) is None


def test_all_day_events_are_the_zones_days() -> None:
    window = ical("DTSTART;VALUE=DATE:20261224|DTEND;VALUE=DATE:20270102")
    assert window.until(wall("2026-12-23T23:59").astimezone(UTC)) is None
    assert window.until(wall("2026-12-24T00:00").astimezone(UTC)) == wall("2027-01-02T00:00")


def test_an_excepted_day_holds_nothing() -> None:
    window = ical("DTSTART:20260601T220000|DTEND:20260602T060000|RRULE:FREQ=DAILY|EXDATE:20260603T220000")
    assert window.until(wall("2026-06-03T23:00").astimezone(UTC)) is None
    assert window.until(wall("2026-06-04T23:00").astimezone(UTC)) is not None


def test_outside_holds_until_the_window_opens() -> None:
    window = cron("0 9 * * 1-5", "8h", outside=True)
    friday, monday = wall("2026-06-05T12:00"), wall("2026-06-08T09:00")
    assert window.until(friday.astimezone(UTC)) is None
    assert window.until(wall("2026-06-05T17:00").astimezone(UTC)) == monday


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 230 * 1_440).map(lambda minutes: datetime(2026, 3, 20, tzinfo=UTC) + timedelta(minutes=minutes)))
def test_cron_and_calendar_agree_at_any_moment(at: datetime) -> None:
    assert len({window.until(at) for window in NIGHTLY}) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "0 22 * * *", "lasts": "8h"},
        {"cron": "0 22 * * *", "lasts": "8h", "zone": "Middle/Earth"},
        {"cron": "0 22 * * *", "lasts": "8h", "zone": ""},
        {"cron": "0 22 * * *", "zone": "UTC"},
        {"cron": "61 22 * * *", "lasts": "8h", "zone": "UTC"},
        {"cron": "* * * * * *", "lasts": "8h", "zone": "UTC"},
        {"cron": "0 22 * * *", "lasts": "40d", "zone": "UTC"},
        {"zone": "UTC"},
        {"zone": "UTC", "ical": "no calendar"},
        {"zone": "UTC", "ical": "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nEND:VCALENDAR\r\n"},
        {"cron": "0 22 * * *", "lasts": "8h", "zone": "UTC", "holds": []},
    ],
)
def test_what_is_no_window_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Window.model_validate(given)


def test_one_more_narrows_and_one_less_widens() -> None:
    without, night = Policy(name="p"), cron("0 22 * * *", "8h")

    def having(**changed: object) -> Policy:
        return Policy(name="p", windows={"night": night.model_copy(update=changed)})

    assert not widens(without, having())
    assert widens(having(), without)
    assert widens(having(), having(cron="0 23 * * *"))
    assert widens(having(), having(outside=True))
    assert widens(having(), having(pools=("a",)))
    assert widens(having(), having(holds=(Holds.NOTIFY,)))
    assert not widens(having(), having(holds=(Holds.MARK, Holds.DESTRUCTIVE), reason="more"))
