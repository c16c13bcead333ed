"""What a disruption costs: GPU-hours of work that would be lost, as far as the plan knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from medevac.fleet.node import Workload
from medevac.policy.checkpoints import speaks_of
from medevac.policy.policy import Checkpoint


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
        lost_s = _lost_s(work, listed, now)
        if lost_s is None:
            unknown.append(work.name)
        else:
            total += work.gpus * lost_s / 3_600
    return Cost(total, tuple(unknown))


def _lost_s(work: Workload, checkpoints: tuple[Checkpoint, ...], now: datetime) -> float | None:
    if work.ready_to_evict or work.gpus == 0:
        return 0.0
    if work.last_checkpoint is not None:
        return max(0.0, (now - work.last_checkpoint).total_seconds())
    for entry in checkpoints:
        if entry.interval is not None and speaks_of(entry, work):
            return entry.interval
    return None if work.started_at is None else max(0.0, (now - work.started_at).total_seconds())
