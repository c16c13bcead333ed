"""What only a real server can show: heartbeats from a thread, a cancel that arrives, an approval that is joined."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.workflow import ActivityCancellationType

from tests.votes import KEYS, SIGNER

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from activities.asking import AskActivities
    from activities.evacuation import EvacuationActivities
    from activities.interceptor import LedgerInterceptor
    from activities.machines import MachineActivities
    from activities.marking import MarkActivities
    from activities.ports import Pod
    from activities.recording import RecordingActivities
    from medevac.approvals.approval import ApprovalRequest, ApprovalResult, ApprovalState, Verdict, Vote, Waiter
    from medevac.incident import Outcome, StepKey, StepResult
    from medevac.policy.plan import ApprovalNeed, Drain
    from simulation.hazards import Effect
    from tests.unit.activities.house import CLUSTER, INCIDENT, House
    from worker.connection import MedevacPlugin
    from workflows.approval import ApprovalWorkflow

T = TypeVar("T")

QUEUE = sig.Queue.MAIN.value
PATIENCE_S = 120.0
"""A wait ends with what it waits for; this only ends a test that would hang."""
pytestmark = pytest.mark.asyncio(loop_scope="module")


@workflow.defn
class OneStep:
    """Runs one activity, and says how it ended also when it was cancelled."""

    @workflow.run
    async def run(self, name: str, request: dict[str, Any], heartbeat_s: float, attempts: int) -> StepResult:
        handle = workflow.start_activity(
            name,
            request,
            result_type=StepResult,
            heartbeat_timeout=timedelta(seconds=heartbeat_s),
            start_to_close_timeout=timedelta(seconds=300),
            schedule_to_close_timeout=timedelta(seconds=300),
            retry_policy=RetryPolicy(maximum_attempts=attempts, initial_interval=timedelta(seconds=0.1)),
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.wait_condition(lambda: handle.done() or self.stop)
        if not handle.done():
            handle.cancel()
        result: StepResult = await handle
        return result

    @workflow.init
    def __init__(self, name: str, request: dict[str, Any], heartbeat_s: float, attempts: int) -> None:
        self.stop = False

    @workflow.signal
    def cancel(self) -> None:
        self.stop = True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[WorkflowEnvironment]:
    env = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_startup_timeout=timedelta(seconds=240),
        plugins=[MedevacPlugin()],
    )
    async with env:
        yield env


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    # A ledger that answers late on a busy machine is none of these tests' matter.
    monkeypatch.setattr("activities.interceptor.PROTECTIVE_BUDGET_S", PATIENCE_S)
    built = House(tmp_path)
    yield built
    built.close()


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: WorkflowEnvironment, house: House) -> AsyncIterator[Client]:
    machines = MachineActivities(house.registry, house.look, house.intents, house.ledger)
    marks = MarkActivities(house.registry, house.guard, house.census, house.bounded)
    worker = Worker(
        server.client,
        task_queue=QUEUE,
        workflows=[OneStep, ApprovalWorkflow],
        activities=[
            EvacuationActivities(house.registry, house.look).evacuate,
            machines.act,
            marks.lift,
            RecordingActivities(house.ledger).record,
            AskActivities(house.ledger, server.client, asyncio.get_running_loop(), KEYS).ask,
        ],
        activity_executor=ThreadPoolExecutor(8),
        max_concurrent_activities=8,
        interceptors=[LedgerInterceptor(house.ledger, house.bounded)],
        max_heartbeat_throttle_interval=timedelta(seconds=0.2),
        default_heartbeat_throttle_interval=timedelta(seconds=0.2),
    )
    async with worker:
        yield server.client


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What `look` finds, once it finds something."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await look()) is None:  # noqa: ASYNC110  another process changes what is looked at
            await asyncio.sleep(0.05)
        return found


async def start(
    client: Client, name: str, request: Any, *, heartbeat_s: float = 30.0, attempts: int = 0
) -> WorkflowHandle[OneStep, StepResult]:
    args = [name, request.model_dump(mode="json"), heartbeat_s, attempts]
    return await client.start_workflow(OneStep.run, args=args, id=str(uuid.uuid4()), task_queue=QUEUE)


async def test_a_cancelled_drain_answers_and_its_line_says_so(client: Client, house: House) -> None:
    node = house.marked(house.busy_node())
    with house.world.write() as moment:
        moment.run("UPDATE jobs SET cooperative = 0")
    handle = await start(client, sig.EVACUATE.name, house.evacuate_request(node, Drain.JOB_END, 3600))

    async def draining() -> bool | None:
        view = house.ledger.incident(INCIDENT)
        return True if view and view.step == sig.EVACUATE.name else None

    await until(draining)
    await handle.signal(OneStep.cancel)
    result = await asyncio.wait_for(handle.result(), PATIENCE_S)
    assert result.outcome is Outcome.CANCELLED
    assert not result.unwritten
    (line,) = [line for line in house.ledger.lines(INCIDENT) if line.kind == "step"]
    assert line.text.startswith("evacuate: cancelled")


async def test_a_slow_call_is_no_death(client: Client, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that blocks for longer than the heartbeat time-out doesn't make a second attempt.

    The time-out is so long that a machine which stands still for some seconds isn't taken for a death either.
    """
    heartbeat_s = 12.0
    node = house.marked(house.busy_node())
    cluster, blocked, calls = house.registry.cluster(CLUSTER), threading.Event(), []
    pods = cluster.pods

    def slow(name: str) -> list[Pod]:
        calls.append(name)
        if len(calls) == 1:
            blocked.wait(PATIENCE_S)
        return pods(name)

    monkeypatch.setattr(cluster, "pods", slow)
    request = house.evacuate_request(node, Drain.NOW, 120)
    handle = await start(client, sig.EVACUATE.name, request, heartbeat_s=heartbeat_s, attempts=1)

    async def heard_for_longer() -> bool | None:
        """By the server's own clock; or it has given up on it."""
        said = (await handle.describe()).raw_description
        begun = [(one.last_started_time, one.last_heartbeat_time) for one in said.pending_activities]
        if not begun and calls:
            return True
        spans = [(beat.ToDatetime() - start.ToDatetime()).total_seconds() for start, beat in begun]
        return True if calls and max(spans) > heartbeat_s else None

    await until(heard_for_longer)
    assert calls == [node.name], "the call still blocks"
    blocked.set()
    assert (await asyncio.wait_for(handle.result(), PATIENCE_S)).outcome is Outcome.DONE


