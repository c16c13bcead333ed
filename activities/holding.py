"""Silences and windows, asked again when a lease is: a plan may have waited in line since before they began."""

from __future__ import annotations

from datetime import datetime

from activities.storage.policies import Policies
from activities.storage.silences import Silences
from medevac.faults.classes import FaultClass
from medevac.fleet.lease import LeaseRequest
from medevac.policy.opening import asking_window, window
from medevac.policy.silences import Holds, Subject, silenced

DISRUPTION = (Holds.MARK, Holds.DESTRUCTIVE)
"""What is not even marked is not acted on."""


class Holding:
    """Blocking. What can't be read is a no: it raises."""

    def __init__(self, policies: Policies, silences: Silences) -> None:
        self._policies = policies
        self._silences = silences

    def why_not(self, lease: LeaseRequest, now: datetime) -> str:
        """Empty where nothing holds it. A notice has the provider's own time, which its plan knew."""
        if lease.fault_class is FaultClass.PLANNED:
            return ""
        pool = lease.pool_name
        subject = Subject(
            cluster=lease.cluster, pool=pool, node=lease.node, fault=lease.fault, fault_class=lease.fault_class
        )
        standing = self._silences.standing(now)
        policy = self._policies.active().policy
        for edge in DISRUPTION:
            if held := window(policy, pool, edge, now):
                return held.why
            if silence := silenced(standing, subject, edge, now):
                return str(silence)
        # Planned before the window began, it would ask nobody: it is held until it is planned anew.
        asked = None if lease.person_asked else asking_window(policy, pool, now)
        return f"{asked.why}; what was planned before it waits" if asked else ""
