"""Puts a question to people: pending in the ledger first, then with the approval's own workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from pydantic import JsonValue
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.failures import unreadable, waits
from activities.guard.batching import Batching, Job
from activities.ports import Unreadable
from activities.storage.ledger import Ledger
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalRequest, ApprovalState
from medevac.incident import Outcome, StepResult

CALL_S = 1.8
TURN_S = 0.9
"""A join that is under way and one's own must fit into the activity's time."""
JOINS = 100
"""Joins in one signal. A storm asks one question: signalled one by one, its workflow would be the neck of the bottle,
and with hundreds under way all would run into their time-outs and be made again."""
APPROVAL = "approval"
"""Workflow type, id prefix, and the signal by which one joins those who wait."""
JOIN = "join_many"


class AskActivities:
    """`loop` is the event loop that `client` belongs to; `vote_keys` are the public keys of the gateways."""

    def __init__(
        self,
        ledger: Ledger,
        client: Client,
        loop: asyncio.AbstractEventLoop,
        vote_keys: Sequence[str],
        clock: Clock = utcnow,
    ) -> None:
        self._ledger = ledger
        self._client = client
        self._loop = loop
        self._vote_keys = list(vote_keys)
        self._clock = clock
        self._joining: Batching[sig.AskRequest] = Batching(self._join_all, TURN_S, "the questions")

    @activity.defn(name=sig.ASK.name, no_thread_cancel_exception=True)
    def ask(self, request: sig.AskRequest) -> StepResult:
        """`done` when the question stands. One that is decided already is `already`, with the answer in its proof."""
        asked = request.request
        workflow_id = f"{APPROVAL}/{asked.id}"
        state = self._state(asked.id)
        if state is None:
            # Seen by people from now on, whether or not a workflow or a chat post ever comes to be.
            try:
                self._ledger.upsert_approval(tally.join(None, asked, workflow_id))
            except Exception as error:
                raise unreadable("the ledger", error) from None
        elif state is not ApprovalState.PENDING:
            return self._decided(asked)
        try:
            self._joining.do(request)
        except WorkflowAlreadyStartedError:
            # It ended just now: its last act was to write the answer to the ledger.
            if self._state(asked.id) not in (None, ApprovalState.PENDING):
                return self._decided(asked)
            raise waits(f"approval {asked.id} has ended and its answer isn't in the ledger yet", 1.0) from None
        except (Unreadable, TimeoutError, RPCError, RuntimeError) as error:
            raise waits(f"approval {asked.id} can't be joined now: {str(error) or type(error).__name__}", 1.0) from None
        return StepResult(outcome=Outcome.DONE, reason=f"asked: {asked.id}", at=self._clock())

    def _join_all(self, batch: list[Job[sig.AskRequest]]) -> None:
        """One signal for all who ask the same at the same time."""
        questions: dict[str, list[Job[sig.AskRequest]]] = {}
        for job in batch:
            questions.setdefault(job.work.request.id, []).append(job)
        chunks = [jobs[i : i + JOINS] for jobs in questions.values() for i in range(0, len(jobs), JOINS)]

        async def signalled() -> list[BaseException | None]:
            return await asyncio.gather(
                *(self._join([job.work for job in jobs]) for jobs in chunks), return_exceptions=True
            )

        ended = asyncio.run_coroutine_threadsafe(signalled(), self._loop).result(CALL_S + 0.2)
        for jobs, error in zip(chunks, ended, strict=True):
            for job in jobs:
                job.error = error

    async def _join(self, requests: list[sig.AskRequest]) -> None:
        first = requests[0]
        await self._client.start_workflow(
            APPROVAL,
            {
                "id": first.request.id,
                "timing": first.timing.model_dump(mode="json"),
                "vote_keys": self._vote_keys,
            },
            id=f"{APPROVAL}/{first.request.id}",
            task_queue=sig.Queue.MAIN.value,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            # One that was decided stays so; one that was terminated asks again.
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            start_signal=JOIN,
            start_signal_args=[requests],
            rpc_timeout=timedelta(seconds=CALL_S),
        )

    def _state(self, approval: str) -> ApprovalState | None:
        try:
            return self._ledger.approval_state(approval)
        except Exception as error:
            raise unreadable("the ledger", error) from None

    def _decided(self, asked: ApprovalRequest) -> StepResult:
        """With what the answer says of who asks, not of all the others."""
        try:
            view = self._ledger.approval(asked.id)
        except Exception as error:
            raise unreadable("the ledger", error) from None
        if view is None or view.result is None:
            return StepResult(outcome=Outcome.ALREADY, reason=f"{asked.id} is decided", at=self._clock())
        mine = asked.waiter.incident
        covers = {incident: plan for incident, plan in view.result.covers.items() if incident == mine}
        result = view.result.model_copy(update={"covers": covers})
        proof: dict[str, JsonValue] = {"result": result.model_dump(mode="json")}
        return StepResult(outcome=Outcome.ALREADY, reason=f"{view.id} is {view.state}", at=self._clock(), proof=proof)