async def test_a_freeze_holds_the_drain_and_a_thaw_lets_it_end(client: Client, house: House) -> None:
    node = house.marked(house.busy_node())
    house.fences.freeze("all", "ada", "wait")
    handle = await start(client, sig.EVACUATE.name, house.evacuate_request(node, Drain.NOW, 120))

    async def held() -> str | None:
        pending = (await handle.describe()).raw_description.pending_activities
        said = pending[0].last_failure.message if pending else ""
        return said if "frozen" in said else None

    await until(held)
    assert [e.verb for e in house.world.effects(tag=INCIDENT)] == [Effect.MARK]
    house.fences.thaw("all", "ada")
    house.fences.thaw("all", "bob")
    assert (await asyncio.wait_for(handle.result(), PATIENCE_S)).outcome is Outcome.DONE


async def test_no_secret_reaches_the_history(client: Client, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def leak(*_: object) -> str:
        raise RuntimeError("login failed: password=hunter2") from OSError("Bearer hunter2hunter2")

    monkeypatch.setattr(house.registry.cluster(CLUSTER), "lift", leak)
    request = sig.LiftRequest(key=StepKey(incident=INCIDENT, step="lift"), cluster=CLUSTER, node="n", incident=INCIDENT)
    handle = await start(client, sig.LIFT.name, request, attempts=1)
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    failed = caught.value.cause
    assert isinstance(failed, ActivityError)
    assert isinstance(failed.cause, ApplicationError)
    assert "login failed" in failed.cause.message
    history = json.dumps(json.loads((await handle.fetch_history()).to_json()))
    assert "hunter2" not in history


def ask_request(incident: str, approval: str) -> sig.AskRequest:
    now = datetime.now(UTC)
    waiter = Waiter(
        incident=incident, workflow_id=f"node/{CLUSTER}/{incident}", cluster=CLUSTER, node=incident, plan_hash="abc",
        text="reboot",
    )  # fmt: skip
    request = ApprovalRequest(
        id=approval,
        title="reboot two nodes",
        need=ApprovalNeed(groups=("approver",), threshold=1, expires_s=600, why=("test",)),
        requested_by="medevac",
        requested_at=now,
        expires_at=now + timedelta(minutes=10),
        policy_version=1,
        waiter=waiter,
    )
    return sig.AskRequest(key=StepKey(incident=incident, step="ask"), request=request, timing=sig.TEST)


async def test_a_question_is_pending_at_once_shared_and_answered_from_the_ledger(client: Client, house: House) -> None:
    approval = f"fleet-{uuid.uuid4().hex[:8]}"
    for incident in ("inc-1", "inc-2", "inc-1"):
        handle = await start(client, sig.ASK.name, ask_request(incident, approval))
        assert (await handle.result()).outcome.ok
    view = house.ledger.approval(approval)
    assert view is not None
    assert view.state is ApprovalState.PENDING
    asked = client.get_workflow_handle(f"approval/{approval}")

    async def both() -> dict[str, Any] | None:
        shown: dict[str, Any] = await asked.query("shown")
        return shown if shown and len(shown["waiters"]) == 2 else None

    shown = await until(both)
    assert [waiter["incident"] for waiter in shown["waiters"]] == ["inc-1", "inc-2"]
    vote = SIGNER.sign(Vote(
        approval=approval, voter="ada", groups=("approver",), verdict=Verdict.APPROVE, shown_hash=shown["shown_hash"],
        via="cli", at=datetime.now(UTC),
    ))  # fmt: skip
    await asked.execute_update("decide", vote, id=f"{approval}:ada")

    async def decided() -> bool | None:
        view = house.ledger.approval(approval)
        return True if view and view.state is ApprovalState.APPROVED else None

    await until(decided)
    late = await (await start(client, sig.ASK.name, ask_request("inc-3", approval))).result()
    assert late.outcome is Outcome.ALREADY
    result = ApprovalResult.model_validate(late.proof["result"])
    assert (result.state, result.by) == (ApprovalState.APPROVED, ("ada",))
