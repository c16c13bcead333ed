"""How an activity is called: on which queue, with which time-outs and retries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from temporalio.common import RetryPolicy

from medevac.model import Model

In = TypeVar("In", bound=Model)
Out = TypeVar("Out")


class Queue(StrEnum):
    """Task queues; one for each rate-limited outside system."""

    MAIN = "medevac"
    MACHINES = "medevac-machines"
    CHAT = "medevac-chat"


class Timing(Model):
    """Time-outs of a workflow's activities in seconds; travels in its input so that a replay sees the same."""

    short_s: float = 3.0
    """Start-to-close of quick activities that don't heartbeat (mark, lift, lease, record)."""
    heartbeat_s: float = 5.0
    retry_s: float = 0.5
    retry_max_s: float = 10.0
    give_up_s: float = 600.0
    """Schedule-to-close of quick activities; its end is an outcome of the step."""
    lease_wait_s: float = 86_400.0
    echo_grace_s: float = 300.0
    """How long after a remedy's proof an old statement may still arrive as an echo."""
    latched_s: float = 0.0
    """How long a condition that its sender latches, and that says the same as before the proof, is no news. 0 in
    incidents that began before there was such a time."""
    dwell_s: float = 60.0
    """How long a clear must stand before it counts."""
    fold_s: float = 60.0
    """Repeats of an open fault are folded at the edge to one signal per node in this time."""


DAY_S = 86_400.0
PRODUCTION = Timing(latched_s=DAY_S)
DEMO = Timing(give_up_s=60, lease_wait_s=300, echo_grace_s=20, latched_s=DAY_S, dwell_s=3, fold_s=5)
TEST = Timing(
    short_s=3.0,
    heartbeat_s=4.0,
    retry_s=0.1,
    retry_max_s=1.0,
    give_up_s=30,
    lease_wait_s=120,
    echo_grace_s=20,
    latched_s=DAY_S,
    dwell_s=0.5,
    fold_s=0.5,
)
"""The documented profile of tests that kill processes: short time-outs, nothing else."""
TIMINGS = {"production": PRODUCTION, "demo": DEMO, "test": TEST}


STEADY_S = 60.0
CALL_S = 30.0


class Shape(StrEnum):
    LOCAL = "local"
    QUICK = "quick"
    """Short start-to-close, no heartbeat."""
    CALL = "call"
    """One call to a slow outside system: heartbeats from a background task, and half a minute at most."""
    STEADY = "steady"
    """Up to a minute's reading and telling, with heartbeats; made again as a whole when its worker dies."""
    LONG = "long"
    """Heartbeats from a background task; its own deadline is in its input."""


@dataclass(frozen=True, slots=True)
class Activity(Generic[In, Out]):
    name: str
    takes: type[In]
    gives: type[Out]
    shape: Shape = Shape.QUICK
    queue: Queue = Queue.MAIN
    attempts: int = 0
    """0 = until `give_up_s`."""

    def options(self, timing: Timing, deadline_s: float = 0.0) -> dict[str, Any]:
        """Keyword arguments for `workflow.start_activity` (or the local one)."""
        retry = RetryPolicy(
            initial_interval=timedelta(seconds=timing.retry_s),
            maximum_interval=timedelta(seconds=timing.retry_max_s),
            maximum_attempts=self.attempts,
        )
        if self.shape is Shape.LOCAL:
            return {"retry_policy": retry, "start_to_close_timeout": timedelta(seconds=timing.short_s * 2)}
        common: dict[str, Any] = {"retry_policy": retry, "task_queue": self.queue.value}
        if self.shape is Shape.LONG:
            return {
                **common,
                "heartbeat_timeout": timedelta(seconds=timing.heartbeat_s),
                "schedule_to_close_timeout": timedelta(seconds=deadline_s + 4 * timing.heartbeat_s + 30),
            }
        if self.shape is Shape.CALL:
            return {
                **common,
                "start_to_close_timeout": timedelta(seconds=CALL_S),
                "heartbeat_timeout": timedelta(seconds=timing.heartbeat_s),
                "schedule_to_close_timeout": timedelta(seconds=deadline_s or timing.give_up_s),
            }
        if self.shape is Shape.STEADY:
            return {
                **common,
                "start_to_close_timeout": timedelta(seconds=STEADY_S),
                "heartbeat_timeout": timedelta(seconds=timing.heartbeat_s),
            }
        return {
            **common,
            "start_to_close_timeout": timedelta(seconds=timing.short_s),
            "schedule_to_close_timeout": timedelta(seconds=deadline_s or timing.give_up_s),
        }
