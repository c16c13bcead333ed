"""Who asks the same at the same time shares one signal; who comes too late is answered from the ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.testing import ActivityEnvironment

from activities import signatures as sig
from activities.asking import JOINS, AskActivities
from medevac.approvals.approval import ApprovalRequest, ApprovalState, Verdict, Vote, Waiter
from medevac.approvals.tally import cast as voted
from medevac.approvals.tally import result
from medevac.incident import Outcome, StepKey
from medevac.policy.plan import ApprovalNeed
from tests.unit.activities.house import House
from tests.votes import KEYS

NOW = datetime.now(UTC)


class OneQuestion:
    """A client under which a question's workflow takes one signal at a time."""

    def __init__(self) -> None:
        self.signals: list[list[str]] = []
        self.fails: Exception | None = None
        self.all_wait: Callable[[], bool] = lambda: True
        """The first signal takes as long as it takes the others to come and wait for their turn."""

    async def start_workflow(self, *_: Any, start_signal_args: list[list[sig.AskRequest]], **__: Any) -> None:
        for _ in range(150):
            if self.signals or self.all_wait():
                break
            await asyncio.sleep(0.01)
        if self.fails:
            raise self.fails
        self.signals.append([ask.request.waiter.incident for ask in start_signal_args[0]])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path)
    yield built
    built.close()


@pytest.fixture
async def loop() -> AsyncIterator[asyncio.AbstractEventLoop]:
    """As in a worker: activities run on threads, their client on a loop of another one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def request(incident: str, approval: str = "fleet-1") -> sig.AskRequest:
    asked = ApprovalRequest(
        id=approval,
        title="reboot many",
        need=ApprovalNeed(groups=("approver",), expires_s=600, why=("many",)),
        fleet_wide=True,
        requested_by="medevac",
        requested_at=NOW,
        expires_at=NOW + timedelta(minutes=10),
        policy_version=1,
        waiter=Waiter(
            incident=incident, workflow_id=f"node/c/{incident}", cluster="c", node=incident, plan_hash="p", text="t"
        ),
    )
    return sig.AskRequest(key=StepKey(incident=incident, step="ask"), request=asked)


def test_a_storm_joins_in_a_few_signals(house: House, loop: asyncio.AbstractEventLoop) -> None:
    client = OneQuestion()
    asking = AskActivities(house.ledger, cast(Client, client), loop, KEYS)
    incidents = [f"inc-{n}" for n in range(20)]
    client.all_wait = lambda: len(asking._joining._waiting) == len(incidents) - 1
    with ThreadPoolExecutor(len(incidents)) as threads:
        answers = list(threads.map(lambda name: ActivityEnvironment().run(asking.ask, request(name)), incidents))
    assert {answer.outcome for answer in answers} == {Outcome.DONE}
    assert sorted(name for signal in client.signals for name in signal) == sorted(incidents)
    assert len(client.signals) < len(incidents) / 2, "one signal for all who wait, not one each"
    assert max(map(len, client.signals)) <= JOINS


def test_a_question_that_cannot_be_joined_now_is_asked_again(house: House, loop: asyncio.AbstractEventLoop) -> None:
    client = OneQuestion()
    client.fails = TimeoutError()
    asking = AskActivities(house.ledger, cast(Client, client), loop, KEYS)
    with pytest.raises(ApplicationError, match="can't be joined now") as caught:
        ActivityEnvironment().run(asking.ask, request("inc-1"))
    assert not caught.value.non_retryable
    view = house.ledger.approval("fleet-1")
    assert view is not None, "people see it whether or not its workflow could be reached"


def test_who_comes_too_late_learns_the_answer_and_only_what_concerns_it(
    house: House, loop: asyncio.AbstractEventLoop
) -> None:
    client = OneQuestion()
    asking = AskActivities(house.ledger, cast(Client, client), loop, KEYS)
    ActivityEnvironment().run(asking.ask, request("inc-1"))
    view = house.ledger.approval("fleet-1")
    assert view is not None
    vote = Vote(
        approval="fleet-1", voter="ada", groups=("approver",), verdict=Verdict.APPROVE, shown_hash=view.shown_hash,
        via="api", at=NOW,
    )  # fmt: skip
    view, _ = voted(view, vote, NOW)
    decided = result(view, NOW)
    assert decided is not None
    client.fails = WorkflowAlreadyStartedError("approval/fleet-1", "approval")
    with pytest.raises(ApplicationError, match="isn't in the ledger yet"):
        ActivityEnvironment().run(asking.ask, request("inc-2"))
    house.ledger.upsert_approval(view.model_copy(update={"state": ApprovalState.APPROVED, "result": decided}))
    for incident, covers in (("inc-1", {"inc-1": "p"}), ("inc-2", {})):
        answer = ActivityEnvironment().run(asking.ask, request(incident))
        assert answer.outcome is Outcome.ALREADY
        told = answer.proof["result"]
        assert isinstance(told, dict)
        assert told["covers"] == covers
