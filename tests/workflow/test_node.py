"""What a node's incident does, step by step, on a real Temporal server with scripted activities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from activities import signatures as sig
from medevac.approvals.approval import ApprovalResult, ApprovalState
from medevac.events.event import Kind
from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.guard import Guard
from medevac.fleet.guard_state import State as GuardState
from medevac.fleet.lease import Ask
from medevac.fleet.limits import Limits
from medevac.fleet.order import Order
from medevac.incident import Hold, Outcome, State, StepResult, Stop
from medevac.policy.plan import Action, ApprovalNeed, Drain, Plan, Rung
from tests.workflow.conftest import Start, fault
from tests.workflow.scripted import IDENTITY, PATIENCE_S, Script, plan_for, until_cancelled
from workflows.messages import AssignRequest, By, Decided, HoldRequest
from workflows.node import SAME_PLAN_TIMES, NodeWorkflow

pytestmark = pytest.mark.asyncio(loop_scope="session")

REPAIR = ["mark", "acquire", "evacuate", "act", "prove", "verify"]


async def wait_for(script: Script, step: str) -> None:
    await asyncio.wait_for(script.begun[step].wait(), PATIENCE_S)


async def reaches(handle: WorkflowHandle[Any, str], *states: State) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await handle.query(NodeWorkflow.state)).state not in states:  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.05)


async def test_a_fault_is_repaired_verified_and_returned(start: Start, script: Script) -> None:
    handle = await start()
    assert await handle.result() == "returned"
    assert script.names()[:6] == REPAIR
    assert sorted(script.names()[6:]) == ["lift", "release"]
    assert script.views[-1].end == "returned"
    kinds = [line.kind for line in script.lines]
    assert kinds.count("decision") == 1
    assert kinds[-1] == "end"


async def test_cleared_before_a_destructive_step_withdraws_and_lifts(start: Start, script: Script) -> None:
    level = {"source": "npd", "statement": "level", "fault_class": FaultClass.TRANSIENT}
    raised = fault("condition/GpuThermal", **level)
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start(raised)
    await wait_for(script, "evacuate")
    cleared = raised.model_copy(update={"id": "clear", "kind": Kind.RECOVERED, "received_at": datetime.now(UTC)})
    await handle.signal(NodeWorkflow.report, cleared)
    assert await handle.result() == "withdrawn"
    assert script.names()[:3] == ["mark", "acquire", "evacuate"]
    assert sorted(script.names()[3:]) == ["lift", "release"]


async def test_what_was_taken_back_during_the_drain_is_awaited_before_anything_is_destroyed(
    start: Start, script: Script
) -> None:
    """The clear's dwell isn't over when the drain is: a machine must not go for a fault that is just leaving."""
    level = {"source": "npd", "statement": "level", "fault_class": FaultClass.TRANSIENT}
    raised = fault("condition/GpuThermal", **level)
    told = asyncio.Event()

    async def drain(_: sig.EvacuateRequest) -> StepResult:
        await told.wait()
        return StepResult(outcome=Outcome.DONE, at=datetime.now(UTC))

    script.on(sig.EVACUATE, drain)
    handle = await start(raised)
    await wait_for(script, "evacuate")
    cleared = raised.model_copy(update={"id": "clear", "kind": Kind.RECOVERED, "received_at": datetime.now(UTC)})
    await handle.signal(NodeWorkflow.report, cleared)
    told.set()
    assert await handle.result() == "withdrawn"
    assert "act" not in script.names()


async def test_another_machine_under_the_same_name_is_never_repaired_for_the_old_ones_fault(
    start: Start, script: Script
) -> None:
    swapped = IDENTITY.model_copy(update={"uid": "uid-2", "machine_id": "m-2", "boot_id": "boot-9"})

    def planner(request: sig.PlanRequest) -> Plan:
        gone = bool(script.asked(sig.EVACUATE))
        return plan_for(request, identity=swapped if gone else IDENTITY)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.REFUSED, reason="uid was uid-1 and is uid-2 now"))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert script.names().count("evacuate") == 1
    assert "act" not in script.names()
    assert "machine m-1 and is m-2" in script.asked(sig.PLAN)[-1].hand_over
    await handle.terminate("done")


async def test_an_order_for_a_machine_that_left_before_its_turn_is_no_persons_to_see_to(
    start: Start, script: Script
) -> None:
    """The planner says that the list names another, and the campaign takes the order back."""
    swapped = IDENTITY.model_copy(update={"uid": "uid-2", "machine_id": "m-2", "boot_id": "boot-9"})
    order = Order(campaign="drv", approval="campaign-drv", rung="reboot").of("uid-1", "m-1")

    def planner(request: sig.PlanRequest) -> Plan:
        if script.asked(sig.EVACUATE):
            return plan_for(request, identity=swapped, action=Action.OBSERVE, reasons=("it is machine m-2 now",))
        return plan_for(request, identity=IDENTITY, order=order)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.REFUSED, reason="uid was uid-1 and is uid-2 now"))
    code = order.code
    planned = {"kind": Kind.PLANNED, "fault_class": FaultClass.PLANNED, "order": order, "boot_id": None}
    handle = await start(fault(code).model_copy(update=planned))
    await reaches(handle, State.OBSERVED, State.HANDED_OVER)
    view = await handle.query(NodeWorkflow.state)
    assert (view.state, view.summary) == (State.OBSERVED, "it is machine m-2 now")
    assert script.asked(sig.PLAN)[-1].hand_over == ""
    assert "act" not in script.names()
    await handle.terminate("done")


async def test_an_order_for_which_no_rung_is_left_wakes_nobody_and_ends_as_it_is_taken_back(
    start: Start, script: Script
) -> None:
    order = Order(campaign="drv", approval="campaign-drv", rung="reboot")
    code = order.code

    def planner(request: sig.PlanRequest) -> Plan:
        if not request.faults.codes:
            return plan_for(request, action=Action.WITHDRAW, rung=None)
        reasons = (f"no rung of ladder `{code}` is left",)
        return plan_for(request, action=Action.HAND_OVER, rung=None, mark=False, reasons=reasons)

    script.planner = planner
    planned = {"kind": Kind.PLANNED, "fault_class": FaultClass.PLANNED, "order": order, "boot_id": None}
    told = fault(code).model_copy(update=planned)
    handle = await start(told)
    await reaches(handle, State.HANDED_OVER)
    await wait_for(script, "notify")
    assert [request.page for request in script.asked(sig.NOTIFY)] == [False]
    back = told.model_copy(update={"id": "back", "kind": Kind.RECOVERED, "order": None})
    await handle.signal(NodeWorkflow.report, back)
    assert await handle.result() == "withdrawn"
    assert "act" not in script.names()


@pytest.mark.parametrize(
    ("ended", "paged"),
    [
        (StepResult(outcome=Outcome.BLOCKED, reason="still running", proof={"evicted": 3}), True),
        (StepResult(outcome=Outcome.TIMED_OUT, reason="still terminating"), True),
        (StepResult(outcome=Outcome.REFUSED, reason="kept", who="ada", proof={"evicted": 2}), True),
        (StepResult(outcome=Outcome.REFUSED, reason="kept", who="ada", proof={"evicted": 0}), False),
    ],
)
async def test_a_campaigns_drain_that_may_have_evicted_somebody_and_failed_pages(
    start: Start, script: Script, ended: StepResult, paged: bool
) -> None:
    order = Order(campaign="drv", approval="campaign-drv", rung="reboot")

    def planner(request: sig.PlanRequest) -> Plan:
        if request.hand_over or any(line.kind == "latch" for line in script.lines):
            return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None)
        return plan_for(request, order=order)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: ended)
    planned = {"kind": Kind.PLANNED, "fault_class": FaultClass.PLANNED, "order": order, "boot_id": None}
    handle = await start(fault(order.code).model_copy(update=planned))
    await reaches(handle, State.HANDED_OVER)
    async with asyncio.timeout(PATIENCE_S):
        while not (told := [one for one in script.asked(sig.NOTIFY) if "needs a person" in one.text]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert [one.page for one in told] == [paged]
    assert (await handle.query(NodeWorkflow.state)).drained is paged
    assert "act" not in script.names()
    await handle.terminate("done")


async def test_a_node_that_registered_anew_is_marked_again(start: Start, script: Script) -> None:
    """The same machine under a new node object carries no mark; that is nobody's veto."""
    anew = IDENTITY.model_copy(update={"uid": "uid-2"})
    refusals = [StepResult(outcome=Outcome.REFUSED, reason="uid was uid-1 and is uid-2 now")]

    def planner(request: sig.PlanRequest) -> Plan:
        return plan_for(request, identity=anew if script.asked(sig.EVACUATE) else IDENTITY)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: refusals.pop() if refusals else StepResult(outcome=Outcome.DONE))
    handle = await start()
    assert await handle.result() == "returned"
    assert [request.identity.uid for request in script.asked(sig.MARK)] == ["uid-1", "uid-2"]


