"""The campaign's workflow is a clock: it asks people once, steps, wakes, and forgets nothing at continue-as-new."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities import signatures as sig
from medevac.approvals.approval import ApprovalRequest, ApprovalResult, ApprovalState, Waiter
from medevac.campaigns.progress import CampaignState
from medevac.incident import StepKey
from medevac.policy.plan import ApprovalNeed
from tests.workflow.scripted import TIMING, Script
from workflows.approval import ApprovalInput, ApprovalWorkflow
from workflows.campaign import CampaignWorkflow
from workflows.messages import CampaignInput, Decided, approval_workflow_id, campaign_workflow_id

pytestmark = pytest.mark.asyncio(loop_scope="session")

S = CampaignState
STEPS = 40
"""More than a run of the tests' server takes before it is to continue as new."""


def question(campaign: str, expires_s: float = 60.0) -> ApprovalRequest:
    now = datetime.now(UTC)
    workflow_id = campaign_workflow_id(campaign)
    return ApprovalRequest(
        id=f"campaign-{campaign}",
        title="reboot 3 nodes",
        need=ApprovalNeed(groups=("approver",), threshold=2, expires_s=expires_s, why=("asks, always",)),
        fleet_wide=True,
        requested_by="kim",
        requested_at=now,
        expires_at=now + timedelta(seconds=expires_s),
        policy_version=1,
        waiter=Waiter(
            incident=campaign, workflow_id=workflow_id, cluster="c", node="3 nodes", plan_hash="p", text="reboot"
        ),
    )


async def start(client: Client, **given: Any) -> tuple[WorkflowHandle[Any, str], str]:
    campaign = f"c-{uuid.uuid4().hex[:6]}"
    asked = question(campaign)
    handle = await client.start_workflow(
        CampaignWorkflow.run,
        CampaignInput(**{"id": campaign, "timing": TIMING, "question": asked} | given),
        id=campaign_workflow_id(campaign),
        task_queue=sig.Queue.MAIN.value,
    )
    return handle, campaign


def decision(campaign: str, state: ApprovalState = ApprovalState.APPROVED, covers: str = "p") -> Decided:
    result = ApprovalResult(
        id=f"campaign-{campaign}", state=state, by=("ada", "grace"), reason="fine", decided_at=datetime.now(UTC),
        covers={campaign: covers},
    )  # fmt: skip
    return Decided(result=result)


def steps(script: Script, *states: CampaignState) -> None:
    """The decided step starts it (or ends it); the others answer in turn, the last one for ever."""
    left = list(states)

    def answer(request: sig.CampaignStepRequest) -> sig.CampaignStepped:
        if request.decided is not None:
            state = S.RUNNING if request.decided else S.ENDED
        else:
            state = left.pop(0) if len(left) > 1 else left[0]
        return sig.CampaignStepped(state=state, why="because", look_again_s=0.1)

    script.on(sig.CAMPAIGN_STEP, answer)


async def test_a_yes_begins_it_and_it_steps_to_its_end(client: Client, script: Script) -> None:
    steps(script, S.RUNNING, S.SOAKING, S.RUNNING, S.ENDED)
    handle, campaign = await start(client)
    await script.begun["ask"].wait()
    assert not script.asked(sig.CAMPAIGN_STEP), "nothing before people's yes"
    await handle.signal(CampaignWorkflow.decided, decision(campaign))
    assert await handle.result() == "ended"
    asked = script.asked(sig.CAMPAIGN_STEP)
    assert (asked[0].decided, "ada and grace" in asked[0].reason) == (True, True)
    assert [request.n for request in asked] == list(range(1, len(asked) + 1))
    assert "is ended" in script.asked(sig.NOTIFY)[-1].text


async def test_stopped_before_its_yes_nobody_is_asked_any_more(client: Client, script: Script) -> None:
    script.on(sig.CAMPAIGN_STEP, lambda _: sig.CampaignStepped(state=S.ENDED, why="ended by kim", look_again_s=60))
    handle, campaign = await start(client)
    asks: WorkflowHandle[Any, Any] = await client.start_workflow(
        ApprovalWorkflow.run,
        ApprovalInput(id=f"campaign-{campaign}", timing=TIMING),
        id=approval_workflow_id(f"campaign-{campaign}"),
        task_queue=sig.Queue.MAIN.value,
        start_signal="join",
        start_signal_args=[sig.AskRequest(
            key=StepKey(incident=campaign, step="ask"), request=question(campaign), timing=TIMING
        )],
    )  # fmt: skip
    await script.begun["ask"].wait()
    await handle.signal(CampaignWorkflow.wake)
    assert await handle.result() == "ended"
    assert await asks.result() == "withdrawn"


