"""What an approval answers to its voters and waiters, on a real Temporal server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from activities import signatures as sig
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalRequest, ApprovalResult, ApprovalView, Verdict, Voided, Vote, Waiter
from medevac.approvals.signing import Signer, new_key
from medevac.incident import Line, StepKey, StepResult
from medevac.policy.plan import ApprovalNeed, Reminder
from tests.votes import KEYS, SIGNER
from tests.workflow.scripted import PATIENCE_S, TIMING, Script
from workflows.approval import ApprovalWorkflow
from workflows.messages import ApprovalInput, Decided, approval_workflow_id

pytestmark = pytest.mark.asyncio(loop_scope="session")


@workflow.defn(name="waiter", sandboxed=False)
class WaiterWorkflow:
    """Stands for an incident: waits for its answer."""

    def __init__(self) -> None:
        self.result: ApprovalResult | None = None

    @workflow.signal
    def decided(self, decided: Decided) -> None:
        self.result = decided.result

    @workflow.run
    async def run(self) -> ApprovalResult:
        await workflow.wait_condition(lambda: self.result is not None)
        assert self.result is not None
        return self.result


class Question:
    """One approval under test."""

    def __init__(
        self, client: Client, *, threshold: int = 1, expires_s: float = 60.0, reminder: Reminder | None = None
    ) -> None:
        self.client = client
        self.id = f"a-{uuid.uuid4().hex[:8]}"
        self.need = ApprovalNeed(
            groups=("approvers",), threshold=threshold, expires_s=expires_s, why=("a test",), reminder=reminder
        )
        self.waiters: list[WorkflowHandle[Any, ApprovalResult]] = []

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(approval_workflow_id(self.id))

    async def ask(self, queue: str, asked_before_s: float = 0.0) -> None:
        """One more incident that waits, since so long ago."""
        n = len(self.waiters) + 1
        workflow_id = f"waiter/{self.id}/{n}"
        self.waiters.append(await self.client.start_workflow(WaiterWorkflow.run, id=workflow_id, task_queue=queue))
        ask = self.request(n, f"h{n}", datetime.now(UTC) - timedelta(seconds=asked_before_s))
        await self.client.start_workflow(
            ApprovalWorkflow.run,
            ApprovalInput(id=self.id, timing=TIMING, vote_keys=KEYS),
            id=approval_workflow_id(self.id),
            task_queue=sig.Queue.MAIN.value,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="join",
            start_signal_args=[ask],
        )
        async with asyncio.timeout(PATIENCE_S):
            while len((await self.view()).waiters) < n:  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.05)

    def request(self, n: int, plan_hash: str, now: datetime) -> sig.AskRequest:
        """What the n-th incident asks."""
        request = ApprovalRequest(
            id=self.id,
            title="reboot",
            need=self.need,
            requested_by="medevac",
            requested_at=now,
            expires_at=now + timedelta(seconds=self.need.expires_s),
            policy_version=1,
            waiter=Waiter(
                incident=f"inc-{n}",
                workflow_id=f"waiter/{self.id}/{n}",
                cluster="c",
                node=f"n{n}",
                plan_hash=plan_hash,
                text="reboot",
            ),
        )
        return sig.AskRequest(key=StepKey(incident=f"inc-{n}", step="ask"), request=request, timing=TIMING)

    async def view(self) -> ApprovalView:
        async with asyncio.timeout(PATIENCE_S):
            while (view := await self.handle.query(ApprovalWorkflow.shown)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return view

    async def vote(
        self,
        voter: str,
        verdict: Verdict = Verdict.APPROVE,
        *,
        group: str = "approvers",
        shown: str | None = None,
        signer: Signer = SIGNER,
    ) -> str:
        vote = Vote(
            approval=self.id,
            voter=voter,
            groups=(group,),
            verdict=verdict,
            reason="because",
            shown_hash=shown or (await self.view()).shown_hash,
            via="api",
            at=datetime.now(UTC),
        )
        vote = signer.sign(vote)
        return await self.handle.execute_update(ApprovalWorkflow.decide, vote, id=f"{voter}:{verdict}:{shown}")


@pytest_asyncio.fixture(loop_scope="session")
async def queue(client: Client) -> AsyncIterator[str]:
    name = f"waiters-{uuid.uuid4().hex[:6]}"
    async with Worker(client, task_queue=name, workflows=[WaiterWorkflow]):
        yield name


async def test_yes_reaches_everyone_who_waits_and_is_in_the_ledger(client: Client, queue: str, script: Script) -> None:
    question = Question(client)
    await question.ask(queue)
    await question.ask(queue)
    assert (await question.vote("alice")).startswith("approved by alice")
    results = [await waiter.result() for waiter in question.waiters]
    assert [result.state for result in results] == ["approved", "approved"]
    assert [result.covers for result in results] == [{"inc-1": "h1"}, {"inc-2": "h2"}], "each is told its own"
    recorded = [request.approval for request in script.asked(sig.RECORD) if request.approval]
    decided = recorded[-1].result
    assert decided is not None
    assert decided.covers == {"inc-1": "h1", "inc-2": "h2"}
    assert decided.model_copy(update={"covers": results[0].covers}) == results[0]
    assert [vote.voter for vote in recorded[-1].votes] == ["alice"]


async def test_one_no_decides(client: Client, queue: str) -> None:
    question = Question(client, threshold=2)
    await question.ask(queue)
    await question.vote("alice")
    await question.vote("bob", Verdict.REJECT)
    result = await question.waiters[0].result()
    assert (result.state, result.by, result.reason) == ("rejected", ("bob",), "because")


async def test_two_means_two_people(client: Client, queue: str) -> None:
    question = Question(client, threshold=2)
    await question.ask(queue)
    assert (await question.vote("alice")).startswith("recorded 1 of 2")
    assert (await question.vote("Alice ")).startswith("recorded 1 of 2")
    assert (await question.vote("bob")).startswith("approved by alice and bob")


@pytest.mark.parametrize(
    ("voter", "group", "shown", "why"),
    [
        ("medevac", "approvers", None, "you asked for this"),
        ("mallory", "viewers", None, "only members of approvers"),
        ("alice", "approvers", "stale", "the list changed"),
    ],
)
async def test_a_vote_that_can_t_count_gets_its_reason_and_leaves_nothing(
    client: Client, queue: str, voter: str, group: str, shown: str | None, why: str
) -> None:
    question = Question(client)
    await question.ask(queue)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await question.vote(voter, group=group, shown=shown)
    assert why in str(error.value.cause)
    assert (await question.view()).votes == ()
    history = await question.handle.fetch_history()
    assert not [
        event for event in history.events if event.HasField("workflow_execution_update_accepted_event_attributes")
    ]
    await question.handle.terminate("done")


async def test_a_vote_that_no_gateway_signed_is_declined(client: Client, queue: str) -> None:
    question = Question(client)
    await question.ask(queue)
    stranger = Signer(new_key()[0])
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await question.vote("alice", signer=stranger)
    assert "not signed by the gateway" in str(error.value.cause)
    assert (await question.view()).votes == ()
    await question.handle.terminate("done")


@pytest.mark.parametrize("reminder", [None, Reminder(after_s=1, then=("second",)), Reminder(after_s=3_600)])
async def test_no_answer_is_a_no(client: Client, queue: str, reminder: Reminder | None) -> None:
    question = Question(client, expires_s=2, reminder=reminder)
    await question.ask(queue)
    result = await question.waiters[0].result()
    assert result.state == "expired"


async def test_a_question_that_nobody_waits_for_is_withdrawn(client: Client, queue: str) -> None:
    question = Question(client)
    await question.ask(queue)
    await question.handle.signal(ApprovalWorkflow.leave, "inc-1")
    assert await question.handle.result() == "withdrawn"


async def test_who_leaves_and_comes_back_with_another_plan_waits_on_and_is_answered(client: Client, queue: str) -> None:
    question = Question(client)
    await question.ask(queue)
    await question.ask(queue)
    await question.handle.signal(ApprovalWorkflow.leave, "inc-1")
    await question.handle.signal(ApprovalWorkflow.join, question.request(1, "new", datetime.now(UTC)))
    # Who leaves after coming back has left: what came last counts.
    await question.handle.signal(ApprovalWorkflow.join, question.request(2, "new", datetime.now(UTC)))
    await question.handle.signal(ApprovalWorkflow.leave, "inc-2")
    async with asyncio.timeout(PATIENCE_S):
        while [(w.incident, w.plan_hash) for w in (await question.view()).waiters] != [("inc-1", "new")]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await question.vote("ada")).startswith("approved by ada")
    assert (await question.waiters[0].result()).covers == {"inc-1": "new"}
    await question.waiters[1].terminate("it has left")


async def test_chat_that_is_down_holds_no_vote_back(client: Client, queue: str, script: Script) -> None:
    async def down(_: sig.NotifyRequest) -> StepResult:
        raise RuntimeError("chat is down")

    script.on(sig.NOTIFY, down)
    question = Question(client)
    await question.ask(queue)
    await question.vote("alice")
    assert await question.handle.result() == "approved"
    assert (await question.waiters[0].result()).state == "approved"


async def test_the_second_group_is_told_at_the_reminder_and_may_vote_then(
    client: Client, queue: str, script: Script
) -> None:
    question = Question(client, reminder=Reminder(after_s=8, then=("second",)))
    await question.ask(queue)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await question.vote("olga", group="second")
    assert "only approvers may decide this; from then on you, too" in str(error.value.cause)

    def told() -> list[sig.NotifyRequest]:
        said: list[sig.NotifyRequest] = script.asked(sig.NOTIFY)
        return [one for one in said if one.thread == question.id]

    async with asyncio.timeout(PATIENCE_S):
        while len(told()) < 2:  # noqa: ASYNC110 - of a workflow
            await asyncio.sleep(0.05)
    first, reminder = told()
    assert (first.mention, first.shown) == ((), True)
    assert (reminder.mention, reminder.shown, reminder.page) == (("second",), False, True)
    assert "second may vote as well" in reminder.text

    def told_the_ledger() -> int:
        return max(
            one.approval.rev for one in script.asked(sig.RECORD) if one.approval and one.approval.id == question.id
        )

    # Whoever looks at the ledger sees that something has changed.
    async with asyncio.timeout(PATIENCE_S):
        while told_the_ledger() < 2:  # noqa: ASYNC110 - of a workflow
            await asyncio.sleep(0.05)
    assert (await question.vote("olga", group="second", shown=(await question.view()).shown_hash)).startswith(
        "approved by olga"
    )


async def test_a_vote_that_a_join_voids_stays_in_the_ledger_and_its_voter_is_told(
    client: Client, queue: str, script: Script
) -> None:
    question = Question(client, threshold=2, expires_s=600)
    await question.ask(queue)
    assert (await question.vote("ada")).startswith("recorded 1 of 2")
    shown = await question.view()
    await question.ask(queue)
    view = await question.view()
    assert view.votes == ()
    (lost,) = view.voided
    assert (lost.vote.voter, lost.vote.via, lost.vote.reason) == ("ada", "api", "because")
    assert view.expires_at >= shown.expires_at

    def told() -> list[sig.NotifyRequest]:
        return [one for one in script.asked(sig.NOTIFY) if one.thread == question.id and "ada" in one.mention]

    async with asyncio.timeout(PATIENCE_S):
        while not told():  # noqa: ASYNC110 - of a workflow
            await asyncio.sleep(0.05)
    (said,) = told()
    assert "ada's word of" in said.text
    assert "no longer counts: 1 more waits for it now: n2" in said.text
    assert "Look again" in said.text

    def lines() -> list[Line]:
        return [line for line in script.lines if line.key.incident == question.id and line.kind == "void"]

    async with asyncio.timeout(PATIENCE_S):
        while not lines():  # noqa: ASYNC110 - of a workflow
            await asyncio.sleep(0.05)
    (line,) = lines()
    assert Voided.model_validate(line.data) == lost
    kept = [one for one in script.asked(sig.RECORD) if one.approval and one.approval.id == question.id]
    seen = {one.shown_hash for request in kept for one in (*request.seen, request.approval) if tally.seen(one)}
    assert lost.vote.shown_hash in seen, "what she saw was written as she saw it"
    assert (await question.vote("ada", shown=view.shown_hash)).startswith("recorded 1 of 2")
    assert (await question.vote("bob")).startswith("approved by ada and bob")


async def test_who_joins_just_before_the_end_is_not_covered_by_the_others_silence(client: Client, queue: str) -> None:
    question = Question(client, expires_s=8)
    await question.ask(queue, asked_before_s=5)
    await question.ask(queue)
    first, late = [await waiter.result() for waiter in question.waiters]
    assert (first.state, first.covers) == ("expired", {"inc-1": "h1"})
    assert (late.state, late.covers) == ("expired", {})