async def test_a_worse_fault_stops_the_drain_and_is_planned_for(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        drain = Drain.SOON if "xid/79" in request.faults.codes else Drain.CHECKPOINT
        return plan_for(request, drain=drain)

    async def drain(request: sig.EvacuateRequest) -> StepResult:
        if request.drain is Drain.CHECKPOINT:
            return await until_cancelled(request)
        return StepResult(outcome=Outcome.DONE)

    script.planner = planner
    script.on(sig.EVACUATE, drain)
    handle = await start(fault("xid/119"))
    await wait_for(script, "evacuate")
    await handle.signal(NodeWorkflow.report, fault("xid/79"))
    assert await handle.result() == "returned"
    assert [request.drain for request in script.asked(sig.EVACUATE)] == [Drain.CHECKPOINT, Drain.SOON]
    first, again = script.asked(sig.MARK)
    assert (first.mark.code, first.mark.faults, first.again) == ("xid-119", ("xid/119",), False)
    assert (again.mark.code, again.mark.faults, again.again) == ("xid-79", ("xid/79", "xid/119"), True)
    assert len(script.asked(sig.ACT)) == 1


async def test_a_storage_server_that_is_held_back_is_planned_anew_and_probed_once_more_as_its_drain_begins(
    start: Start, script: Script
) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        if request.n == 1:
            return plan_for(request, action=Action.OBSERVE, mark=False, rung=None, drain=None, watch_s=0.1)
        return plan_for(request, storage_probe="weka")

    script.planner = planner
    handle = await start()
    assert await handle.result() == "returned"
    assert len(script.asked(sig.PLAN)) >= 2
    assert [request.pre.storage_probe for request in script.asked(sig.EVACUATE)] == ["weka"]
    assert [request.pre.storage_probe for request in script.asked(sig.ACT)] == [None], "it lacks this node by then"


async def handed_over_and_marked(start: Start, script: Script) -> WorkflowHandle[Any, str]:
    script.planner = lambda request: plan_for(request, action=Action.HAND_OVER, rung=None, drain=None)
    handle = await start(fault("xid/119"))
    await reaches(handle, State.HANDED_OVER)
    return handle


async def test_a_mark_is_written_again_once_for_each_change_of_what_is_wrong(start: Start, script: Script) -> None:
    handle = await handed_over_and_marked(start, script)
    for code, plans in (("xid/79", 2), ("xid/48", 3)):
        await handle.signal(NodeWorkflow.report, fault(code))
        await script.until_asked(sig.PLAN, plans)
    await handle.signal(NodeWorkflow.report, fault("xid/48"))
    await handle.signal(NodeWorkflow.wake)
    await script.until_asked(sig.PLAN, 4)
    await handle.execute_update(NodeWorkflow.abort, By(who="ada"))
    await handle.result()
    assert [len(request.mark.faults) for request in script.asked(sig.MARK)] == [1, 2, 3]
    assert [request.key.n for request in script.asked(sig.MARK)] == [1, 2, 3]


async def test_a_veto_seen_while_the_mark_is_written_again_holds_and_is_asked_once(
    start: Start, script: Script
) -> None:
    def marked(request: sig.MarkRequest) -> StepResult:
        if request.again:
            return StepResult(outcome=Outcome.REFUSED, reason="someone uncordoned the node", who="bob")
        return StepResult(outcome=Outcome.DONE)

    script.on(sig.MARK, marked)
    script.on(sig.EVACUATE, until_cancelled)

    def planner(request: sig.PlanRequest) -> Plan:
        if any(line.kind == "latch" for line in script.lines):
            return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None)
        return plan_for(request)

    script.planner = planner
    handle = await start(fault("xid/119"))
    await wait_for(script, "evacuate")
    await handle.signal(NodeWorkflow.report, fault("xid/79"))
    await reaches(handle, State.HANDED_OVER)
    await handle.signal(NodeWorkflow.wake)
    await script.until_asked(sig.PLAN, 4)
    assert len(script.asked(sig.MARK)) == 2
    assert "act" not in script.names()
    assert [line.data["by"] for line in script.lines if line.kind == "latch"] == ["bob"]
    await handle.terminate("done")


