"""Running activities for one incident: every end of a step is an outcome, and an interrupt is never taken for done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.workflow import ActivityCancellationType

from activities.signatures import Activity, Keyed
from medevac.incident import Outcome, StepKey, StepResult
from medevac.model import Model
from workflows.run import IncidentRun

In = TypeVar("In", bound=Model)
KeyedIn = TypeVar("KeyedIn", bound=Keyed)
Out = TypeVar("Out")


FROZEN = "Frozen"
"""Type of the error with which an activity waits for a thaw."""
RAN_OUT = "retries-ran-out"
"""Histories without this patch took retries that ran out of time for a plain failure."""


class Interrupted(Exception):
    """The step was stopped before it answered. Never taken for done."""


def never() -> bool:
    return False


class Steps:
    """The only place of a node's workflow that starts activities and waits."""

    def __init__(self, run: IncidentRun) -> None:
        self.run = run
        self.running = ""
        """Name of the step whose effect is under way, for the answer to `abort`."""

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits for the condition while the inbox is taken in as it fills. False when the time is over."""
        run = self.run
        end = None if timeout_s is None else workflow.now() + timedelta(seconds=timeout_s)
        while True:
            run.absorb(workflow.now())
            if condition():
                return True
            now = workflow.now()
            if end is not None and now >= end:
                return False
            dues = [due for due in (end, run.faults.next_settle(run.timing.dwell_s)) if due is not None]
            left = max(min(dues) - now, timedelta(milliseconds=1)) if dues else None
            try:
                await workflow.wait_condition(lambda: run.unread or condition(), timeout=left)
            except TimeoutError:
                continue

    async def local(self, activity: Activity[In, Out], arg: In) -> Out:
        """A decision: read, recorded, never recomputed on replay. No effect may follow in the same task."""
        options = activity.options(self.run.timing)
        result: Out = await workflow.execute_local_activity(activity.name, arg, result_type=activity.gives, **options)
        return result

    async def call(
        self,
        activity: Activity[In, Out],
        arg: In,
        *,
        deadline_s: float = 0.0,
        interrupt: Callable[[], bool] = never,
    ) -> Out:
        """Runs an activity to its end, or until `interrupt`. What it answered counts even when it was interrupted:
        only without an answer `Interrupted` is raised."""
        if interrupt():
            raise Interrupted
        handle: workflow.ActivityHandle[Out] = workflow.start_activity(
            activity.name,
            arg,
            result_type=activity.gives,
            # A step must say how it ended before anything is compensated: a lease granted while we let go of it
            # would be held for ever.
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            **activity.options(self.run.timing, deadline_s),
        )
        await self.until(lambda: handle.done() or interrupt())
        if handle.done():
            return await handle
        handle.cancel()
        try:
            return await handle
        except (ActivityError, asyncio.CancelledError) as error:
            # A handle whose activity has not begun raises the bare CancelledError: uncaught it ends the workflow.
            raise Interrupted from error

    async def step(
        self,
        activity: Activity[KeyedIn, StepResult],
        arg: KeyedIn,
        *,
        deadline_s: float = 0.0,
        interrupt: Callable[[], bool] = never,
    ) -> StepResult:
        """Like `call`, with every failure turned into an outcome."""
        self.running = activity.name
        try:
            result = await self.call(activity, arg, deadline_s=deadline_s, interrupt=interrupt)
            return self.heard(activity, arg.key, result)
        except Interrupted:
            return self.unheard(activity, arg.key, None)
        except ActivityError as error:
            return self.unheard(activity, arg.key, error)
        finally:
            self.running = ""

    def heard(self, activity: Activity[Any, Any], key: StepKey, result: StepResult) -> StepResult:
        """The result; its line goes with the next `record` where the ledger didn't take it in time."""
        if result.unwritten:
            self.run.lines.append(result.line(key, activity.name, workflow.now()))
        return result

    def unheard(self, activity: Activity[Any, Any], key: StepKey, error: ActivityError | None) -> StepResult:
        """How a step ended that did not answer. Only the workflow knows, so it writes the line."""
        now = workflow.now()
        cancelled = StepResult(outcome=Outcome.CANCELLED, reason="interrupted", at=now)
        late = error is not None and ran_out(error) and workflow.patched(RAN_OUT)
        result = outcome_of(error, now, late=late) if error else cancelled
        self.run.lines.append(result.line(key, activity.name, now))
        return result


def ran_out(error: ActivityError) -> bool:
    """Its last attempt failed, and the next would have come after its time: an earlier one may have had its effect."""
    cause = error.cause
    return error.retry_state is RetryState.TIMEOUT and isinstance(cause, ApplicationError) and cause.type != FROZEN


def outcome_of(error: ActivityError, at: datetime, *, late: bool = False) -> StepResult:
    """How a step ended that did not answer: its time ran out, it was cancelled, or it failed for good.

    `late`: retries that ran out of time (`ran_out`) count as a time-out, as where the server's timer ends them.
    """
    if is_cancelled_exception(error):
        return StepResult(outcome=Outcome.CANCELLED, reason="cancelled", at=at)
    cause = error.cause
    last = cause.cause if isinstance(cause, ActivityTimeout) else cause
    if isinstance(last, ApplicationError) and last.type == FROZEN:
        # Nothing was sent: when the freeze is over, the plan is made anew and the step begins with its whole time.
        return StepResult(outcome=Outcome.CANCELLED, reason=last.message, at=at)
    if isinstance(cause, ActivityTimeout):
        why = str(cause.cause) if cause.cause else "no answer"
        return StepResult(outcome=Outcome.TIMED_OUT, reason=f"time is over: {why}", at=at)
    reason = cause.message if isinstance(cause, ApplicationError) and cause.message else str(cause or error)
    if late and ran_out(error):
        return StepResult(outcome=Outcome.TIMED_OUT, reason=f"time is over: {reason}"[:500], at=at)
    return StepResult(outcome=Outcome.FAILED, reason=reason[:500], at=at)
