"""Windows of the policy that are open now, by what they do to an edge: hold it, or have people asked first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from medevac.policy.policy import Policy
from medevac.policy.silences import Holds

WINDOW_LOOK_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Held:
    until: datetime
    why: str
    look_s: float


def window(policy: Policy, pool: str | None, edge: Holds, now: datetime) -> Held | None:
    """The window of the policy that holds `edge` in this pool the longest."""
    return _longest(policy, pool, edge, now, asks=False)


def asking_window(policy: Policy, pool: str | None, now: datetime) -> Held | None:
    """The window in which whatever disrupts this pool asks first."""
    return _longest(policy, pool, Holds.DESTRUCTIVE, now, asks=True)


def _longest(policy: Policy, pool: str | None, edge: Holds, now: datetime, *, asks: bool) -> Held | None:
    found = []
    for name, one in policy.windows.items():
        if edge not in one.holds or not one.covers(pool) or (one.asks and edge is Holds.DESTRUCTIVE) is not asks:
            continue
        if (until := one.until(now)) is not None:
            because = f": {one.reason}" if one.reason else ""
            does = "asks" if asks else "holds it"
            found.append(
                Held(until, f"window `{name}` {does} until {until:%Y-%m-%d %H:%M} UTC{because}", WINDOW_LOOK_S)
            )
    return max(found, key=lambda held: held.until, default=None)