async def test_a_mark_that_cannot_be_written_again_holds_nothing_up(start: Start, script: Script) -> None:
    def marked(request: sig.MarkRequest) -> StepResult:
        outcome = Outcome.FAILED if request.again else Outcome.DONE
        return StepResult(outcome=outcome, reason="the API server is away" if request.again else "")

    drains = iter((until_cancelled, lambda _: StepResult(outcome=Outcome.DONE)))
    script.on(sig.MARK, marked)
    script.on(sig.EVACUATE, lambda request: next(drains)(request))
    handle = await start(fault("xid/119"))
    await wait_for(script, "evacuate")
    await handle.signal(NodeWorkflow.report, fault("xid/79"))
    assert await handle.result() == "returned"
    assert script.names().count("lift") == 1
    assert any("the API server is away" in line.text for line in script.lines)


async def test_a_cancelled_drain_never_leads_to_an_action(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    answer = await handle.execute_update(NodeWorkflow.abort, By(who="alice", reason="no"))
    assert answer.text == "stopping(evacuate)"
    await reaches(handle, State.HANDED_OVER)
    assert "act" not in script.names()
    assert "release" in script.names()
    assert "lift" not in script.names()
    latch = next(line for line in script.lines if line.kind == "latch")
    assert latch.data["by"] == "alice"
    assert script.views[-1].stopped == Stop(by="alice", reason="no")
    await handle.execute_update(NodeWorkflow.abort, By(who="alice", reason="closing"))
    assert await handle.result() == "withdrawn"
    assert "lift" not in script.names(), "a latched fault stays marked: no check has passed"
    assert script.views[-1].stopped == Stop(by="alice", reason="no"), "what closed it had nothing left to stop"


async def test_abort_after_the_call_says_so_and_the_end_is_still_awaited(start: Start, script: Script) -> None:
    gate = asyncio.Event()

    async def prove(_: sig.ProveRequest) -> StepResult:
        from temporalio import activity

        while not gate.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.05)
        return StepResult(outcome=Outcome.DONE, at=datetime.now(UTC))

    order = Order(campaign="drv", approval="campaign-drv", rung="reboot")
    script.planner = lambda request: plan_for(request, order=order)
    script.on(sig.PROVE, prove)
    handle = await start()
    await wait_for(script, "prove")
    answer = await handle.execute_update(NodeWorkflow.abort, By(who="alice", reason="wrong node"))
    assert answer.text.startswith("too_late(prove")
    assert (await handle.query(NodeWorkflow.state)).stopped is None, "not before it takes effect"
    gate.set()
    await reaches(handle, State.HANDED_OVER)
    shown = await handle.query(NodeWorkflow.state)
    assert shown.stopped == Stop(by="alice", reason="wrong node", acted=True)
    assert shown.order_sent
    assert not script.views[0].order_sent, "not while it had still to begin"
    await handle.terminate("done")


async def test_a_cancel_of_the_workflow_is_a_stop_and_leaves_nothing_half_done(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    await handle.cancel(reason="wrong node")
    await reaches(handle, State.HANDED_OVER)
    assert "act" not in script.names()
    assert "release" in script.names()
    assert any("wrong node" in line.text for line in script.lines if line.kind == "latch")
    await handle.terminate("done")


async def test_hold_stops_between_steps_and_resume_goes_on(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    until = datetime.now(UTC) + timedelta(hours=1)
    hold = HoldRequest(hold=Hold(owner="alice", reason="looking", until=until))
    answer = await handle.execute_update(NodeWorkflow.hold, hold)
    assert answer.text.endswith("stopping(evacuate)")
    await reaches(handle, State.HELD)
    assert "act" not in script.names()
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.DONE))
    await handle.execute_update(NodeWorkflow.resume, By(who="alice"))
    assert await handle.result() == "returned"
    assert len(script.asked(sig.ACT)) == 1


