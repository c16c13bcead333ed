"""Change freezes and maintenance windows of the policy: by cron or iCalendar, in a zone that is always named.

Times are those of the wall: a window from 22:00 that lasts 8 hours ends at 06:00 also in the nights when clocks change.
A start that the clocks skip is the moment after the gap; one that comes twice counts once, the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from medevac.model import Model
from medevac.policy.durations import Duration
from medevac.policy.names import Name
from medevac.policy.silences import Holds

if TYPE_CHECKING:
    from icalendar import Calendar

LONGEST_S = 31 * 86_400.0
FAR = timedelta(days=400)
"""How far ahead the next window is looked for."""
MOST_OVERLAPPING = 100
MAX_CALENDAR = 100_000


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"`{name}` is no IANA time zone; write one like `Europe/Berlin` or `UTC`") from None
    return name


Zone = Annotated[str, Field(min_length=1, max_length=60), AfterValidator(_known_zone)]
Span = tuple[datetime, datetime]


class Window(Model):
    """A time in which something is held. `outside: true` turns it around: a maintenance window, held at all others."""

    zone: Zone
    """IANA name. Required: nobody's server time is everybody's."""
    cron: str | None = Field(default=None, max_length=200)
    """When it begins, in five fields."""
    lasts: Annotated[Duration, Field(gt=0, le=LONGEST_S)] | None = None
    """With `cron`: how long, on the clock of the wall."""
    ical: str | None = Field(default=None, max_length=MAX_CALENDAR)
    """The text of an iCalendar file, whose events are the window. Floating and all-day ones are read in `zone`."""
    holds: tuple[Holds, ...] = Field(default=(Holds.DESTRUCTIVE,), min_length=1)
    pools: tuple[Name, ...] = ()
    """Of which pools; none named: of all."""
    asks: bool = False
    """People are asked first about what would disrupt, instead of its being held."""
    outside: bool = False
    reason: str = Field(default="", max_length=300)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.cron is None) == (self.ical is None):
            raise ValueError("give exactly one of `cron` (with `lasts`) and `ical`")
        if (self.cron is None) != (self.lasts is None):
            raise ValueError("`cron` says when it begins and `lasts` how long; they go together")
        if self.asks and (Holds.DESTRUCTIVE not in self.holds or Holds.MARK in self.holds):
            raise ValueError("`asks` is about what disrupts a marked node: give `holds: [destructive]`, without `mark`")
        if self.cron is not None:
            if len(self.cron.split()) != 5:
                raise ValueError(f"`{self.cron}` has not five fields: minute hour day month weekday")
            cron_times(self.cron, datetime(2026, 1, 1, tzinfo=UTC), back=False)
        else:
            _calendar(self.ical or "")
        return self

    def covers(self, pool: str | None) -> bool:
        return not self.pools or pool in self.pools

    def until(self, now: datetime) -> datetime | None:
        """When what is held now is let go; None where nothing is held now."""
        inside = self._around(now)
        if not self.outside:
            return inside
        if inside is not None:
            return None
        return next(self.spans(now), (now + FAR, now))[0]

    def spans(self, now: datetime) -> Iterator[Span]:
        """The next times of the window itself that begin after `now`, within 400 days."""
        return self._by_cron(now) if self.cron is not None else self._by_calendar(now)

    def _around(self, now: datetime) -> datetime | None:
        zone = ZoneInfo(self.zone)
        if self.cron is None:
            spans = _events(self.ical or "", zone, now, now)
            return max((end for begin, end in spans if begin <= now < end), default=None)
        lasts = self.lasts or 0.0
        local = now.astimezone(zone)
        ends = []
        # One minute ahead: the search leaves out the minute that it starts from.
        for begin in islice(cron_times(self.cron, local + timedelta(minutes=1), back=True), MOST_OVERLAPPING):
            if local - begin > timedelta(seconds=lasts) + timedelta(days=1):
                break
            end = _later(begin, lasts)
            if begin.astimezone(UTC) <= now < end:
                ends.append(end)
        return max(ends, default=None)

    def _by_cron(self, now: datetime) -> Iterator[Span]:
        for begin in cron_times(self.cron or "", now.astimezone(ZoneInfo(self.zone)), back=False):
            if begin.astimezone(UTC) > now + FAR:
                return
            if begin.astimezone(UTC) > now:
                yield begin.astimezone(UTC), _later(begin, self.lasts or 0.0)

    def _by_calendar(self, now: datetime) -> Iterator[Span]:
        found = _events(self.ical or "", ZoneInfo(self.zone), now, now + FAR)
        yield from sorted(span for span in found if span[0] > now)


def _later(begin: datetime, lasts_s: float) -> datetime:
    """On the wall's clock, told in UTC."""
    end = begin.replace(tzinfo=None) + timedelta(seconds=lasts_s)
    return end.replace(tzinfo=begin.tzinfo).astimezone(UTC)


def cron_times(expression: str, start: datetime, *, back: bool) -> Iterator[datetime]:
    """From the zoned `start` on or back, without the minute of `start`. Raises `ValueError`."""
    from cronsim import CronSim, CronSimError

    try:
        return iter(CronSim(expression, start, reverse=back))
    except CronSimError as error:
        raise ValueError(f"`{expression}` is no cron expression: {error}") from None


@lru_cache(maxsize=32)
def _calendar(text: str) -> Calendar:
    from icalendar import Calendar

    try:
        found = Calendar.from_ical(text)
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"`ical` can't be read as an iCalendar file: {error}") from None
    if not isinstance(found, Calendar) or not found.walk("VEVENT"):
        raise ValueError("`ical` has no events, and would hold nothing")
    return found


def _events(text: str, zone: ZoneInfo, since: datetime, until: datetime) -> list[Span]:
    import recurring_ical_events

    # A day more on both sides: floating and all-day events are not yet in their zone there.
    day = timedelta(days=1)
    found = recurring_ical_events.of(_calendar(text)).between(since - day, until + day)
    spans = [_span(event, zone) for event in found]
    return [(begin, end) for begin, end in spans if end > since and begin <= until]


def _span(event: Any, zone: ZoneInfo) -> Span:
    return _moment(event.start, zone), _moment(event.end, zone)


def _moment(value: date, zone: ZoneInfo) -> datetime:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - its zone is given right below
    return (value.replace(tzinfo=zone) if value.tzinfo is None else value).astimezone(UTC)
