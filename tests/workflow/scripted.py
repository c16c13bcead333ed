"""Activities that follow a script: each step answers as told, and says in which order it was called."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities import signatures as sig
from activities.ports import CheckResult
from medevac.fleet.lease import Granted
from medevac.fleet.node import Identity
from medevac.incident import IncidentView, Line, Outcome, StepResult
from medevac.policy.plan import Action, Drain, Mode, Plan, Rung

TIMING = sig.TEST.model_copy(update={"short_s": 20.0, "heartbeat_s": 20.0})
"""The script runs in the test's own process: a step that only waits for its turn there must not be begun anew."""
PATIENCE_S = 120.0
"""A wait ends with what it waits for; this only ends a test that would hang."""
IDENTITY = Identity(uid="uid-1", machine_id="m-1", boot_id="boot-1")


def plan_for(request: sig.PlanRequest, **changes: Any) -> Plan:
    """What a policy would answer to a critical fault on a machine that can be rebooted."""
    worst = request.faults.worst
    base = Plan(
        incident=request.incident,
        n=request.n,
        cluster=request.cluster,
        node=request.node,
        policy_version=1,
        policy_hash="p1",
        made_at=datetime(2026, 1, 1, tzinfo=UTC),
        mode=Mode.AUTO,
        action=Action.ACT,
        cause=worst.code if worst else None,
        fault_class=worst.fault_class if worst else None,
        faults=request.faults.codes,
        identity=IDENTITY,
        domains={"cluster": "c", "pool": "c/train", "provider": "skyline", "rack": "c/r1"},
        mark=True,
        rung=Rung.REBOOT,
        attempt=1,
        of=2,
        drain=Drain.SOON,
        drain_s=10,
        pod_grace_s=1,
        covers=tuple(sorted({cover for fault in request.faults.faults for cover in fault.covers})),
        step_s=10,
        verify_s=10,
        probation_s=0.1,
        quiet_s=60,
        reasons=("because the script says so",),
    )
    if request.hand_over:
        changes = {"action": Action.HAND_OVER, "rung": None, "drain": None} | changes
    elif worst is None:
        changes = {"action": Action.WITHDRAW, "rung": None, "drain": None} | changes
    return base.model_copy(update=changes)


Answer = Callable[[Any], Any | Awaitable[Any]]


class Script:
    """Default answers are those of a repair that goes well; `on` replaces those of one step."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answers: dict[str, Answer] = {}
        self.begun: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.lines: list[Line] = []
        self.views: list[IncidentView] = []
        self.planner: Callable[[sig.PlanRequest], Plan] = plan_for

    def on(self, step: sig.Activity[Any, Any], answer: Answer) -> None:
        self.answers[step.name] = answer

    def names(self, *, without: tuple[str, ...] = ("record", "notify", "plan")) -> list[str]:
        return [name for name, _ in self.calls if name not in without]

    def asked(self, step: sig.Activity[Any, Any]) -> list[Any]:
        return [request for name, request in self.calls if name == step.name]

    async def until_asked(self, step: sig.Activity[Any, Any], times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.asked(step)) < times:  # noqa: ASYNC110  by a worker's own calls
                await asyncio.sleep(0.02)

    def activities(self) -> list[Callable[..., Any]]:
        return [self._activity(step) for step in sig.ALL]

    def _activity(self, step: sig.Activity[Any, Any]) -> Callable[..., Any]:
        async def answer(request: Any) -> Any:
            self.calls.append((step.name, request))
            self.begun[step.name].set()
            scripted = self.answers.get(step.name, self._default(step))
            given = scripted(request)
            return await given if isinstance(given, Awaitable) else given

        answer.__annotations__ = {"request": step.takes, "return": step.gives}
        return activity.defn(name=step.name)(answer)

    def _default(self, step: sig.Activity[Any, Any]) -> Answer:
        def record(request: sig.RecordRequest) -> sig.Recorded:
            self.lines += request.lines
            if request.view:
                self.views.append(request.view)
            return sig.Recorded(lines=len(request.lines))

        def acquire(request: sig.AcquireRequest) -> sig.AcquireResult:
            until = datetime(2030, 1, 1, tzinfo=UTC)
            return sig.AcquireResult(granted=Granted(lease_id=request.lease.lease_id, epoch=1, until=until))

        def verify(request: sig.VerifyRequest) -> sig.VerifyResult:
            at = datetime.now(UTC)
            check = CheckResult(passed=True, covers=request.covers, started_at=at, boot_id=request.boot_id)
            return sig.VerifyResult(step=StepResult(outcome=Outcome.DONE, at=at), check=check)

        def prove(request: sig.ProveRequest) -> StepResult:
            identity = IDENTITY.model_copy(update={"boot_id": "boot-2"})
            return StepResult(outcome=Outcome.DONE, identity=identity, at=datetime.now(UTC))

        special: dict[str, Answer] = {
            "plan": lambda request: self.planner(request),
            "record": record,
            "acquire": acquire,
            "verify": verify,
            "prove": prove,
        }
        return special.get(step.name, lambda _: StepResult(outcome=Outcome.DONE, at=datetime.now(UTC)))


async def until_cancelled(_: Any) -> StepResult:
    """A drain that takes for ever and stops when it is told to."""
    try:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return StepResult(outcome=Outcome.CANCELLED, reason="told to stop", at=datetime.now(UTC))