async def test_a_shorter_hold_leaves_anothers_longer_one_as_it_is(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    now = datetime.now(UTC)
    ada = Hold(owner="ada", reason="looking", until=now + timedelta(hours=4))
    kim = Hold(owner="kim", reason="me too", until=now + timedelta(minutes=1))
    longer = Hold(owner="kim", reason="till tomorrow", until=now + timedelta(hours=20))
    await handle.execute_update(NodeWorkflow.hold, HoldRequest(hold=ada))
    await reaches(handle, State.HELD)
    answer = await handle.execute_update(NodeWorkflow.hold, HoldRequest(hold=kim))
    assert "ada holds it until" in answer.text
    assert "which stays" in answer.text
    assert (await handle.query(NodeWorkflow.state)).hold == ada
    await handle.execute_update(NodeWorkflow.hold, HoldRequest(hold=longer))
    assert (await handle.query(NodeWorkflow.state)).hold == longer
    await handle.terminate("done")


@pytest.mark.parametrize(
    ("hours", "reason"), [(-1, "looking"), (24 * 8, "looking"), (1, " ")], ids=["past", "too long", "no reason"]
)
async def test_a_hold_needs_a_reason_and_a_near_end(start: Start, script: Script, hours: int, reason: str) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    until = datetime.now(UTC) + timedelta(hours=hours)
    hold = HoldRequest(hold=Hold(owner="alice", reason=reason, until=until))
    with pytest.raises(WorkflowUpdateFailedError):
        await handle.execute_update(NodeWorkflow.hold, hold)
    await handle.terminate("done")


async def handed_over_by_a_budget(start: Start, script: Script) -> WorkflowHandle[Any, str]:
    blocked = StepResult(outcome=Outcome.BLOCKED, reason="team/db-0", who="budget team/db", at=datetime.now(UTC))
    script.on(sig.EVACUATE, lambda _: blocked)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    return handle


async def test_resume_plans_a_handed_over_incident_again_and_it_goes_on(start: Start, script: Script) -> None:
    handle = await handed_over_by_a_budget(start, script)
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.DONE, at=datetime.now(UTC)))
    answer = await handle.execute_update(NodeWorkflow.resume, By(who="ada", reason="the budget is looser now"))
    assert answer.text == "planned again: reboot for xid/79"
    assert await handle.result() == "returned"
    (line,) = [line.text for line in script.lines if line.kind == "resume"]
    assert "ada" in line
    assert "the budget is looser now" in line
    assert "blocked by budget team/db" in line


BUDGET = StepResult(
    outcome=Outcome.BLOCKED, reason="team/db-0", who="budget team/db of ops", proof={"budgets": ["team/db of ops"]}
)


def answered(state: ApprovalState) -> Callable[[sig.AskRequest], StepResult]:
    """People's word, as the question finds it."""

    def ask(request: sig.AskRequest) -> StepResult:
        waiter = request.request.waiter
        covers = {waiter.incident: waiter.plan_hash}
        result = ApprovalResult(
            id=request.request.id, state=state, by=("bob",), decided_at=datetime.now(UTC), covers=covers
        )
        return StepResult(outcome=Outcome.DONE, at=datetime.now(UTC), proof={"result": result.model_dump(mode="json")})

    return ask


async def test_people_are_asked_about_a_budget_and_their_yes_counts_for_this_drain_once(
    start: Start, script: Script
) -> None:
    need = ApprovalNeed(groups=("approver",), expires_s=60, why=("a disruption budget refuses",))
    script.planner = lambda request: plan_for(request, budget_need=need)
    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    script.on(sig.EVACUATE, lambda r: StepResult(outcome=Outcome.DONE) if r.budget_bypass else BUDGET)
    handle = await start()
    assert await handle.result() == "returned"
    (asked,) = [request.request for request in script.asked(sig.ASK)]
    assert "budget team/db of ops" in asked.title
    assert "budget team/db of ops refuses" in asked.need.why[0]
    assert asked.waiter.plan_hash == script.asked(sig.ACT)[0].pre.plan_hash
    first, second = script.asked(sig.EVACUATE)
    assert (first.budget_bypass, second.budget_bypass) == (False, True)
    assert (second.drain, second.drain_s) == (Drain.NOW, 1)
    assert second.pre.approvals == (asked.id,), "the yes isn't counted again before each deletion"
    assert script.asked(sig.ACT)[0].pre.approvals == (asked.id,)


async def test_a_no_about_a_budget_latches_and_nothing_is_deleted(start: Start, script: Script) -> None:
    need = ApprovalNeed(groups=("approver",), expires_s=60, why=("a disruption budget refuses",))

    def planner(request: sig.PlanRequest) -> Plan:
        said_no = any(line.kind == "latch" for line in script.lines)
        return plan_for(request, action=Action.HAND_OVER) if said_no else plan_for(request, budget_need=need)

    script.planner = planner
    script.on(sig.ASK, answered(ApprovalState.REJECTED))
    script.on(sig.EVACUATE, lambda _: BUDGET)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert [request.budget_bypass for request in script.asked(sig.EVACUATE)] == [False]
    assert "act" not in script.names()
    await handle.terminate("done")


async def test_a_yes_about_a_budget_is_void_when_the_node_would_lose_more_by_now(start: Start, script: Script) -> None:
    need = ApprovalNeed(groups=("approver",), expires_s=60, why=("a disruption budget refuses",))
    script.planner = lambda request: plan_for(
        request, budget_need=need, at_stake=("work of a/b",) if script.asked(sig.ASK) else (),
        **({"action": Action.HAND_OVER} if len(script.asked(sig.ASK)) > 1 else {}),
    )  # fmt: skip
    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    script.on(sig.EVACUATE, lambda r: BUDGET)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert not any(request.budget_bypass for request in script.asked(sig.EVACUATE)[:2])
    await handle.terminate("done")


LOSS = "Job team/train (8 GPUs): 90.0 GPU-hours since its checkpoint at 10:00:00 (owner ml)"
RUNNING = StepResult(
    outcome=Outcome.BLOCKED, reason="still running", who="team/train", proof={"running": {"team/train": LOSS}}
)
JOB_NEED = ApprovalNeed(groups=("approver",), expires_s=60, why=("a job still runs when its drain's time is over",))


def left_by_now(request: sig.EvacuateRequest) -> StepResult:
    return StepResult(outcome=Outcome.DONE) if request.drain is Drain.NOW else RUNNING


async def test_people_are_asked_about_a_job_that_outlasts_its_drain_and_their_yes_evicts_it(
    start: Start, script: Script
) -> None:
    script.planner = lambda r: plan_for(r, drain=Drain.JOB_END, job_end_need=JOB_NEED, destroys=("a day-old loss",))
    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    script.on(sig.EVACUATE, left_by_now)
    handle = await start()
    assert await handle.result() == "returned"
    (asked,) = [request.request for request in script.asked(sig.ASK)]
    assert "evict team/train" in asked.title
    assert LOSS in asked.need.why
    assert asked.waiter.destroys == (LOSS,)
    first, second = script.asked(sig.EVACUATE)
    assert (first.drain, second.drain, second.drain_s) == (Drain.JOB_END, Drain.NOW, 1)
    assert not second.budget_bypass, "a yes about jobs is none about budgets"
    assert second.pre.approvals == (asked.id,)


