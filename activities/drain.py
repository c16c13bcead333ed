"""Which pod may be evicted when. Pure: listings and times go in; the calls are `evacuation`'s."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.ports import Pod
from medevac.fleet.node import Workload
from medevac.policy.plan import Drain

TIERS = ("workload", "daemon", "storage")
"""Storage leaves last: what is evicted before it may still need its volumes to end well."""
NOW_GRACE_S = 30.0
HEARS_S = 180.0
"""What `soon` leaves a job that reads the notice from a file but has never told of a checkpoint: the kubelet brings the
file up to date about a minute late, and the rest is to save in. No more: at a critical fault many such jobs hang, and
only who tells of checkpoints is known to be worth half of the time."""
SETTLE_S = 5.0
"""Between the two empty listings that end a drain: a pod bound before the cordon may still arrive."""


def leaving(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that must go. A daemon that tolerates the mark stays: evicted, it would only come back."""
    return [pod for pod in pods if pod.tier == "workload" or not pod.tolerates_mark]


def told(pod: Pod, now: datetime, slack_s: float = 0.0) -> bool:
    """Its grace is over: a node that answers would have ended it."""
    return pod.terminating and pod.ends_by is not None and now >= pod.ends_by + timedelta(seconds=slack_s)


def next_tier(pods: list[Pod]) -> list[Pod]:
    """Those whose turn it is, least important first; a tier waits until the one before it has terminated."""
    for tier in TIERS:
        if turn := [pod for pod in pods if pod.tier == tier]:
            return sorted(turn, key=lambda pod: (pod.priority, pod.namespace, pod.name, pod.uid))
    return []


@dataclass(frozen=True, slots=True)
class Times:
    """A drain's clock. Jobs have their time from when the step was first scheduled, whatever attempt this is."""

    drain: Drain
    start: datetime
    drain_s: float
    grace_s: float
    deadline: datetime
    """No workload's eviction is begun after it."""

    @classmethod
    def of(
        cls, drain: Drain, start: datetime, drain_s: float, pod_grace_s: float, deadline: datetime | None = None
    ) -> Times:
        """`deadline` is later than the drain's own where an attempt began late."""
        grace_s = min(pod_grace_s, NOW_GRACE_S) if drain is Drain.NOW else pod_grace_s
        drain_s = max(drain_s, grace_s) if drain is Drain.NOW else drain_s
        own = start + timedelta(seconds=drain_s)
        return cls(drain, start, drain_s, grace_s, max(own, deadline or own))

    @property
    def noticed(self) -> datetime:
        """What jobs are told; the same in every attempt."""
        return self.start + timedelta(seconds=self.drain_s)

    @property
    def end(self) -> datetime:
        """What was evicted by the deadline may use its grace to terminate, and daemons follow."""
        return self.deadline + timedelta(seconds=min(self.grace_s, NOW_GRACE_S))

    @property
    def settle_s(self) -> float:
        return min(SETTLE_S, max(0.2, self.drain_s / 20))

    @property
    def backoff_s(self) -> float:
        """One pod's wait after a refusal, where the cluster names none."""
        return min(5.0, max(0.1, self.drain_s / 40))

    def poll_s(self, *, working: bool) -> float:
        """Between two listings: short while pods terminate, longer while jobs are given time."""
        return min(2.0, max(0.1, self.drain_s / 200)) if working else min(10.0, max(0.1, self.drain_s / 100))

    def patience(self, workload: Workload | None) -> datetime | None:
        """Until when this workload may keep its pods; None = as long as it runs.

        `soon` gives half of the time to jobs that are known to checkpoint, a few minutes to those that can at least
        hear of it, and none to the others: there is nothing to wait for. `checkpoint` gives everyone all the time but
        what eviction itself needs.
        """
        match self.drain:
            case Drain.NOW:
                return self.start
            case Drain.SOON:
                return self.start + timedelta(seconds=self._soon_s(workload))
            case Drain.CHECKPOINT:
                needed_s = max(self.drain_s / 5, min(2 * self.grace_s, self.drain_s / 2))
                return self.start + timedelta(seconds=self.drain_s - needed_s)
            case Drain.JOB_END:
                return None

    def _soon_s(self, workload: Workload | None) -> float:
        if workload is None:
            return 0.0
        if workload.last_checkpoint is not None:
            return self.drain_s / 2
        return min(self.drain_s / 2, HEARS_S) if workload.hears_notice else 0.0

    def may_go(self, pod: Pod, workload: Workload | None, now: datetime) -> bool:
        if pod.tier != "workload":
            return True
        if workload is not None:
            saved = workload.last_checkpoint is not None and workload.last_checkpoint >= self.start
            if workload.ready_to_evict or (saved and self.drain is not Drain.JOB_END):
                return True
        until = self.patience(workload)
        return until is not None and now >= until
