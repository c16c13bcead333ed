"""Recorded histories replay: a changed workflow that would break open incidents is found before it is deployed."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.replay.record import CASES, HISTORIES
from worker.connection import MedevacPlugin
from workflows.approval import ApprovalWorkflow
from workflows.campaign import CampaignWorkflow
from workflows.case import CaseWorkflow
from workflows.messages import NodeInput
from workflows.node import NodeWorkflow

RECORDED = sorted(HISTORIES.glob("*.json"))


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))


def test_each_recorded_case_has_its_history() -> None:
    assert {path.name.partition(".")[0] for path in RECORDED} == set(CASES)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_replays(path: Path) -> None:
    replayer = Replayer(
        workflows=[NodeWorkflow, ApprovalWorkflow, CampaignWorkflow, CaseWorkflow], plugins=[MedevacPlugin()]
    )
    await replayer.replay_workflow(history(path))


@workflow.defn(name="node")
class Changed:
    """A node workflow whose first command is another one."""

    @workflow.run
    async def run(self, given: NodeInput) -> str:
        await workflow.sleep(datetime.timedelta(seconds=1))
        return given.node

    @workflow.signal
    def report(self, event: object) -> None: ...


async def test_a_changed_workflow_is_found() -> None:
    replayer = Replayer(workflows=[Changed], plugins=[MedevacPlugin()])
    with pytest.raises(workflow.NondeterminismError):
        await replayer.replay_workflow(history(HISTORIES / "reboot.node.json"))