async def test_a_no_about_a_job_lets_it_run_on_and_a_person_has_it(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        if any(line.kind == "latch" for line in script.lines):
            return plan_for(request, action=Action.HAND_OVER)
        return plan_for(request, drain=Drain.JOB_END, job_end_need=JOB_NEED)

    script.planner = planner
    script.on(sig.ASK, answered(ApprovalState.REJECTED))
    script.on(sig.EVACUATE, left_by_now)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert [request.drain for request in script.asked(sig.EVACUATE)] == [Drain.JOB_END]
    assert "act" not in script.names()
    await handle.terminate("done")


async def test_a_budget_that_holds_an_evicted_job_is_asked_about_as_well(start: Start, script: Script) -> None:
    need = ApprovalNeed(groups=("approver",), expires_s=60, why=("a disruption budget refuses",))
    script.planner = lambda r: plan_for(r, drain=Drain.JOB_END, job_end_need=JOB_NEED, budget_need=need)
    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    held = {False: BUDGET, True: StepResult(outcome=Outcome.DONE)}
    script.on(sig.EVACUATE, lambda r: RUNNING if r.drain is Drain.JOB_END else held[r.budget_bypass])
    handle = await start()
    assert await handle.result() == "returned"
    assert ["evict" in r.request.title for r in script.asked(sig.ASK)] == [True, False]


async def test_a_policy_that_evicts_at_the_end_of_the_time_asks_nobody(start: Start, script: Script) -> None:
    script.planner = lambda r: plan_for(r, drain=Drain.JOB_END, job_end_evicts=True)
    script.on(sig.EVACUATE, left_by_now)
    handle = await start()
    assert await handle.result() == "returned"
    assert not script.asked(sig.ASK)


async def test_a_job_that_a_plan_says_nothing_of_is_handed_over(start: Start, script: Script) -> None:
    script.planner = lambda r: plan_for(r, drain=Drain.JOB_END)
    script.on(sig.EVACUATE, left_by_now)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert not script.asked(sig.ASK)
    await handle.terminate("done")


async def test_resume_never_overrides_a_latch_and_says_so(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        if any(line.kind == "latch" for line in script.lines):
            why = "bob said no: mark lifted; this holds until 2026-01-02 00:00"
            return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None, reasons=(why,))
        return plan_for(request)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.REFUSED, reason="mark lifted", who="bob"))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    answer = await handle.execute_update(NodeWorkflow.resume, By(who="ada", reason="go on"))
    assert answer.text.startswith("planned again, and a person still has it: bob said no")
    assert "until 2026-01-02" in answer.text
    assert len(script.asked(sig.EVACUATE)) == 1
    await handle.terminate("done")


async def test_who_has_it_planned_again_says_why_and_is_asked_anew(start: Start, script: Script) -> None:
    """A yes from before the hand-over is no yes to what comes after it."""
    need = ApprovalNeed(groups=("approver",), expires_s=60, why=("mode approve",))
    script.planner = lambda request: plan_for(request, approval=None if request.hand_over else need)

    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    handle = await handed_over_by_a_budget(start, script)
    with pytest.raises(WorkflowUpdateFailedError):
        await handle.execute_update(NodeWorkflow.resume, By(who="ada"))
    answer = await handle.execute_update(NodeWorkflow.resume, By(who="ada", reason="try it once more"))
    assert answer.text.endswith("it asks first: mode approve")
    await script.until_asked(sig.EVACUATE, 2)
    await reaches(handle, State.HANDED_OVER)
    assert len({asked.request.id for asked in script.asked(sig.ASK)}) == 2
    async with asyncio.timeout(PATIENCE_S):  # until the second hand-over is told as well
        while len([n for n in script.asked(sig.NOTIFY) if n.page]) < 2:  # noqa: ASYNC110 - by a worker's own calls
            await asyncio.sleep(0.05)
    await handle.terminate("done")


async def test_a_changed_world_plans_again_instead_of_acting(start: Start, script: Script) -> None:
    refusals = iter([StepResult(outcome=Outcome.REFUSED, reason="boot id was boot-1 and is boot-9 now")])
    done = StepResult(outcome=Outcome.DONE, at=datetime.now(UTC))
    script.on(sig.ACT, lambda _: next(refusals, done))
    handle = await start()
    assert await handle.result() == "returned"
    assert [request.key.n for request in script.asked(sig.ACT)] == [1, 2]


async def test_a_veto_latches_and_hands_over(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        vetoed = any(line.kind == "latch" for line in script.lines) or len(script.asked(sig.EVACUATE)) > 0
        return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None) if vetoed else plan_for(request)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.REFUSED, reason="mark lifted", who="bob"))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert [line.data["by"] for line in script.lines if line.kind == "latch"] == ["bob"]
    assert "act" not in script.names()
    await handle.terminate("done")


async def test_a_failed_check_takes_the_next_rung(start: Start, script: Script) -> None:
    checks = iter([sig.VerifyResult(step=StepResult(outcome=Outcome.FAILED, reason="7 of 8 GPUs"))])
    good = sig.VerifyResult(step=StepResult(outcome=Outcome.DONE))

    def planner(request: sig.PlanRequest) -> Plan:
        rung = Rung.REINSTALL if Rung.REBOOT in request.asked_rungs else Rung.REBOOT
        return plan_for(request, rung=rung)

    script.planner = planner
    script.on(sig.VERIFY, lambda _: next(checks, good))
    handle = await start()
    assert await handle.result() == "returned"
    assert [request.rung for request in script.asked(sig.ACT)] == [Rung.REBOOT, Rung.REINSTALL]
    failed = [request.failed for request in script.asked(sig.PLAN)]
    assert any("7 of 8 GPUs" in why for why in failed)


