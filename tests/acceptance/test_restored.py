"""An old copy of Temporal's store under a world that has moved on: nothing is destroyed by what it remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from activities.ports import Verb
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, State
from simulation.accounts import DESTRUCTIVE
from simulation.hazards import Effect, Manner
from simulation.layout import IRONWORKS, SKYLINE, TEST, Layout
from tests.acceptance.stack import POLICY, Running, stack, utcnow

FLEET = Layout(nodes=200, serve_share=0.0, spares=0, durations=TEST)
EXPIRES_S = 90
"""What the old store asks people again is answered by time alone, so it can't be long."""
PATIENT_S = 900
"""Longer than any run: what is throttled and who waits for a checkpoint wait until the copy has been made."""


@pytest.mark.slow
@pytest.mark.timeout(1_200)
async def test_an_old_store_destroys_nothing(tmp_path: Path) -> None:
    """Copied while incidents wait for people, drain and retry a call; restored when all of them have long ended."""
    policy = tmp_path / "policy.yaml"
    text = POLICY.read_text().replace("approval_expires: 30m", f"approval_expires: {EXPIRES_S}s")
    text = text.replace("checkpoint: 20s", f"checkpoint: {PATIENT_S}s")
    policy.write_text(text.replace("deadline: 120s", f"deadline: {PATIENT_S}s"))
    async with stack(tmp_path, layout=FLEET, policy=policy, workers=1) as up:
        asked, mended, throttled = (up.pick(IRONWORKS) for _ in range(3))
        draining, replaced = await _with_patient_jobs(up, IRONWORKS), up.pick(SKYLINE)
        up.world.script(Verb.REBOOT, Manner.THROTTLE, node=throttled.name, times=None, retry_after_s=2.0)
        up.world.script(Verb.REQUEST, Manner.THROTTLE, node=replaced.name, times=None, retry_after_s=2.0)
        faults = ("xid/79", "xid/79", "xid/119", "xid/109", "xid/95")
        nodes = (asked, mended, throttled, draining, replaced)
        for node, fault in zip(nodes, faults, strict=True):
            up.world.inject(node.name, fault, cure=() if node is replaced else (Effect.REBOOT,))
        await asyncio.gather(*(up.report(node, fault) for node, fault in zip(nodes[2:], faults[2:], strict=True)))
        await up.until(lambda: up.world.effects(node=throttled.name, verb=Effect.REBOOT), "the reboot is throttled")
        await up.until(lambda: up.world.effects(node=replaced.name, verb=Effect.REQUEST), "the request is throttled")
        await up.until(lambda: up.world.effects(node=draining.name, verb=Effect.NOTICE), "the drain has begun")
        # Last, so that nothing else is waited for between the questions and their answers.
        await asyncio.gather(*(up.report(node, fault) for node, fault in zip(nodes[:2], faults[:2], strict=True)))
        await up.until(lambda: _state(up, asked) is State.WAITING_APPROVAL, "the first question is asked")
        await up.until(lambda: _state(up, mended) is State.WAITING_APPROVAL, "the second question is asked")
        copied_at = utcnow()
        await asyncio.to_thread(up.copy_temporal, tmp_path / "old.sqlite")
        held = {lease.node for lease in up.stores.guard.leases()}
        assert held == {node.name for node in nodes}, "all hold their leases, none has been acted on"
        assert not [e for e in up.world.effects() if e.applied and e.verb in DESTRUCTIVE and e.node == draining.name]

        await _moves_on(up, asked, mended, nodes)
        before = {node.name: up.incident(node.name) for node in nodes}
        assert {view.end for view in before.values() if view} <= {End.RETURNED, End.REPLACED}
        lines = {view.id: up.stores.ledger.lines(view.id) for view in before.values() if view}
        assert up.verdict().well

        await up.kill_workers()
        await up.temporal.stop()
        up.restore_temporal(tmp_path / "old.sqlite")
        restored_at = utcnow()
        await up.start_temporal()
        await up.start_workers()
        client = await up.client()
        for node in nodes:
            await _over(up, client.get_workflow_handle(f"node/{node.cluster}/{node.name}"))

        again = [e for e in up.world.effects() if e.at > restored_at and e.verb in DESTRUCTIVE | {Effect.REQUEST}]
        assert not again, f"destroyed by what an old store remembered: {again}"
        assert not [e for e in up.world.effects() if e.at > restored_at and e.verb is Effect.MARK and e.applied]
        for name, view in before.items():
            now = up.incident(name)
            assert view is not None
            assert now is not None
            assert (now.id, now.end, now.state, now.node) == (view.id, view.end, view.state, view.node)
            kept = up.stores.ledger.lines(view.id)
            assert [line.text for line in lines[view.id]] == [
                line.text for line in kept if line.at < restored_at and line.key in {old.key for old in lines[view.id]}
            ], "a line of what really happened is gone"
        assert not up.stores.guard.leases()
        assert up.verdict().well
        assert copied_at < restored_at


async def _with_patient_jobs(up: Running, provider: str) -> Node:
    """A node all of whose jobs can save and don't yet, nor speak the checkpoint protocol."""
    with up.world.write() as m:
        m.run("UPDATE jobs SET checkpoint_every = ? WHERE checkpoint_every IS NOT NULL", 1e9)
        rows = m.all(
            "SELECT x.node FROM pods p JOIN machines x ON x.id = p.machine JOIN jobs j ON j.name = p.workload"
            " WHERE p.tier = 'workload' GROUP BY x.node HAVING MAX(j.cooperative) = 0 AND MIN(j.checkpoint_every) > 0"
        )
    names = {row["node"] for row in rows}
    while (node := up.pick(provider)).name not in names:
        pass
    return node


async def _moves_on(up: Running, asked: Node, mended: Node, nodes: Sequence[Node]) -> None:
    """One question is answered yes, the other no and the node mended by hand; the others end by themselves, since
    nothing is throttled any more and jobs save."""
    for node, verdict in ((asked, "approve"), (mended, "reject")):
        view = up.incident(node.name)
        assert view is not None
        waiting = [a for a in up.stores.ledger.approvals() if any(w.incident == view.id for w in a.waiters)]
        path = f"/v1/approvals/{waiting[0].id}/votes"
        answer = await up.order(path, verdict=verdict, shown_hash=waiting[0].shown_hash, reason="test")
        assert answer.status_code == 200, answer.text
    with up.world.write() as m:
        m.run("UPDATE scripts SET left = 0")
        m.run("UPDATE jobs SET checkpoint_every = 1 WHERE checkpoint_every IS NOT NULL")
    view = await up.until(
        lambda: (found := up.incident(mended.name)) and found.state is State.HANDED_OVER and found, "a person has it"
    )
    up.world.repair(mended.name)
    answer = await up.order(f"/v1/incidents/{view.id}/confirm-repaired", reason="mended by hand")
    assert answer.status_code == 200, answer.text
    ended = lambda: all((found := up.incident(node.name)) and found.end for node in nodes)  # noqa: E731
    await up.until(ended, "all incidents have ended")


def _state(up: Running, node: Node) -> State | None:
    view: IncidentView | None = up.incident(node.name)
    return view.state if view else None


async def _over(up: Running, handle: WorkflowHandle[Any, Any]) -> None:
    async def closed() -> bool:
        return (await handle.describe()).close_time is not None

    await up.until(closed, f"the incident that {handle.id} remembered is over")
