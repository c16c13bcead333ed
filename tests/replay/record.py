"""Records histories for `test_replay.py`: `python -m tests.replay.record [NAME ...]`.

Run it when a workflow gains a path, or when a change of its commands is meant; an old history is kept as long as runs
that began with it may still be open.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.testing import WorkflowEnvironment

from activities import signatures as sig
from medevac.approvals.approval import ApprovalState, Verdict, Vote
from medevac.campaigns.progress import CampaignState
from medevac.cases.case import CaseState, Saying
from medevac.faults.classes import FaultClass
from medevac.fleet.places import Offer, Source
from medevac.incident import Hold, Outcome, State, StepResult
from medevac.policy.plan import Action, ApprovalNeed, Drain, Plan, Rung
from tests.votes import KEYS, SIGNER
from tests.workflow.conftest import TEMPORAL, fault, scripted_workers
from tests.workflow.scripted import Script, plan_for, until_cancelled
from tests.workflow.test_campaign import decision, question
from tests.workflow.test_campaign import start as start_campaign
from worker.connection import MedevacPlugin
from workflows.approval import ApprovalWorkflow
from workflows.campaign import CampaignWorkflow
from workflows.case import CaseWorkflow
from workflows.messages import ApprovalInput, By, HoldRequest, NodeInput, approval_workflow_id, node_workflow_id
from workflows.node import NodeWorkflow

HISTORIES = Path(__file__).parent / "histories"

Handle = WorkflowHandle[Any, Any]


class Recorder:
    def __init__(self, client: Client, script: Script) -> None:
        self.client = client
        self.script = script

    async def node(self, **event: Any) -> Handle:
        node = f"n-{uuid.uuid4().hex[:6]}"
        return await self.client.start_workflow(
            NodeWorkflow.run,
            NodeInput(cluster="c", node=node, timing=sig.TEST),
            id=node_workflow_id("c", node),
            task_queue=sig.Queue.MAIN.value,
            start_signal="report",
            start_signal_args=[fault(**event)],
        )

    async def reaches(self, handle: Handle, state: State) -> None:
        async with asyncio.timeout(30):
            while (await handle.query(NodeWorkflow.state)).state is not state:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def ask(self, request: sig.AskRequest) -> StepResult:
        """The real `ask`, without a ledger."""
        await self.client.start_workflow(
            ApprovalWorkflow.run,
            ApprovalInput(id=request.request.id, timing=sig.TEST, vote_keys=KEYS),
            id=approval_workflow_id(request.request.id),
            task_queue=sig.Queue.MAIN.value,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="join",
            start_signal_args=[request],
        )
        return StepResult(outcome=Outcome.DONE)

    async def vote(self, verdict: Verdict) -> Handle:
        request = None
        async with asyncio.timeout(30):
            while not (asked := self.script.asked(sig.ASK)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            request = asked[0].request
            handle: Handle = self.client.get_workflow_handle(approval_workflow_id(request.id))
            while (view := await handle.query(ApprovalWorkflow.shown)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        vote = SIGNER.sign(
            Vote(
                approval=request.id,
                voter="alice",
                groups=("approvers",),
                verdict=verdict,
                shown_hash=view.shown_hash,
                via="api",
                at=datetime.now(UTC),
            )
        )
        await handle.execute_update(ApprovalWorkflow.decide, vote, id="alice")
        return handle


def asking(request: sig.PlanRequest) -> Plan:
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a reinstall asks",))
    return plan_for(request, rung=Rung.REINSTALL, approval=need)


async def reboot(r: Recorder) -> list[Handle]:
    handle = await r.node()
    await handle.result()
    return [handle]


async def older_policy_and_catalogue(r: Recorder) -> list[Handle]:
    """Recorded as if an older catalogue had called 63 critical, and an older policy had rebooted for it."""
    r.script.planner = lambda request: plan_for(request, policy_version=1, policy_hash="older", rung=Rung.REBOOT)
    handle = await r.node(code="xid/63", fault_class=FaultClass.CRITICAL)
    await handle.result()
    return [handle]


async def replace_after_a_failed_check(r: Recorder) -> list[Handle]:
    checks = iter([sig.VerifyResult(step=StepResult(outcome=Outcome.FAILED, reason="7 of 8 GPUs"))])
    good = sig.VerifyResult(step=StepResult(outcome=Outcome.DONE))
    r.script.planner = lambda request: plan_for(
        request, rung=Rung.REPLACE if request.asked_rungs else Rung.REBOOT, request_first=True
    )
    r.script.on(sig.VERIFY, lambda _: next(checks, good))
    handle = await r.node()
    await handle.result()
    return [handle]


async def stopped_after_a_request(r: Recorder) -> list[Handle]:
    """Recorded when a successor that nobody needed any more was only named, and not yet taken back."""
    r.script.planner = lambda request: plan_for(request, rung=Rung.REPLACE, request_first=True)
    r.script.on(sig.EVACUATE, until_cancelled)
    handle = await r.node()
    await r.script.begun["evacuate"].wait()
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await r.reaches(handle, State.HANDED_OVER)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await handle.result()
    return [handle]


async def asked_elsewhere_and_taken_back(r: Recorder) -> list[Handle]:
    here, there = (Source(offer=Offer(provider=name), own=name == "skyline") for name in ("skyline", "northwind"))
    gone = StepResult(outcome=Outcome.TIMED_OUT, proof={"nothing_left": True, "joined": ""})
    r.script.planner = lambda request: plan_for(
        request, rung=Rung.REPLACE, ask_at=there if request.nothing_came else here
    )
    proofs = iter([gone])

    async def prove(request: sig.ProveRequest) -> StepResult:
        return next(proofs, None) or await until_cancelled(request)

    r.script.on(sig.PROVE, prove)
    r.script.on(sig.TAKE_BACK, lambda _: gone.model_copy(update={"outcome": Outcome.DONE}))
    handle = await r.node()
    await r.script.until_asked(sig.PROVE, 2)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await r.reaches(handle, State.HANDED_OVER)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await handle.result()
    return [handle]


async def approved(r: Recorder) -> list[Handle]:
    r.script.planner = asking
    r.script.on(sig.ASK, r.ask)
    handle = await r.node()
    approval = await r.vote(Verdict.APPROVE)
    await handle.result()
    await approval.result()
    return [handle, approval]


async def rejected_handed_over_and_confirmed(r: Recorder) -> list[Handle]:
    def planner(request: sig.PlanRequest) -> Plan:
        no = any(line.kind == "latch" for line in r.script.lines) or bool(decided)
        return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None) if no else asking(request)

    decided: list[ApprovalState] = []
    r.script.planner = planner
    r.script.on(sig.ASK, r.ask)
    handle = await r.node()
    approval = await r.vote(Verdict.REJECT)
    decided.append(ApprovalState.REJECTED)
    await r.reaches(handle, State.HANDED_OVER)
    await handle.execute_update(NodeWorkflow.confirm_repaired, By(who="alice"))
    await handle.result()
    return [handle, approval]


async def resumed_past_a_budget(r: Recorder) -> list[Handle]:
    """Handed over by a budget, ordered on, then asked about it."""
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a disruption budget refuses",))
    r.script.planner = lambda request: plan_for(request, budget_need=need if r.script.asked(sig.EVACUATE) else None)
    blocked = StepResult(
        outcome=Outcome.BLOCKED, reason="team/db-0", who="budget team/db", proof={"budgets": ["team/db"]}
    )
    r.script.on(sig.EVACUATE, lambda request: StepResult(outcome=Outcome.DONE) if request.budget_bypass else blocked)
    r.script.on(sig.ASK, r.ask)
    handle = await r.node()
    await r.reaches(handle, State.HANDED_OVER)
    await handle.execute_update(NodeWorkflow.resume, By(who="alice", reason="ask about it"))
    await r.vote(Verdict.APPROVE)
    await handle.result()
    return [handle]


async def asked_about_a_job(r: Recorder) -> list[Handle]:
    """It outlasts its drain; a yes evicts it."""
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("a job still runs",))
    r.script.planner = lambda request: plan_for(request, drain=Drain.JOB_END, job_end_need=need)
    running = StepResult(
        outcome=Outcome.BLOCKED,
        reason="team/train-0",
        who="team/train",
        proof={"running": {"team/train": "90 GPU-hours"}},
    )
    r.script.on(sig.EVACUATE, lambda q: StepResult(outcome=Outcome.DONE) if q.drain is Drain.NOW else running)
    r.script.on(sig.ASK, r.ask)
    handle = await r.node()
    await r.vote(Verdict.APPROVE)
    await handle.result()
    return [handle]


async def ended_without_a_successor(r: Recorder) -> list[Handle]:
    """None came in its time; a yes ends the machine, and then it comes."""
    need = ApprovalNeed(groups=("approvers",), expires_s=60, why=("no successor is there",))
    r.script.planner = lambda request: plan_for(request, rung=Rung.REPLACE, request_first=True, successor_need=need)
    late = StepResult(outcome=Outcome.TIMED_OUT, reason="no successor has joined")
    came = StepResult(outcome=Outcome.DONE, successor="n-new", at=datetime.now(UTC))
    r.script.on(sig.PROVE, lambda request: late if request.keep_late else came)
    r.script.on(sig.ASK, r.ask)
    handle = await r.node()
    await r.vote(Verdict.APPROVE)
    await handle.result()
    return [handle]


async def held_worse_and_aborted(r: Recorder) -> list[Handle]:
    r.script.on(sig.EVACUATE, until_cancelled)
    handle = await r.node(code="xid/119")
    await r.script.begun["evacuate"].wait()
    until = datetime.now(UTC) + timedelta(hours=1)
    await handle.execute_update(NodeWorkflow.hold, HoldRequest(hold=Hold(owner="alice", reason="looking", until=until)))
    await r.reaches(handle, State.HELD)
    await handle.signal(NodeWorkflow.report, fault("xid/79"))
    await handle.execute_update(NodeWorkflow.resume, By(who="alice"))
    await r.reaches(handle, State.EVACUATING)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await r.reaches(handle, State.HANDED_OVER)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await handle.result()
    return [handle]


async def observed_until_quiet(r: Recorder) -> list[Handle]:
    r.script.planner = lambda request: plan_for(request, action=Action.OBSERVE, mark=False, would="reboot", quiet_s=2)
    handle = await r.node()
    await handle.result()
    return [handle]


async def campaign(r: Recorder) -> list[Handle]:
    states = iter([CampaignState.RUNNING, CampaignState.HALTED, CampaignState.ENDED])
    r.script.on(
        sig.CAMPAIGN_STEP,
        lambda _: sig.CampaignStepped(state=next(states, CampaignState.ENDED), why="", look_again_s=0.1),
    )
    handle, name = await start_campaign(r.client)
    await handle.signal(CampaignWorkflow.decided, decision(name))
    await handle.result()
    return [handle]


async def case(r: Recorder) -> list[Handle]:
    states = iter([CaseState.ASKED, CaseState.OPENING])
    asked = question(name := f"case-{uuid.uuid4().hex[:6]}")
    r.script.on(
        sig.CASE_STEP,
        lambda request: sig.CaseStepped(
            state=CaseState.CLOSED if request.n > 4 else next(states, CaseState.WAITING),
            look_again_s=0.1,
            ask=asked if request.n == 1 else None,
            sayings=(Saying(n=1, text="opened"),) if request.n == 3 else (),
        ),
    )
    handle: Handle = await r.client.start_workflow(
        CaseWorkflow.run,
        sig.CaseInput(id=name, system="desk", timing=sig.TEST),
        id=sig.case_workflow_id("desk", name),
        task_queue=sig.Queue.MAIN.value,
    )
    await r.script.begun["ask"].wait()
    await handle.signal(CaseWorkflow.decided, decision(name))
    await handle.result()
    return [handle]


CASES: dict[str, Callable[[Recorder], Awaitable[list[Handle]]]] = {
    case.__name__: case
    for case in (
        reboot,
        older_policy_and_catalogue,
        replace_after_a_failed_check,
        stopped_after_a_request,
        asked_elsewhere_and_taken_back,
        approved,
        rejected_handed_over_and_confirmed,
        resumed_past_a_budget,
        asked_about_a_job,
        ended_without_a_successor,
        held_worse_and_aborted,
        observed_until_quiet,
        campaign,
        case,
    )
}


async def main(names: list[str]) -> None:
    HISTORIES.mkdir(exist_ok=True)
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(TEMPORAL), plugins=[MedevacPlugin()]
    ) as env:
        for name in names or CASES:
            script = Script()
            workers = scripted_workers(env.client, script)
            async with workers[0], workers[1], workers[2]:
                for handle in await CASES[name](Recorder(env.client, script)):
                    history = await handle.fetch_history()
                    kind = handle.id.partition("/")[0]
                    path = HISTORIES / f"{name}.{kind}.json"
                    path.write_text(history.to_json(), encoding="utf-8")
                    print(f"{path.name}: {len(history.events)} events")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