async def test_a_fault_in_probation_is_this_incidents_failure(start: Start, script: Script) -> None:
    script.planner = lambda request: plan_for(request, probation_s=300 if request.n == 1 else 0.1)
    handle = await start()
    await reaches(handle, State.PROBATION)
    await handle.signal(NodeWorkflow.report, fault("xid/79", boot_id="boot-2"))
    assert await handle.result() == "returned"
    assert len(script.asked(sig.ACT)) == 2
    assert len({request.key.incident for request in script.asked(sig.ACT)}) == 1
    assert "came back in probation" in script.asked(sig.PLAN)[-1].failed


async def test_replace_asks_for_the_successor_before_the_old_machine_goes(start: Start, script: Script) -> None:
    script.planner = lambda request: plan_for(request, rung=Rung.REPLACE)
    script.on(sig.PROVE, lambda _: StepResult(outcome=Outcome.DONE, successor="n-new", at=datetime.now(UTC)))
    handle = await start()
    assert await handle.result() == "replaced"
    assert [request.verb for request in script.asked(sig.ACT)] == ["request", "terminate"]
    assert script.asked(sig.VERIFY)[0].node == "n-new"
    assert script.asked(sig.LIFT)[0].node == "n-new"


async def test_request_first_asks_before_the_drain(start: Start, script: Script) -> None:
    script.planner = lambda request: plan_for(request, rung=Rung.REPLACE, request_first=True)
    script.on(sig.PROVE, lambda _: StepResult(outcome=Outcome.DONE, successor="n-new", at=datetime.now(UTC)))
    handle = await start()
    assert await handle.result() == "replaced"
    assert script.names()[:5] == ["mark", "acquire", "act", "evacuate", "act"]


async def test_repeats_of_what_waits_for_a_person_are_one_incident_and_one_message(
    start: Start, script: Script
) -> None:
    script.planner = lambda request: plan_for(request, action=Action.HAND_OVER, rung=None, drain=None)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    await script.until_asked(sig.NOTIFY, 1)
    for _ in range(20):
        await handle.signal(NodeWorkflow.report, fault("xid/79"))
    answer = await handle.execute_update(
        NodeWorkflow.assign, AssignRequest(owner="carol", by=By(who="alice")), id="assign-1"
    )
    assert answer.text == "assigned to carol"
    await reaches(handle, State.HANDED_OVER)
    assert len(script.asked(sig.NOTIFY)) == 1
    assert script.asked(sig.NOTIFY)[0].page
    await handle.terminate("done")


async def test_a_persons_word_starts_the_check_and_does_not_skip_it(start: Start, script: Script) -> None:
    script.planner = lambda request: plan_for(request, action=Action.HAND_OVER, rung=None, drain=None)
    script.on(sig.VERIFY, lambda _: sig.VerifyResult(step=StepResult(outcome=Outcome.FAILED, reason="still bad")))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    await handle.execute_update(NodeWorkflow.confirm_repaired, By(who="alice"))
    await wait_for(script, "verify")
    await reaches(handle, State.HANDED_OVER)
    assert "lift" not in script.names()
    script.on(sig.VERIFY, lambda _: sig.VerifyResult(step=StepResult(outcome=Outcome.DONE)))
    await handle.execute_update(NodeWorkflow.confirm_repaired, By(who="alice"))
    assert await handle.result() == "returned"
    assert "lift" in script.names()


async def test_confirming_what_does_not_wait_is_declined(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(NodeWorkflow.confirm_repaired, By(who="alice"))
    assert "only one that waits for a person" in str(error.value.cause)
    await handle.terminate("done")


async def test_observe_touches_nothing_and_says_it_once(start: Start, script: Script) -> None:
    quiet_s = 3_600.0
    script.planner = lambda request: plan_for(
        request, action=Action.OBSERVE, mark=False, would="reboot", quiet_s=quiet_s
    )
    handle = await start()
    await reaches(handle, State.OBSERVED)
    for _ in range(5):
        await handle.signal(NodeWorkflow.report, fault("xid/79"))
    quiet_s = 1.0  # over only now, however slowly it was told
    await handle.signal(NodeWorkflow.wake)
    assert await handle.result() == "withdrawn"
    assert set(script.names()) <= {"release"}
    assert len([n for n in script.asked(sig.NOTIFY) if "reboot" in n.text]) == 1


async def test_an_update_answered_before_continue_as_new_is_not_done_twice(start: Start, script: Script) -> None:
    script.planner = lambda request: plan_for(request, action=Action.OBSERVE, mark=False, would="reboot")
    handle = await start()
    await reaches(handle, State.OBSERVED)
    first = (await handle.describe()).run_id
    request = AssignRequest(owner="carol", by=By(who="alice"))
    await handle.execute_update(NodeWorkflow.assign, request, id="assign-once")
    async with asyncio.timeout(PATIENCE_S):
        n = 0
        while (await handle.describe()).run_id == first:
            # A new fault each time: something to plan for, so that the history grows.
            n += 1
            await handle.signal(NodeWorkflow.report, fault(f"xid/{800 + n}", fault_class=FaultClass.UNKNOWN))
            await asyncio.sleep(0.05)
    incident = (await handle.query(NodeWorkflow.state)).id
    await handle.execute_update(NodeWorkflow.assign, request, id="assign-once")
    await reaches(handle, State.OBSERVED)
    assert script.views[0].id == incident
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await handle.result()
    assert len([line for line in script.lines if line.kind == "owner"]) == 1


async def test_a_storm_of_events_on_one_node_is_one_incident(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    same = fault("xid/79")
    await asyncio.gather(*(handle.signal(NodeWorkflow.report, same) for _ in range(50)))
    await asyncio.gather(*(handle.signal(NodeWorkflow.report, fault("xid/45")) for _ in range(50)))
    view = await handle.query(NodeWorkflow.state)
    assert view.state is State.EVACUATING
    assert len(script.asked(sig.MARK)) == 1
    await handle.terminate("done")


async def test_a_provider_s_maintenance_is_drained_for_waited_out_and_verified(start: Start, script: Script) -> None:
    planned = fault(
        "maintenance/host", kind=Kind.PLANNED, source="aws", statement="level", fault_class=FaultClass.PLANNED
    )
    script.planner = lambda request: plan_for(request, rung=Rung.WAIT, action=Action.ACT, step_s=30)
    handle = await start(planned)
    await wait_for(script, "evacuate")
    await reaches(handle, State.WATCHING)
    over = planned.model_copy(update={"id": "over", "kind": Kind.RECOVERED, "received_at": datetime.now(UTC)})
    await handle.signal(NodeWorkflow.report, over)
    assert await handle.result() == "returned"
    assert script.names()[:4] == ["mark", "acquire", "evacuate", "verify"]


async def test_a_no_is_in_the_ledger_before_the_next_plan(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        said_no = [line for line in script.lines if line.kind == "latch"]
        return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None) if said_no else plan_for(request)

    script.planner = planner
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.REFUSED, reason="mark lifted", who="bob"))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert len(script.asked(sig.EVACUATE)) == 1
    await handle.terminate("done")


