"""Workers that are told to stop, that stand still and come back, or that die while people vote."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from medevac.approvals.approval import ApprovalState, ApprovalView
from simulation.layout import TEST, Layout
from simulation.verdict import table as verdict_table
from tests.acceptance import accounting
from tests.acceptance.matrix import ASKED, BEFORE, DISPOSED, REBOOTED, REPLACED, TICKETED, Cell, Flow
from tests.acceptance.stack import POLICY, Running, stack

FLEET = Layout(nodes=200, serve_share=0.0, spares=0, durations=TEST)
SLOW_PODS = FLEET.model_copy(update={"durations": TEST.model_copy(update={"pod_exit": 5.0})})
"""Pods take all of their grace."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def fails(up: Running, flow: Flow) -> str:
    """The fault of a flow on another node, and its name."""
    node = up.pick(flow.provider)
    up.world.inject(node.name, flow.fault, cure=flow.cure)
    await up.report(node, flow.fault)
    return node.name


async def all_well(up: Running, nodes: dict[str, Flow]) -> None:
    settled = await up.settled(nodes)
    await up.until(lambda: not up.stores.guard.leases(), "all leases are given back")
    verdict = up.verdict()
    problems = [problem for name, flow in nodes.items() for problem in accounting.twice(up, settled[name], flow.verbs)]
    problems += [
        f"{name} ended {view.end or view.state}, not {nodes[name].ends}"
        for name, view in settled.items()
        if (view.end or view.state) != nodes[name].ends
    ]
    problems += [*await accounting.lost_lines(up), *accounting.left_behind(up)]
    if not verdict.well:
        problems.append(verdict_table(verdict))
    assert not problems, "\n".join(problems)


def running(up: Running, step: str) -> dict[int, list[str]]:
    """Processes in which the step runs now, with its workflows."""
    found: dict[tuple[int, str, str], None] = {}
    for note in up.steps():
        if note["type"] == step:
            which = note["pid"], note["run"], note["workflow"]
            if note["what"] == "begin":
                found[which] = None
            else:
                found.pop(which, None)
    by_pid: dict[int, list[str]] = {}
    for pid, _, workflow in found:
        by_pid.setdefault(pid, []).append(workflow)
    return by_pid


async def test_a_worker_that_is_told_to_stop_hands_its_drains_over(tmp_path: Path) -> None:
    async with stack(tmp_path, layout=SLOW_PODS, workers=2) as up:
        nodes = {await fails(up, REBOOTED): REBOOTED for _ in range(3)}

        def draining() -> int:
            """A process with a drain that has evicted and waits for termination."""
            evicted = {e.pid for e in up.world.effects() if e.verb.value == "evict"}
            return next((pid for pid in running(up, "evacuate") if pid in evicted), 0)

        pid = await up.until(draining, "a drain is under way")
        up.kept_up = False
        os.kill(pid, signal.SIGTERM)
        assert await up.worker_of(pid).wait() == 0
        vanished = accounting.resumptions(up, {pid: 0.0})
        assert not vanished, f"each step in it ended, and said that another worker goes on: {vanished}"
        up.kept_up = True
        await all_well(up, nodes)


@pytest.mark.timeout(1_800)
async def test_a_worker_that_stood_still_does_nothing_twice(tmp_path: Path) -> None:
    """It stops right before each call for longer than its life sign may be away, and goes on when another has taken
    over."""
    cells = [
        (REBOOTED, Cell("mark", BEFORE)),
        (REBOOTED, Cell("evict", BEFORE)),
        (REBOOTED, Cell("reboot", BEFORE)),
        (REBOOTED, Cell("check", BEFORE)),
        (REBOOTED, Cell("lift", BEFORE)),
        (REPLACED, Cell("request", BEFORE)),
        (DISPOSED, Cell("terminate", BEFORE)),
        (TICKETED, Cell("ticket", BEFORE)),
        (TICKETED, Cell("chat", BEFORE)),
    ]
    nodes: dict[str, Flow] = {}
    async with stack(tmp_path, layout=FLEET, workers=2) as up, up.everyone_agrees():
        planned: list[dict[str, str]] = []
        for flow, cell in cells:
            node = up.pick(flow.provider)
            nodes[node.name] = flow
            name = None if cell.effect in ("ticket", "chat") else node.name
            planned.append({**cell.on(name), "signal": "SIGSTOP"})
            up.plan_kills(planned)
            up.world.inject(node.name, flow.fault, cure=flow.cure)
            await up.report(node, flow.fault)
            index = len(planned) - 1
            await up.until(lambda index=index: index in up.reached(), f"a worker stands still at {cell}")  # type: ignore[misc]
            await up.until(_taken_over(up, index), f"another has taken over at {cell}")
            pid, _ = up.hit(index)
            os.kill(pid, signal.SIGCONT)
        await all_well(up, nodes)
        assert [worker.restarts for worker in up.workers] == [0, 0], "the processes that stood still lived on"


def _taken_over(up: Running, index: int) -> Callable[[], bool]:
    """Each step that the stopped process had begun has begun again in another."""

    def taken_over() -> bool:
        pid, at = up.hit(index)
        resumed = accounting.resumptions(up, {pid: at})
        return bool(resumed) and all(one.after_s is not None for one in resumed)

    return taken_over


async def says_yes(up: Running, who: str, approval: ApprovalView) -> str:
    """Until it is answered: where the workers come back late, the vote may have decided before its voter is told so."""
    while (answer := await up.vote(who, approval.id, approval.shown_hash)).status_code == 503:
        pass
    return "taken" if answer.status_code == 200 else answer.text


async def test_votes_between_kills_stand_once(tmp_path: Path) -> None:
    """Two people must agree; all workers die before, between and after their votes, and each vote is sent twice."""
    policy = tmp_path / "policy.yaml"
    two = "who_may:\n  reboot: {groups: [operator, approver], votes: 2}\n\n"
    policy.write_text(POLICY.read_text().replace("limits:\n", f"{two}limits:\n", 1))
    async with stack(tmp_path, layout=FLEET, policy=policy, workers=2) as up:
        # The ledger's own writes of the approval die too, before and after.
        up.plan_kills([{"effect": "record", "point": point, "node": ""} for point in ("begin", "end")])
        nodes = {await fails(up, ASKED): ASKED}
        approval = await up.until(lambda: next(iter(up.stores.ledger.approvals()), None), "the question is asked")
        await up.until(lambda: up.reached() == {0, 1}, "workers died while the approval was written")
        for who in ("ada", "grace"):
            await up.kill_workers()
            votes = [asyncio.create_task(says_yes(up, who, approval)) for _ in range(2)]
            await asyncio.sleep(0.5)  # so that the vote is with Temporal before anyone could answer it
            assert not any(vote.done() for vote in votes), "nobody is there to answer"
            await up.start_workers()
            assert [await vote for vote in votes] == ["taken", "taken"]
        await up.kill_workers()
        await up.start_workers()
        await all_well(up, nodes)
        view: ApprovalView | None = up.stores.ledger.approval(approval.id)
        assert view is not None
        assert view.state is ApprovalState.APPROVED
        assert sorted(vote.voter for vote in view.votes) == ["ada", "grace"]
        assert sorted(view.result.by if view.result else ()) == ["ada", "grace"]
        for verdict, status, words in (("approve", 200, ""), ("reject", 409, "too late")):
            while (late := await up.vote("ada", approval.id, approval.shown_hash, verdict)).status_code == 503:
                pass
            assert (late.status_code, words in late.text) == (status, True), late.text
        assert up.stores.ledger.approval(approval.id) == view, "who repeats a yes is answered, and nothing else changes"
