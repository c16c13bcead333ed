"""A drill on the real stack: the node goes the whole way and comes back, and is told from a true incident."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from medevac.events.drill import A_DRILL
from medevac.incident import End
from simulation.hazards import Effect
from simulation.layout import IRONWORKS, TEST, Layout
from tests.acceptance.stack import PLAIN, stack, utcnow


@pytest.mark.slow
async def test_a_drill_reboots_an_empty_node_checks_it_and_brings_it_back(tmp_path: Path) -> None:
    async with stack(tmp_path, layout=Layout(nodes=16, spares=0, busy=0.0, durations=TEST), worker=PLAIN) as up:
        with up.world.read() as m:
            used = {row["machine"] for row in m.all("SELECT machine FROM pods WHERE tier != 'daemon'")}
        nodes = up.world.nodes()
        node = next(n for n in nodes if n.machine.provider == IRONWORKS and n.machine.id not in used)
        order = {"node": node.name, "fault": "xid/119", "reason": "before the night"}
        answer = await up.order("/v1/drills", "kim", **order)
        assert answer.status_code == 202, answer.text
        async with up.everyone_agrees():
            await up.until(lambda: (v := up.incident(node.name)) and v.end, "the drill is over")
        view = up.incident(node.name)
        assert view is not None
        assert view.end is End.RETURNED
        assert view.summary == A_DRILL
        assert any(A_DRILL in line.text for line in up.stores.ledger.lines(view.id))
        assert [effect.node for effect in up.world.effects(verb=Effect.REBOOT)] == [node.name]
        assert not up.world.effects(verb=Effect.TICKET)
        after = up.world.node(node.name)
        assert after is not None
        assert (after.schedulable, after.marked_by) == (True, None)
        assert after.machine.boot_id != node.machine.boot_id
        seen = up.stores.scorecards.observed(nodes, utcnow() - timedelta(days=1), utcnow())
        assert (seen.repairs, seen.troubles) == ((), ())