async def test_a_question_left_is_asked_anew_and_not_taken_for_a_no(start: Start, script: Script) -> None:
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a test",))
    script.planner = lambda request: plan_for(request, approval=need)
    handle = await start()
    await reaches(handle, State.WAITING_APPROVAL)
    await script.until_asked(sig.ASK, 1)
    until = datetime.now(UTC) + timedelta(hours=1)
    await handle.execute_update(NodeWorkflow.hold, HoldRequest(hold=Hold(owner="alice", reason="looking", until=until)))
    await reaches(handle, State.HELD)
    await handle.execute_update(NodeWorkflow.resume, By(who="alice"))
    await reaches(handle, State.WAITING_APPROVAL)
    await script.until_asked(sig.ASK, 2)
    first, second = [request.request for request in script.asked(sig.ASK)]
    assert first.id != second.id
    result = ApprovalResult(
        id=second.id,
        state=ApprovalState.APPROVED,
        by=("bob",),
        reason="go on",
        decided_at=datetime.now(UTC),
        covers={second.waiter.incident: second.waiter.plan_hash},
    )
    await handle.signal(NodeWorkflow.decided, Decided(result=result))
    assert await handle.result() == "returned"
    assert [line.text for line in script.lines if line.kind == "vote"] == [f"{second.id} approved by bob: go on"]
    assert not [line for line in script.lines if line.kind == "latch"]


@pytest.mark.parametrize("state", [ApprovalState.REJECTED, ApprovalState.EXPIRED])
async def test_a_no_is_a_persons_stop_and_no_answer_is_nobodys(
    start: Start, script: Script, state: ApprovalState
) -> None:
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a test",))

    def planner(request: sig.PlanRequest) -> Plan:
        said_no = [line for line in script.lines if line.kind == "latch"]
        given = {"action": Action.HAND_OVER, "rung": None, "drain": None} if said_no else {"approval": need}
        return plan_for(request, **given)

    script.planner = planner
    handle = await start()
    await reaches(handle, State.WAITING_APPROVAL)
    await script.until_asked(sig.ASK, 1)
    asked = script.asked(sig.ASK)[0].request
    by = ("grace",) if state is ApprovalState.REJECTED else ()
    covers = {asked.waiter.incident: asked.waiter.plan_hash}
    result = ApprovalResult(
        id=asked.id, state=state, by=by, reason="its data", decided_at=datetime.now(UTC), covers=covers
    )
    await handle.signal(NodeWorkflow.decided, Decided(result=result))
    await reaches(handle, State.HANDED_OVER)
    assert (await handle.query(NodeWorkflow.state)).stopped == (Stop(by="grace", reason="its data") if by else None)
    assert "act" not in script.names()
    await handle.terminate("done")


async def test_who_came_too_late_for_the_yes_to_others_asks_anew_at_once_however_often(
    start: Start, script: Script
) -> None:
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a test",))
    script.planner = lambda request: plan_for(request, approval=need)
    handle = await start()
    times = 6
    for n in range(1, times + 1):
        await script.until_asked(sig.ASK, n)
        asked = script.asked(sig.ASK)[-1].request
        mine = {asked.waiter.incident: asked.waiter.plan_hash}
        result = ApprovalResult(
            id=asked.id,
            state=ApprovalState.APPROVED,
            by=("bob",),
            reason="go on",
            decided_at=datetime.now(UTC),
            covers=mine if n == times else {"inc-of-another": "h"},
        )
        await handle.signal(NodeWorkflow.decided, Decided(result=result))
    assert await handle.result() == "returned"
    waited = [
        event.timer_started_event_attributes.start_to_fire_timeout.ToSeconds()
        async for event in handle.fetch_history_events()
        if event.HasField("timer_started_event_attributes")
    ]
    assert not [seconds for seconds in waited if 1 < seconds < 60], "nothing was waited for but people"


async def test_a_guards_question_that_was_left_is_another_one_when_the_incident_comes_back(
    start: Start, script: Script
) -> None:
    """What was left may be withdrawn by now: asked under its id again, nobody would be."""
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a small pool",))
    guard, census = Guard(Limits(), need, need), Census(cluster="c", sizes={"pool:c/train": 4})
    script.planner = lambda request: plan_for(request)

    def acquire(request: sig.AcquireRequest) -> sig.AcquireResult:
        _, answer = guard.decide(GuardState(), request.lease, datetime.now(UTC), census)
        assert isinstance(answer, Ask)
        return sig.AcquireResult(ask=answer)

    script.on(sig.ACQUIRE, acquire)
    handle = await start()
    await script.until_asked(sig.ASK, 1)
    await reaches(handle, State.WAITING_APPROVAL)
    until = datetime.now(UTC) + timedelta(hours=1)
    await handle.execute_update(NodeWorkflow.hold, HoldRequest(hold=Hold(owner="alice", reason="looking", until=until)))
    await reaches(handle, State.HELD)
    await handle.execute_update(NodeWorkflow.resume, By(who="alice"))
    await script.until_asked(sig.ASK, 2)
    first, second = [request.request.id for request in script.asked(sig.ASK)]
    assert first != second
    await handle.terminate("done")


