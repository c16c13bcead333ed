"""The limits that the guard holds: the policy's numbers, with the bounds that never bend."""

from __future__ import annotations

from pydantic import Field

from medevac.model import Model


class Share(Model):
    """At most `count` nodes, or `percent` of the domain (rounded down, floor 1), whichever is larger unless
    `cap` says otherwise."""

    count: int = Field(ge=0, default=1)
    percent: float = Field(ge=0, le=100, default=0.0)

    def of(self, size: int) -> int:
        return max(self.count, int(size * self.percent / 100))


class Limits(Model):
    """Budgets. Rule 3 bounds `fleet_percent` at 5; policy may lower, nothing raises it above."""

    at_once: dict[str, Share] = {
        "rack": Share(count=1),
        "pool": Share(count=1, percent=1.0),
        "cluster": Share(count=1, percent=2.0),
    }
    """Disrupted at one time, by domain name. Domains not named here are not limited, except `provider` if set."""
    fleet_nodes: int = Field(default=3, ge=1)
    fleet_percent: float = Field(default=2.0, ge=0, le=5)
    fleet_window_s: float = Field(default=3_600, gt=0)
    """More destructive grants than max(fleet_nodes, fleet_percent of the pool) in this window: all further ask."""
    same_fault_nodes: int = Field(default=5, ge=1, le=5)
    same_fault_window_s: float = Field(default=1_800, ge=1_800)
    marks: Share = Share(count=3, percent=3.0)
    marks_window_s: float = Field(default=600, gt=0)
    marks_standing_percent: float = Field(default=10.0, ge=0, le=10)
    breaker_level_percent: float = Field(default=10.0, gt=0, le=20)
    """Out of service (ours and others') in a cluster at or above this opens the breaker by level."""
    breaker_rate: int = Field(default=10, ge=1)
    breaker_window_s: float = Field(default=600, gt=0)
    """Destructive grants of one fault class in a cluster within the window at or above this open it by rate."""
    min_spares: int = Field(default=0, ge=0)
    lease_ttl_s: float = Field(default=1_800, gt=0)
    grant_pace_s: float = Field(default=60.0, ge=0)
    """Least time between two destructive grants in one pool, for `fleet_window_s` after a breaker that stopped them
    closed or a thaw: what has waited must not go all at once, and a minute shows whether the first one goes wrong."""
