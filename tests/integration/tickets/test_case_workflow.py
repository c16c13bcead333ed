"""A case on a real Temporal server, with a worker that dies right after each effect, and many continue-as-news."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from activities.signatures import TEST, case_workflow_id
from medevac.approvals.approval import Verdict, Vote
from medevac.cases.case import CaseState
from medevac.incident import End, Outcome, State
from medevac.policy.loading import preset
from tests.integration.tickets import worker_process
from tests.unit.activities.casehouse import CaseHouse
from tests.votes import KEYS, SIGNER
from worker.connection import MedevacPlugin
from worker.engine import TemporalEngine
from worker.gateway.votes import NOT_YET

ROOT = Path(__file__).parents[3]
KILLED = -9
PATIENCE_S = 180.0
"""A wait ends with what it waits for; this only ends a test that would hang."""


class Workers:
    """One worker process at a time; one that was killed is followed by another."""

    def __init__(self, folder: Path, address: str) -> None:
        self._command = [sys.executable, worker_process.__file__, str(folder), address, KEYS[0]]
        self._log = (folder / "worker.log").open("ab")
        self.killed = 0
        self._start()

    def _start(self) -> None:
        env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, env=env)

    def watch(self) -> None:
        code = self._process.poll()
        if code is None:
            return
        assert code == KILLED, Path(self._log.name).read_text()[-3_000:]
        self.killed += 1
        self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed += 1
        self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    env = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_startup_timeout=timedelta(seconds=240),
        dev_server_extra_args=["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=40"],
        plugins=[MedevacPlugin()],
    )
    async with env:
        yield env.client


@pytest.mark.timeout(1_200)
async def test_weeks_of_a_case(client: Client, tmp_path: Path) -> None:
    house = CaseHouse(tmp_path)
    house.activate(preset("demo") + "\ntickets: {look_every: 0.3s}\n")
    workers = Workers(tmp_path, client.service_client.config.target_host)
    engine = TemporalEngine(client, TEST, signal_timeout_s=PATIENCE_S)
    loop = asyncio.get_running_loop()
    house.ticketing._follow = lambda case: asyncio.run_coroutine_threadsafe(
        engine.follow_case(case.system, case.id), loop
    ).result(PATIENCE_S)

    async def until(look: Callable[[], Any], what: str) -> Any:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (found := look()):
                    workers.watch()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what}; {(tmp_path / 'worker.log').read_text()[-3_000:]}") from None
        return found

    try:
        node, incident = house.sick()
        assert (await asyncio.to_thread(house.ask, incident)).outcome is Outcome.BLOCKED
        case = house.case(incident)

        # People's yes, asked once, though the worker dies after the ticket was opened.
        view = await until(lambda: house.ledger.approval(f"first-{case.id}"), "it is asked")
        (house.desk.folder / "kill-open").touch()
        vote = Vote(
            approval=view.id, voter="ada", groups=("approver",), verdict=Verdict.APPROVE,
            shown_hash=view.shown_hash, via="api", at=datetime.now(UTC),
        )  # fmt: skip
        await until_voted(engine, SIGNER.sign(vote))
        await until(lambda: house.case(incident).state is CaseState.WAITING, "the ticket is open")
        assert workers.killed == 1
        assert (await asyncio.to_thread(house.ask, incident)).proof["ticket"] == "T-1"

        # A second incident joins; its comment is sent once, though the worker dies after it.
        (house.desk.folder / "kill-comment").touch()
        house.moves(node, "inc-again", 1, fault="xid/48")
        await asyncio.to_thread(house.ask, "inc-again")
        await until(lambda: workers.killed == 2 and not house.case(incident).comments, "the comment is sent")
        assert len(house.desk.comments("T-1")) == 1

        # A reply is shown with its words.
        house.desk.answer("T-1", "Has NOT been replaced yet.")
        await until(lambda: any("NOT been replaced" in text for text in house.world.messages()), "it is shown")

        # The worker dies at any moment; runs follow each other.
        workers.kill()
        house.other_machine(node)
        await until(lambda: (tmp_path / "confirmed").exists(), "the incident is asked to verify")

        # Proved: the ticket is closed once, though the worker dies after it.
        (house.desk.folder / "kill-close").touch()
        for one in (incident, "inc-again"):
            house.moves(node, one, 5, state=State.ENDED, end=End.RETURNED)
        await until(lambda: house.case(incident).state is CaseState.CLOSED, "it is closed")
        assert workers.killed == 4

        handle = client.get_workflow_handle(case_workflow_id(case.system, case.id))

        async def ended() -> bool:
            return (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED

        async with asyncio.timeout(PATIENCE_S):
            while not await ended():
                workers.watch()
                await asyncio.sleep(0.1)
        assert house.desk.opened() == 1
        assert house.desk.closed("T-1")
        told = house.world.messages()
        assert len(told) == len(set(told)), "nothing is said twice"
        runs = [run async for run in client.list_workflows(f'WorkflowId = "{handle.id}"')]
        assert len(runs) > 1, "it went through continue-as-new"
    finally:
        workers.close()
        house.close()


async def until_voted(engine: TemporalEngine, vote: Vote) -> None:
    from worker.engine import Declined, NotRunning, Unavailable

    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await engine.vote(vote)
                return
            except (NotRunning, Unavailable):
                await asyncio.sleep(0.1)
            except Declined as error:
                # The ledger has the question a moment before its workflow does.
                if not str(error).endswith(NOT_YET):
                    raise
                await asyncio.sleep(0.1)
