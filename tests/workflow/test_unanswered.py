"""Calls that gave no answer, or an unclear one: only their proof lets anything follow them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.signatures import Verb
from medevac.incident import Outcome, State, StepResult
from medevac.policy.plan import Plan, Rung
from tests.workflow.conftest import Start
from tests.workflow.scripted import PATIENCE_S, Script, plan_for
from workflows.node import NodeWorkflow

pytestmark = pytest.mark.asyncio(loop_scope="session")


def once(rung: Rung, **more: Any) -> Callable[[sig.PlanRequest], Plan]:
    """A plan of this rung, and a person where it didn't do."""

    def planner(request: sig.PlanRequest) -> Plan:
        failed = request.hand_over or request.failed
        if failed:
            return plan_for(request.model_copy(update={"hand_over": failed}))
        return plan_for(request, rung=rung, **more)

    return planner


async def handed_over(handle: WorkflowHandle[Any, str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await handle.query(NodeWorkflow.state)).state is not State.HANDED_OVER:  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.05)


def says(outcome: Outcome, **more: Any) -> StepResult:
    return StepResult(outcome=outcome, at=datetime.now(UTC), **more)


UNSURE = [
    pytest.param(says(Outcome.ALREADY, reason="intent found: not called again"), id="intent found"),
    pytest.param(says(Outcome.DONE, reason="unclear whether it was done", proof={"unclear": True}), id="unclear"),
]


@pytest.mark.parametrize("answer", UNSURE)
async def test_no_machine_goes_while_nobody_knows_whether_its_successor_was_asked_for(
    start: Start, script: Script, answer: StepResult
) -> None:
    script.planner = once(Rung.REPLACE)
    script.on(sig.ACT, lambda _: answer)
    script.on(sig.PROVE, lambda _: says(Outcome.TIMED_OUT, reason="no successor has joined"))
    handle = await start()
    await handed_over(handle)
    assert [request.verb for request in script.asked(sig.ACT)] == [Verb.REQUEST]
    assert [request.verbs for request in script.asked(sig.PROVE)] == [(Verb.REQUEST,)]
    await handle.terminate()


@pytest.mark.parametrize("answer", UNSURE)
async def test_it_goes_once_its_successor_has_joined(start: Start, script: Script, answer: StepResult) -> None:
    script.planner = once(Rung.REPLACE)
    script.on(sig.ACT, lambda request: answer if request.verb is Verb.REQUEST else says(Outcome.DONE))
    script.on(sig.PROVE, lambda _: says(Outcome.DONE, successor="n-2"))
    handle = await start()
    assert await handle.result() == "replaced"
    assert [request.verb for request in script.asked(sig.ACT)] == [Verb.REQUEST, Verb.TERMINATE]
    verbs = [request.verbs for request in script.asked(sig.PROVE)]
    assert verbs == [(Verb.REQUEST,), (Verb.REQUEST, Verb.TERMINATE)]


async def never_answers(_: sig.ActRequest) -> StepResult:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_a_call_without_an_answer_is_not_made_again_but_proved(start: Start, script: Script) -> None:
    script.planner = once(Rung.REBOOT, step_s=5)
    script.on(sig.ACT, never_answers)
    handle = await start()
    assert await handle.result() == "returned"
    assert {request.key.n for request in script.asked(sig.ACT)} == {1}
    ends = [line.text for line in script.lines if line.kind == "step" and line.key.step == "act-reboot"]
    assert len(ends) == 1
    assert ends[0].startswith("act: timed_out"), "what only the workflow knows stands in the ledger, too"


async def test_retries_that_run_out_of_time_are_no_failure_but_an_unanswered_call(start: Start, script: Script) -> None:
    """The server ends such a step by its last error, not by its timer; an earlier attempt may have been heard."""

    def waits_too_long(_: sig.ActRequest) -> StepResult:
        raise ApplicationError("its BMC is busy", next_retry_delay=timedelta(hours=1))

    script.planner = once(Rung.REBOOT, step_s=5)
    script.on(sig.ACT, waits_too_long)
    handle = await start()
    async with asyncio.timeout(PATIENCE_S):
        assert await handle.result() == "returned"
    assert len(script.asked(sig.ACT)) == 1, "the error itself ended it"
    ends = [line.text for line in script.lines if line.kind == "step" and line.key.step == "act-reboot"]
    assert ends == ["act: timed_out: time is over: its BMC is busy"]


async def test_a_call_without_answer_and_proof_counts_as_tried(start: Start, script: Script) -> None:
    script.planner = once(Rung.REBOOT, step_s=5)
    script.on(sig.ACT, never_answers)
    script.on(sig.PROVE, lambda _: says(Outcome.TIMED_OUT))
    handle = await start()
    await handed_over(handle)
    assert script.asked(sig.PLAN)[-1].asked_rungs == (Rung.REBOOT,)
    await handle.terminate()
