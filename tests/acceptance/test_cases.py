"""A machine goes back to its maker on the real stack: one ticket, held out, verified when another one stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from medevac.cases.case import CaseState
from medevac.incident import End, State
from simulation.layout import IRONWORKS
from tests.acceptance.stack import PLAIN, POLICY, SMALL, stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def test_returned_to_its_maker_and_back(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.read_text().replace("limits:\n", "tickets: {look_every: 1s}\n\nlimits:\n", 1))
    async with stack(tmp_path, layout=SMALL, policy=policy, worker=PLAIN) as up:
        node = up.pick(IRONWORKS)
        up.world.inject(node.name, "xid/64", cure=[])
        await up.report(node, "xid/64")
        await up.until(lambda: (v := up.incident(node.name)) and v.state is State.HANDED_OVER, "it is handed over")
        view = up.incident(node.name)
        assert view is not None
        (case,) = await up.until(lambda: [c for c in up.stores.cases.all() if c.ticket], "its ticket is open")
        assert case.incidents == (view.id,)
        marked = up.world.node(node.name)
        assert marked is not None
        assert marked.marked_by == view.id, "it is held out"

        await up.kill_workers()
        other = up.world.swap(node.name)
        await up.start_workers()
        ended = await up.until(lambda: (v := up.incident(node.name)) and v.end, "the other machine is verified")
        assert ended is End.RETURNED
        closed = await up.until(
            lambda: (c := up.stores.cases.get(case.id)) and c.state is CaseState.CLOSED and c, "the case is closed"
        )
        assert other.machine.id in closed.why
        assert up.stores.cases.known_bad([node.machine.serial or ""]), "should it ever come back, it is known"
        assert closed.closed_by == "medevac"
        back = up.world.node(node.name)
        assert back is not None
        assert (back.schedulable, back.marked_by) == (True, None)
        lines = up.stores.ledger.lines(view.id)
        assert any(line.kind == "step" and line.data.get("step") == "verify" for line in lines), "by a check of its own"
        assert sum(effect.applied for effect in up.world.effects() if effect.verb == "ticket") == 1
        assert not up.verdict().problems, up.verdict()
