"""When a long step must have ended, counted so that a worker's death doesn't eat the step's time."""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import activity

MARGIN_S = 5.0
"""Kept of the server's own limit, to say how the step ended before the server says it for us."""


def deadline(seconds: float, now: datetime, *, margin_s: float = MARGIN_S) -> datetime:
    """Of the attempt that begins `now`.

    The step's time runs from when it was first scheduled. An attempt that begins late (its worker died, a freeze
    was thawed) has as much of it anew as the activity's schedule-to-close leaves: without that, a step of seconds
    would end by an outage in which nothing was tried.
    """
    info = activity.info()
    own = info.scheduled_time + timedelta(seconds=seconds)
    if info.schedule_to_close_timeout is None:
        return own
    latest = info.scheduled_time + info.schedule_to_close_timeout - timedelta(seconds=margin_s)
    return max(own, min(now + timedelta(seconds=seconds), latest))
