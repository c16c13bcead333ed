"""Puts a question to people: pending in the ledger first, then with the approval's own workflow."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.failures import unreadable, waits
from activities.storage.ledger import Ledger
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalState, ApprovalView
from medevac.incident import Outcome, StepResult

CALL_S = 2.0
AT_ONCE = 8
"""Joins under way in one process. A storm asks one question, whose workflow takes them one after the other: with
hundreds under way all run into their time-out, are made again, and none gets through."""
TURN_S = 0.5
APPROVAL = "approval"
"""Workflow type, id prefix, and the signal by which one joins those who wait."""
JOIN = "join"


class AskActivities:
    """`loop` is the event loop that `client` belongs to."""

    def __init__(self, ledger: Ledger, client: Client, loop: asyncio.AbstractEventLoop, clock: Clock = utcnow) -> None:
        self._ledger = ledger
        self._client = client
        self._loop = loop
        self._clock = clock
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    @activity.defn(name=sig.ASK.name, no_thread_cancel_exception=True)
    def ask(self, request: sig.AskRequest) -> StepResult:
        """`done` when the question stands. One that is decided already is `already`, with the answer in its proof."""
        asked = request.request
        workflow_id = f"{APPROVAL}/{asked.id}"
        view = self._known(asked.id)
        if view is None:
            # Seen by people from now on, whether or not a workflow or a chat post ever comes to be.
            try:
                self._ledger.upsert_approval(tally.join(None, asked, workflow_id))
            except Exception as error:
                raise unreadable("the ledger", error) from None
        elif view.state is not ApprovalState.PENDING:
            return self._decided(view)
        if not self._turns.acquire(timeout=TURN_S):
            raise waits(f"many ask at once; {asked.waiter.incident} joins {asked.id} in its turn", 1.0)
        try:
            asyncio.run_coroutine_threadsafe(self._join(request, workflow_id), self._loop).result(CALL_S)
        except WorkflowAlreadyStartedError:
            # It ended just now: its last act was to write the answer to the ledger.
            view = self._known(asked.id)
            if view is not None and view.state is not ApprovalState.PENDING:
                return self._decided(view)
            raise waits(f"approval {asked.id} has ended and its answer isn't in the ledger yet", 1.0) from None
        finally:
            self._turns.release()
        return StepResult(outcome=Outcome.DONE, reason=f"asked: {asked.id}", at=self._clock())

    async def _join(self, request: sig.AskRequest, workflow_id: str) -> None:
        await self._client.start_workflow(
            APPROVAL,
            {"id": request.request.id, "timing": request.timing.model_dump(mode="json")},
            id=workflow_id,
            task_queue=sig.Queue.MAIN.value,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            # One that was decided stays so; one that was terminated asks again.
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            start_signal=JOIN,
            start_signal_args=[request],
            rpc_timeout=timedelta(seconds=CALL_S),
        )

    def _known(self, approval: str) -> ApprovalView | None:
        try:
            return self._ledger.approval(approval)
        except Exception as error:
            raise unreadable("the ledger", error) from None

    def _decided(self, view: ApprovalView) -> StepResult:
        proof = {"result": view.result.model_dump(mode="json")} if view.result else {}
        return StepResult(outcome=Outcome.ALREADY, reason=f"{view.id} is {view.state}", at=self._clock(), proof=proof)
