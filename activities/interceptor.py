"""Writes each step's beginning and end to the ledger, around every activity that carries a step's key."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.failures import PROTECTIVE_BUDGET_S, Bounded, redact, unreadable, waits
from activities.ports import CheckResult
from activities.storage.ledger import Ledger
from medevac.fleet.lease import Ask
from medevac.incident import IncidentView, Outcome, State, StepKey, StepResult

NEED_THE_LEDGER = frozenset(a.name for a in (sig.ACQUIRE, sig.EVACUATE, sig.ACT, sig.TICKET))
"""Destroys, or can't be undone: begins only once the ledger has its beginning. The others never wait for it."""
WITHOUT_LINES = frozenset(a.name for a in (sig.RECORD, sig.PLAN, sig.CAMPAIGN_STEP))
"""Writes itself; or is recorded by its workflow as a decision."""

STATES = {
    sig.ACQUIRE.name: State.WAITING_LEASE,
    sig.EVACUATE.name: State.EVACUATING,
    sig.ACT.name: State.ACTING,
    sig.PROVE.name: State.PROVING,
    sig.VERIFY.name: State.VERIFYING,
    sig.LIFT.name: State.PROBATION,
}
"""What people see the incident do while the step runs."""


class LedgerInterceptor(Interceptor):
    def __init__(self, ledger: Ledger, bounded: Bounded, clock: Clock = utcnow) -> None:
        self._steps = StepLines(ledger, bounded, clock)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next, self._steps)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, steps: StepLines) -> None:
        super().__init__(inner)
        self._steps = steps

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        # Around the function rather than around this call: blocking writes belong on the activity's own thread.
        if not inspect.iscoroutinefunction(input.fn):
            input.fn = self._steps.around(activity.info().activity_type, input.fn)
        return await super().execute_activity(input)


class StepLines:
    """One begun row and one line for a step, whatever number of attempts it takes."""

    def __init__(self, ledger: Ledger, bounded: Bounded, clock: Clock = utcnow) -> None:
        self._ledger = ledger
        self._bounded = bounded
        self._clock = clock

    def around(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(request: Any) -> Any:
            key = getattr(request, "key", None)
            try:
                if not isinstance(key, StepKey) or name in WITHOUT_LINES:
                    return fn(request)
                return self._step(name, key, request, fn)
            except FailureError:
                raise
            except Exception as error:
                # Neither text nor cause of a foreign error goes into the history unread: it may hold a secret.
                activity.logger.warning("%s failed: %s", name, redact(str(error)), exc_info=True)
                raise ApplicationError(redact(str(error)), type=type(error).__name__) from None

        return run

    def _step(self, name: str, key: StepKey, request: Any, fn: Callable[..., Any]) -> Any:
        began = time.monotonic()
        retried = activity.info().attempt > 1
        # Asked anew every few seconds while it waits: only its answer is looked for.
        acquires = name == sig.ACQUIRE.name
        if retried and not acquires and (recorded := self._recorded(name, key)) is not None:
            return recorded
        begun = self._begin(name, key, request)
        output = fn(request)
        result = step_of(output)
        if result is None:
            return output
        if retried and acquires and (recorded := self._recorded(name, key)) is not None:
            return recorded
        # Nothing that only this attempt knows (how long it took): two that end alike say the same.
        result = result.model_copy(update={"at": result.at or self._clock()})
        limit = activity.info().start_to_close_timeout
        if limit is not None and time.monotonic() - began >= limit.total_seconds():
            # Nobody hears this attempt any more; its successor says how the step ended.
            raise waits("this attempt's time is over", 0.1, "TooLate")
        if acquires:
            self._granted(key, result)
            return output
        written = self._end(name, key, result, begun)
        return _with(output, result if written else result.model_copy(update={"unwritten": True}))

    def _recorded(self, name: str, key: StepKey) -> Any:
        """An earlier attempt's end that the ledger has, but its workflow never heard; None when there is none."""
        try:
            lines = self._bounded.call(PROTECTIVE_BUDGET_S, self._ledger.lines, key.incident)
        except Exception as error:
            activity.logger.warning("earlier end of %s can't be read: %s", key, redact(str(error)))
            return None
        for line in lines:
            if line.key == key and line.kind == "step":
                return _output(name, StepResult.model_validate({**_dict(line.data["result"]), "at": line.at}))
        return None

    def _begin(self, name: str, key: StepKey, request: Any) -> Future[Any] | None:
        view = getattr(request, "view", None)
        args = (key, name, _due(self._clock()), view if isinstance(view, IncidentView) else None, STATES.get(name))
        if name not in NEED_THE_LEDGER:
            return self._bounded.start(self._ledger.begin_step, *args)
        if name == sig.ACQUIRE.name and activity.info().attempt > 1:
            return None  # A wait of hours is one beginning, not one each second.
        try:
            self._ledger.begin_step(*args)
        except Exception as error:
            raise unreadable("the ledger", error) from None
        return None

    def _granted(self, key: StepKey, result: StepResult) -> None:
        """A grant or a question that the ledger doesn't have isn't told; asked again, it is the same."""
        try:
            self._ledger.add_lines([result.line(key, sig.ACQUIRE.name, self._clock())])
        except Exception as error:
            raise unreadable("the ledger", error) from None

    def _end(self, name: str, key: StepKey, result: StepResult, begun: Future[Any] | None) -> bool:
        """True when both are written; what isn't within the budget is handed over by the workflow once more."""
        line = result.line(key, name, self._clock())
        until = time.monotonic() + PROTECTIVE_BUDGET_S
        try:
            if begun is not None:
                begun.result(PROTECTIVE_BUDGET_S)
            self._bounded.call(max(0.0, until - time.monotonic()), self._ledger.add_lines, [line])
        except Exception as error:
            activity.logger.warning("line of %s is not written yet: %s", key, redact(str(error)))
            return False
        return True


def step_of(output: Any) -> StepResult | None:
    """How the step ended, as its line says it."""
    if isinstance(output, StepResult):
        return output
    if isinstance(output, sig.VerifyResult):
        return output.step
    if isinstance(output, sig.AcquireResult):
        if output.granted is not None:
            granted = output.granted
            return StepResult(outcome=Outcome.DONE, reason=f"lease {granted.lease_id}", proof={"epoch": granted.epoch})
        if output.ask is not None:
            ask = output.ask
            proof = {"ask": ask.model_dump(mode="json")}
            return StepResult(outcome=Outcome.BLOCKED, reason=ask.reason, who=ask.approval, proof=proof)
    return None


def _with(output: Any, result: StepResult) -> Any:
    if isinstance(output, StepResult):
        return result
    if isinstance(output, sig.VerifyResult):
        return output.model_copy(update={"step": result})
    return output


def _output(name: str, result: StepResult) -> StepResult | sig.VerifyResult | sig.AcquireResult | None:
    """The answer that a line was made of; None where it must be asked for again (a lease is renewed by that)."""
    if name == sig.ACQUIRE.name:
        ask = result.proof.get("ask")
        return sig.AcquireResult(ask=Ask.model_validate(ask)) if ask else None
    if name != sig.VERIFY.name:
        return result
    check = result.proof.get("check")
    return sig.VerifyResult(step=result, check=CheckResult.model_validate(check) if check else None)


def _dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _due(now: datetime) -> datetime:
    """When this step must have ended: past it, the sweep pages."""
    info = activity.info()
    if info.schedule_to_close_timeout is None:
        return now + timedelta(minutes=10)
    return info.scheduled_time + info.schedule_to_close_timeout