async def test_a_question_that_is_withdrawn_again_and_again_is_asked_ever_slower(start: Start, script: Script) -> None:
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a test",))
    script.planner = lambda request: plan_for(request, approval=need)
    script.on(sig.ASK, answered(ApprovalState.WITHDRAWN))
    handle = await start()
    await script.until_asked(sig.ASK, SAME_PLAN_TIMES)
    async with asyncio.timeout(PATIENCE_S):
        while not [s async for s in timers(handle) if s == 2.0**SAME_PLAN_TIMES]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert len(script.asked(sig.ASK)) <= SAME_PLAN_TIMES + 1
    await handle.terminate("done")


async def timers(handle: WorkflowHandle[Any, str]) -> AsyncIterator[float]:
    """Seconds that it has waited, or waits, for."""
    async for event in handle.fetch_history_events():
        if event.HasField("timer_started_event_attributes"):
            started = event.timer_started_event_attributes.start_to_fire_timeout
            yield round(started.ToTimedelta().total_seconds(), 1)


@pytest.mark.parametrize("state", [ApprovalState.REJECTED, ApprovalState.EXPIRED])
async def test_a_no_or_silence_to_others_is_none_to_who_joined_too_late(
    start: Start, script: Script, state: ApprovalState
) -> None:
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a test",))
    script.planner = lambda request: plan_for(request, approval=need)
    handle = await start()
    for n in (1, 2):
        await script.until_asked(sig.ASK, n)
        asked = script.asked(sig.ASK)[-1].request
        mine = {asked.waiter.incident: asked.waiter.plan_hash}
        result = ApprovalResult(
            id=asked.id,
            state=state if n == 1 else ApprovalState.APPROVED,
            reason="of others",
            decided_at=datetime.now(UTC),
            covers=mine if n == 2 else {},
        )
        await handle.signal(NodeWorkflow.decided, Decided(result=result))
    assert await handle.result() == "returned"
    assert not [line for line in script.lines if line.kind == "latch"]


async def test_a_fault_heard_while_the_end_is_written_opens_the_next_incident(start: Start, script: Script) -> None:
    gate = asyncio.Event()
    write = script.answers.get("record") or script._default(sig.RECORD)

    async def record(request: sig.RecordRequest) -> sig.Recorded:
        recorded = write(request)
        if request.view and request.view.end and not gate.is_set():
            script.begun["end"].set()
            await asyncio.wait_for(gate.wait(), 15)
        assert isinstance(recorded, sig.Recorded)
        return recorded

    script.on(sig.RECORD, record)
    handle = await start()
    await wait_for(script, "end")
    await handle.signal(NodeWorkflow.report, fault("xid/48", boot_id="boot-2"))
    gate.set()
    assert await handle.result() == "returned"
    repaired = [request.key.incident for request in script.asked(sig.ACT)]
    assert len(repaired) == 2
    assert repaired[0] != repaired[1]


async def test_an_order_for_another_incident_is_declined(start: Start, script: Script) -> None:
    script.on(sig.EVACUATE, until_cancelled)
    handle = await start()
    await wait_for(script, "evacuate")
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(NodeWorkflow.abort, By(incident="inc-before", who="alice"))
    assert "inc-before is over" in str(error.value.cause)
    assert (await handle.query(NodeWorkflow.state)).state is State.EVACUATING
    await handle.terminate("done")


async def test_a_hand_over_stays_one_when_its_reason_runs_out_and_over_continue_as_new(
    start: Start, script: Script
) -> None:
    """A latch ends after a day, a successor's day too: the planner, asked again, would act."""
    script.planner = lambda request: (
        plan_for(request, action=Action.HAND_OVER, rung=None, drain=None, reasons=("bob said no",))
        if request.n == 1 or request.hand_over
        else plan_for(request)
    )
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    first = (await handle.describe()).run_id
    async with asyncio.timeout(PATIENCE_S):
        while (await handle.describe()).run_id == first:
            await handle.signal(NodeWorkflow.wake)
            await asyncio.sleep(0.02)
    await reaches(handle, State.HANDED_OVER)
    assert "bob said no" in [request.hand_over for request in script.asked(sig.PLAN)]
    assert "acquire" not in script.names()
    assert len([n for n in script.asked(sig.NOTIFY) if n.page]) == 1
    await handle.terminate("done")


async def test_a_repeat_between_the_proof_and_its_hearing_is_no_failure_of_the_repair(
    start: Start, script: Script
) -> None:
    alert = fault("xid/79", source="alertmanager", statement="level", boot_id=None)

    async def prove(request: sig.ProveRequest) -> StepResult:
        proved_at = datetime.now(UTC)
        await handle.signal(NodeWorkflow.report, alert.model_copy(update={"received_at": datetime.now(UTC)}))
        await handle.query(NodeWorkflow.state)  # taken in before the proof is heard of
        return StepResult(outcome=Outcome.DONE, at=proved_at)

    script.on(sig.PROVE, prove)
    handle = await start(alert)
    assert await handle.result() == "returned"
    assert len(script.asked(sig.ACT)) == 1


async def test_a_mark_that_can_t_be_lifted_calls_a_person(start: Start, script: Script) -> None:
    script.on(sig.LIFT, lambda _: StepResult(outcome=Outcome.FAILED, reason="forbidden"))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    assert "could not be lifted: forbidden" in script.asked(sig.PLAN)[-1].hand_over
    await handle.terminate("done")


async def test_a_rule_s_ticket_is_opened_once_beside_the_repair(start: Start, script: Script) -> None:
    script.planner = lambda request: plan_for(request, ticket=True)
    checks = iter([sig.VerifyResult(step=StepResult(outcome=Outcome.FAILED, reason="7 of 8 GPUs"))])
    script.on(sig.VERIFY, lambda _: next(checks, sig.VerifyResult(step=StepResult(outcome=Outcome.DONE))))
    named = ("gpu:4", "gpu-uuid:GPU-0000000a-1111")
    handle = await start(fault("xid/79", entities=named))
    assert await handle.result() == "returned"
    assert len(script.asked(sig.ACT)) == 2
    (asked,) = script.asked(sig.TICKET)
    assert asked.entities == named, "they name the part"
