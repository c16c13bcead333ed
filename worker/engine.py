"""What the gateway and the sweep say to workflows, with time-outs and without more in flight than Temporal allows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakValueDictionary

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.signatures import CASE, CaseInput, Queue, Timing, case_workflow_id
from medevac.approvals.approval import ApprovalRequest, Vote
from medevac.campaigns.progress import CampaignState
from medevac.events.event import HealthEvent
from medevac.model import Model
from workflows.messages import (
    CAMPAIGN,
    NODE,
    CampaignInput,
    NodeAnswer,
    NodeInput,
    approval_workflow_id,
    campaign_workflow_id,
    node_workflow_id,
)

UPDATES_AT_ONCE = 8
"""Per workflow. Temporal refuses the eleventh, and retries of refused ones starve the rest."""
UPDATE_TIMEOUT = timedelta(seconds=15)
DESCRIBE_TIMEOUT = timedelta(seconds=5)


class Unavailable(Exception):
    """Temporal did not answer in time. Nothing is known to have happened; the same call may be made again."""


class NotRunning(Exception):
    """No such workflow runs (any more)."""


class Declined(Exception):
    """The workflow said no; the message is its reason."""


class Engine(Protocol):
    """The port that the gateway, the sweep and their tests share."""

    async def report(self, cluster: str, node: str, event: HealthEvent) -> None:
        """Returns once Temporal holds the event durably. Raises `Unavailable`."""
        ...

    async def join(self, cluster: str, node: str, event: HealthEvent) -> bool:
        """Tells the incident that runs on the node, opens none; False when none runs. Raises `Unavailable`."""
        ...

    async def tell(self, workflow_id: str, update: str, argument: Model, update_id: str) -> str:
        """Raises `Unavailable`, `NotRunning`, `Declined`."""
        ...

    async def vote(self, vote: Vote) -> str: ...

    async def start_campaign(
        self, campaign: str, question: ApprovalRequest | None, state: CampaignState = CampaignState.ASKED
    ) -> None:
        """Started twice it is one; one that was asked for goes on from `state`. Raises `Unavailable`."""
        ...

    async def follow_case(self, system: str, case: str) -> None:
        """Starts the case's workflow, or wakes it. Raises `Unavailable`."""
        ...

    async def wake(self, workflow_id: str) -> None:
        """Raises `NotRunning`, `Unavailable`."""
        ...

    async def running(self, workflow_id: str) -> bool:
        """Raises `Unavailable`."""
        ...

    async def ping(self) -> None:
        """Raises `Unavailable`."""
        ...


class TemporalEngine:
    def __init__(self, client: Client, timing: Timing, signal_timeout_s: float = 3.0) -> None:
        self._client = client
        self._timing = timing
        self._signal_timeout = timedelta(seconds=signal_timeout_s)
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def report(self, cluster: str, node: str, event: HealthEvent) -> None:
        given = NodeInput(cluster=cluster, node=node, timing=self._timing)
        try:
            async with asyncio.timeout(self._signal_timeout.total_seconds()):
                await self._client.start_workflow(
                    NODE,
                    given,
                    id=node_workflow_id(cluster, node),
                    task_queue=Queue.MAIN,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    start_signal="report",
                    start_signal_args=[event],
                    static_summary=f"{node}: {event.fault or event.kind}",
                    rpc_timeout=self._signal_timeout,
                )
        except (RPCError, TimeoutError, RuntimeError) as error:
            raise Unavailable(_short(error)) from error

    async def tell(self, workflow_id: str, update: str, argument: Model, update_id: str) -> str:
        answer: NodeAnswer = await self._update(workflow_id, update, argument, update_id, NodeAnswer)
        return answer.text

    async def vote(self, vote: Vote) -> str:
        # With its time: a list may change and be what it was again, and who was voided then votes on it once more.
        update_id = f"{vote.approval}:{vote.voter}:{vote.verdict}:{vote.shown_hash[:16]}:{vote.at.isoformat()}"
        workflow_id = approval_workflow_id(vote.approval)
        answer: str = await self._update(workflow_id, "decide", vote, update_id, str)
        return answer

    async def join(self, cluster: str, node: str, event: HealthEvent) -> bool:
        try:
            await self._signal(node_workflow_id(cluster, node), "report", event)
        except NotRunning:
            return False
        return True

    async def start_campaign(
        self, campaign: str, question: ApprovalRequest | None, state: CampaignState = CampaignState.ASKED
    ) -> None:
        try:
            await self._client.start_workflow(
                CAMPAIGN,
                CampaignInput(id=campaign, timing=self._timing, question=question, state=state),
                id=campaign_workflow_id(campaign),
                task_queue=Queue.MAIN,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=question.title if question else f"campaign {campaign}",
                rpc_timeout=self._signal_timeout,
            )
        except (RPCError, TimeoutError, RuntimeError) as error:
            raise Unavailable(_short(error)) from error

    async def follow_case(self, system: str, case: str) -> None:
        try:
            await self._client.start_workflow(
                CASE,
                CaseInput(id=case, system=system, timing=self._timing),
                id=case_workflow_id(system, case),
                task_queue=Queue.MAIN,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal="wake",
                static_summary=case,
                rpc_timeout=self._signal_timeout,
            )
        except (RPCError, TimeoutError, RuntimeError) as error:
            raise Unavailable(_short(error)) from error

    async def wake(self, workflow_id: str) -> None:
        await self._signal(workflow_id, "wake")

    async def _signal(self, workflow_id: str, name: str, *arguments: Model) -> None:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            async with asyncio.timeout(self._signal_timeout.total_seconds()):
                await handle.signal(name, args=arguments, rpc_timeout=self._signal_timeout)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise NotRunning(workflow_id) from error
            raise Unavailable(_short(error)) from error
        except (TimeoutError, RuntimeError) as error:
            raise Unavailable(_short(error)) from error

    async def running(self, workflow_id: str) -> bool:
        try:
            described = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=DESCRIBE_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise Unavailable(_short(error)) from error
        except RuntimeError as error:
            raise Unavailable(_short(error)) from error
        return described.status == WorkflowExecutionStatus.RUNNING

    async def ping(self) -> None:
        try:
            await self._client.service_client.check_health(timeout=DESCRIBE_TIMEOUT)
        except (RPCError, RuntimeError) as error:
            raise Unavailable(_short(error)) from error

    async def _update(self, workflow_id: str, name: str, argument: Any, update_id: str, gives: type[Any]) -> Any:
        slot = self._slots.setdefault(workflow_id, asyncio.Semaphore(UPDATES_AT_ONCE))
        try:
            async with asyncio.timeout(UPDATE_TIMEOUT.total_seconds()), slot:
                return await self._client.get_workflow_handle(workflow_id).execute_update(
                    name, argument, id=update_id, result_type=gives, rpc_timeout=UPDATE_TIMEOUT
                )
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            raise Declined(getattr(cause, "message", "") or str(cause)) from error
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise NotRunning(workflow_id) from error
            raise Unavailable(_short(error)) from error
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError, RuntimeError) as error:
            raise Unavailable(_short(error)) from error


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
