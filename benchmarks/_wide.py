"""Limits wider than any policy may make them, so that many incidents go at once; the guard's work stays the same.

`BENCHMARK_WIDE=marks` widens only the mark budget: all are marked, and wait for leases and people as in production.
"""

from __future__ import annotations

import os

from activities.storage.database import Database
from activities.storage.policies import Policies
from medevac.fleet.limits import Limits, Share
from medevac.policy.active import PolicyVersion
from medevac.policy.policy import Policy

MANY = 1_000_000
EVERYWHERE = Share(count=MANY)
VARIABLE = "BENCHMARK_WIDE"
MARKS = {"marks": EVERYWHERE, "marks_standing_percent": 100.0}
ALL = {
    **MARKS,
    "at_once": {"rack": EVERYWHERE, "pool": EVERYWHERE, "cluster": EVERYWHERE},
    "fleet_nodes": MANY,
    "same_fault_nodes": MANY,
    "breaker_level_percent": 1_000.0,
    "breaker_rate": MANY,
}


class WideVersion(PolicyVersion):
    @property
    def policy(self) -> Policy:
        found = super().policy
        limits = Limits() if os.environ.get(VARIABLE) == "marks" else found.limits
        update = MARKS if os.environ.get(VARIABLE) == "marks" else ALL
        return found.model_copy(update={"limits": limits.model_copy(update=update)})


class WidePolicies(Policies):
    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._wide: tuple[PolicyVersion, WideVersion] | None = None

    def active(self) -> PolicyVersion:
        found = super().active()
        if self._wide is None or self._wide[0] is not found:
            self._wide = found, WideVersion.model_validate(found.model_dump())
        return self._wide[1]
