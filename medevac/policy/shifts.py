"""When shifts change: times of the wall, in a zone that is always named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints

from medevac.model import Model
from medevac.policy.windows import Zone, cron_times

TimeOfDay = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class Shifts(Model):
    """One that the clocks skip is the moment after the gap; one that comes twice counts once, the first time."""

    at: tuple[TimeOfDay, ...] = Field(min_length=1, max_length=24)
    """`08:00`, every day."""
    zone: Zone
    """IANA name. Required: nobody's server time is everybody's."""

    def last(self, now: datetime) -> tuple[datetime, datetime]:
        """The newest shift that is over: when it began and ended, in UTC."""
        here, found = now.astimezone(ZoneInfo(self.zone)), set[datetime]()
        for time in self.at:
            hour, minute = time.split(":")
            # A minute ahead: the search leaves out the minute that it starts from.
            back = cron_times(f"{minute} {hour} * * *", here + timedelta(minutes=1), back=True)
            past = (moment for one in back if (moment := one.astimezone(UTC)) <= now)
            found |= set(islice(past, 2))
        began, ended = sorted(found)[-2:]
        return began, ended