async def test_a_no_or_a_yes_to_another_list_ends_it(client: Client, script: Script) -> None:
    for answer in ({"state": ApprovalState.REJECTED}, {"covers": "another"}):
        steps(script, S.RUNNING)
        handle, campaign = await start(client)
        await handle.signal(CampaignWorkflow.decided, decision(campaign, **answer))
        assert await handle.result() == "ended"
        assert script.asked(sig.CAMPAIGN_STEP)[-1].decided is False


async def test_woken_it_looks_at_once_and_a_halt_pages(client: Client, script: Script) -> None:
    def answer(request: sig.CampaignStepRequest) -> sig.CampaignStepped:
        state = S.HALTED if request.n == 3 else S.ENDED if request.n > 3 else S.RUNNING
        return sig.CampaignStepped(state=state, why="two bad nodes", look_again_s=600)

    script.on(sig.CAMPAIGN_STEP, answer)
    handle, campaign = await start(client)
    await handle.signal(CampaignWorkflow.decided, decision(campaign))
    for n in (2, 3):
        await script.until_asked(sig.CAMPAIGN_STEP, n)
        await handle.signal(CampaignWorkflow.wake)
    assert await handle.result() == "ended"
    halted = [request for request in script.asked(sig.NOTIFY) if "is halted" in request.text]
    assert [request.page for request in halted] == [True]


async def test_a_chat_that_is_down_holds_nothing_back(client: Client, script: Script) -> None:
    async def never(_: Any) -> Any:
        await asyncio.Event().wait()

    steps(script, S.HALTED, S.RUNNING, S.ENDED)
    script.on(sig.NOTIFY, never)
    handle, campaign = await start(client)
    await handle.signal(CampaignWorkflow.decided, decision(campaign))
    await script.until_asked(sig.CAMPAIGN_STEP, 4)
    await handle.terminate("its last word waits for the chat")


async def test_it_goes_on_where_an_earlier_run_was(client: Client, script: Script) -> None:
    def answer(request: sig.CampaignStepRequest) -> sig.CampaignStepped:
        return sig.CampaignStepped(state=S.ENDED if request.n > STEPS else S.RUNNING, why="", look_again_s=60)

    script.on(sig.CAMPAIGN_STEP, answer)
    handle, campaign = await start(client)
    await handle.signal(CampaignWorkflow.decided, decision(campaign))
    latest: WorkflowHandle[Any, str] = client.get_workflow_handle(handle.id)
    for n in range(2, STEPS + 2):
        await script.until_asked(sig.CAMPAIGN_STEP, n)
        # Rather than its timer: the server's are no finer than a second.
        if n <= STEPS:
            await latest.signal(CampaignWorkflow.wake)
    assert await handle.result() == "ended"
    numbers = [request.n for request in script.asked(sig.CAMPAIGN_STEP)]
    assert numbers == list(range(1, STEPS + 2)), "each step once, over several runs"
    assert len(script.asked(sig.ASK)) == 1


async def test_orders_that_no_state_tells_of_are_told_once(client: Client, script: Script) -> None:
    """A resume and a widening; the runs after the one that told them don't tell them again."""
    words = (sig.CampaignWord(n=2, text="resume by ada (cli): a broken BMC"),
             sig.CampaignWord(n=3, text="widen by ada (console)"))  # fmt: skip

    def answer(request: sig.CampaignStepRequest) -> sig.CampaignStepped:
        state = S.ENDED if request.n > STEPS else S.RUNNING
        told = tuple(word for word in words if word.n > request.told)
        return sig.CampaignStepped(state=state, why="", look_again_s=60, words=told)

    script.on(sig.CAMPAIGN_STEP, answer)
    handle, campaign = await start(client)
    await handle.signal(CampaignWorkflow.decided, decision(campaign))
    latest: WorkflowHandle[Any, str] = client.get_workflow_handle(handle.id)
    for n in range(2, STEPS + 2):
        await script.until_asked(sig.CAMPAIGN_STEP, n)
        if n <= STEPS:
            await latest.signal(CampaignWorkflow.wake)
    assert await handle.result() == "ended"
    said = [request.text for request in script.asked(sig.NOTIFY) if " by ada" in request.text]
    assert sorted(said) == sorted(f"campaign {campaign}: {word.text}" for word in words)
    keys = {str(request.key) for request in script.asked(sig.NOTIFY)}
    assert len(keys) == len(script.asked(sig.NOTIFY)), "none hides another"
