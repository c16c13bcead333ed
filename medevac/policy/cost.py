"""What a disruption costs: GPU-hours of work that would be lost, as far as the plan knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from medevac.fleet.node import Workload
from medevac.policy.checkpoints import speaks_of
from medevac.policy.durations import words
from medevac.policy.settings import Checkpoint


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one piece of work."""

    seconds: float | None
    """At most, where a job only says how often it saves; None = nobody says."""
    words: str


@dataclass(frozen=True, slots=True)
class Cost:
    gpu_hours: float
    """Of the work whose loss is known; at most, where a job only says how often it saves."""
    unknown: tuple[str, ...]
    """Work of which nobody says how much it would lose."""

    def why(self, above: float | None) -> str:
        """Why people are asked where the policy asks `above` so many; empty where they aren't.

        Without amounts, which grow while one waits: a plan that only got older is the same plan.
        """
        if above is None:
            return ""
        if self.gpu_hours > above:
            return f"more than {above:g} GPU-hours of work would be lost"
        if self.unknown:
            return f"nobody knows what {', '.join(self.unknown)} would lose, and above {above:g} GPU-hours it asks"
        return ""


def cost(workloads: Iterable[Workload], checkpoints: Iterable[Checkpoint], now: datetime) -> Cost:
    listed, total, unknown = tuple(checkpoints), 0.0, list[str]()
    for work in sorted(workloads, key=lambda one: one.name):
        lost_s = loss(work, listed, now).seconds if work.gpus else 0.0
        if lost_s is None:
            unknown.append(work.name)
        else:
            total += work.gpus * lost_s / 3_600
    return Cost(total, tuple(unknown))


def loss(work: Workload, checkpoints: tuple[Checkpoint, ...], now: datetime) -> Loss:
    """What of it a disruption would undo: since its checkpoint, else between two, else since it began."""
    if work.ready_to_evict:
        return Loss(0.0, "nothing, it has saved its state")
    if work.last_checkpoint is not None:
        lost_s = max(0.0, (now - work.last_checkpoint).total_seconds())
        at = work.last_checkpoint.strftime("%H:%M:%S")
        return Loss(lost_s, f"{_gpu_hours(work, lost_s)} since its checkpoint at {at}")
    for entry in checkpoints:
        if entry.interval is not None and speaks_of(entry, work):
            most = f"at most {_gpu_hours(work, entry.interval)}, it saves every {words(entry.interval)}"
            return Loss(entry.interval, most)
    if work.started_at is not None:
        ran_s = max(0.0, (now - work.started_at).total_seconds())
        at = work.started_at.strftime("%Y-%m-%d %H:%M")
        return Loss(ran_s, f"{_gpu_hours(work, ran_s)} since it began at {at} UTC, no checkpoint is known")
    return Loss(None, "no checkpoint is known, so all its GPU-hours since it started")


def _gpu_hours(work: Workload, span_s: float) -> str:
    return f"{work.gpus * span_s / 3_600:.1f} GPU-hours"
