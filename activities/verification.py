"""Proof that a repair holds: a check that covers the faults, newer than the remedy, on the same boot."""

from __future__ import annotations

from temporalio import activity

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.deadline import deadline
from activities.failures import Refused, redact
from activities.heartbeat import Cancelled, Pulse
from activities.ports import CheckResult, Checks, NotSent, Unclear, Unreadable
from activities.registry import NotConfigured, Registry
from medevac.fleet.node import Node
from medevac.incident import Outcome, StepKey, StepResult

MAX_RUNS = 4
"""Of checks in one step: flakes and results that prove nothing (too old, other boot) are run again, under a new key."""


class VerificationActivities:
    def __init__(self, registry: Registry, clock: Clock = utcnow) -> None:
        self._registry = registry
        self._clock = clock

    @activity.defn(name=sig.VERIFY.name, no_thread_cancel_exception=True)
    def verify(self, request: sig.VerifyRequest) -> sig.VerifyResult:
        """`done` only with a check that proves it; `refused` where none can, `failed` where one says no."""
        until = deadline(request.deadline_s, self._clock())
        poll_s = min(5.0, max(0.05, request.deadline_s / 60))
        run, seen = 1, "the check has not finished"
        with Pulse() as pulse:
            try:
                while True:
                    try:
                        checks, node = self._ready_to_check(request)
                        result = checks.run(node, request.covers, _key(request.key, run))
                        if result is not None:
                            lack = "it could not run" if result.flake else proves_nothing(request, result)
                            if lack is None:
                                return self._judged(result, node)
                            seen = f"check {run} proves nothing: {lack}: {redact(result.reason, 200)}"
                            run += 1
                            if run > MAX_RUNS:
                                return self._end(Outcome.TIMED_OUT, f"{MAX_RUNS} checks were run; {seen}", result)
                    except (Unreadable, NotSent, Unclear) as error:
                        seen = redact(str(error))
                    if self._clock() >= until:
                        return self._end(Outcome.TIMED_OUT, f"no proof within {request.deadline_s:g} s: {seen}")
                    pulse.wait(poll_s)
            except Refused as refused:
                return self._end(Outcome.REFUSED, refused.reason)
            except Cancelled:
                return self._end(Outcome.CANCELLED, f"cancelled: {seen}")

    def _ready_to_check(self, request: sig.VerifyRequest) -> tuple[Checks, Node]:
        try:
            checks = self._registry.checks(request.cluster)
            node = self._registry.cluster(request.cluster).node(request.node)
        except NotConfigured as error:
            raise Refused(str(error)) from None
        if node is None:
            raise Refused(f"node {request.node} is not in cluster {request.cluster}")
        if request.boot_id is not None and node.machine.boot_id != request.boot_id:
            raise Refused(f"the node booted again: {node.machine.boot_id}, proved was {request.boot_id}")
        if not request.covers:
            raise Refused("the plan names nothing that a check must cover, so no check can prove it")
        lacking = sorted(set(request.covers) - checks.covers(node))
        if lacking:
            raise Refused(f"no check covers {', '.join(lacking)} on {request.node}; a person must judge it")
        return checks, node

    def _judged(self, result: CheckResult, node: Node) -> sig.VerifyResult:
        if not result.passed:
            return self._end(Outcome.FAILED, f"the check says no: {redact(result.reason)}", result, node)
        return self._end(Outcome.DONE, f"passed: {', '.join(result.covers)}", result, node)

    def _end(
        self, outcome: Outcome, reason: str, check: CheckResult | None = None, node: Node | None = None
    ) -> sig.VerifyResult:
        step = StepResult(
            outcome=outcome,
            reason=reason,
            at=self._clock(),
            identity=node.identity if node else None,
            proof={"check": check.model_dump(mode="json")} if check else {},
        )
        return sig.VerifyResult(step=step, check=check)


def proves_nothing(request: sig.VerifyRequest, result: CheckResult) -> str | None:
    """Why this result says nothing about the repair, passed or not; None when it does."""
    if result.started_at <= request.not_before:
        return "it is older than the remedy"
    if request.boot_id is not None and result.boot_id != request.boot_id:
        return f"it ran on boot {result.boot_id}"
    if lacking := sorted(set(request.covers) - set(result.covers)):
        return f"it did not cover {', '.join(lacking)}"
    return None


def _key(key: StepKey, run: int) -> StepKey:
    """Of one check; each is run once."""
    return key if run == 1 else key.model_copy(update={"step": f"{key.step}-run{run}"})
