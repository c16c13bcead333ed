"""Durable: workers are killed in every step's every moment, the server too; each incident still ends right, and once.

Timing profile `test` (`activities.signatures.TEST`): short time-outs, nothing else. Prints what a kill costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from activities.signatures import ALL, CAMPAIGN_STEP, TAKE_BACK
from medevac.incident import IncidentView, State
from simulation.hazards import Effect
from simulation.layout import TEST, Layout
from simulation.verdict import table as verdict_table
from tests.acceptance import accounting
from tests.acceptance.matrix import AFTER, BEFORE, BEGIN, END, Case, Cell, cases
from tests.acceptance.stack import Running, stack

FLEET = Layout(nodes=400, serve_share=0.0, spares=0, durations=TEST)
"""So large that a tenth of it under repair is no outage."""
AT_ONCE = 5
ROUNDS = 3

Show = Callable[[str], None]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    def show(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")

    return show


@pytest.mark.slow
@pytest.mark.timeout(2_400)
async def test_every_effect_at_every_kill_point(tmp_path: Path, show: Show) -> None:
    began = time.monotonic()
    async with stack(tmp_path, layout=FLEET, workers=2) as up, up.everyone_agrees():
        run = Run(up)
        matrix = cases()
        for i, case in enumerate(matrix):
            if i == len(matrix) // 2:
                await up.kill_temporal()
                await up.start_temporal()
            await run.begin(case)
        settled = await up.settled(run.nodes)
        while (again := run.missed()) and run.rounds < ROUNDS:
            # Another cell's kill came in the same moment, between this effect and its point.
            run.rounds += 1
            for case in again:
                await run.begin(case)
            settled = await up.settled(run.nodes)
        await up.until(lambda: not up.stores.guard.leases(), "all leases are given back")
        lost = await accounting.lost_lines(up)
        resumed = accounting.resumptions(up, accounting.killed_at_cells(up))
        verdict = up.verdict()
        show(
            f"{len(up.reached())} workers killed in {len(run.nodes)} incidents, the Temporal server once; "
            f"{verdict.calls} calls, {verdict.applied} took effect; {time.monotonic() - began:.0f} s\n"
            f"from a kill to the resumed step, time-outs of profile `test`:\n"
            f"{accounting.table(resumed)}"
        )
        missed = [f"{case.flow.fault}: {case.cells[0]}" for case in run.missed()]
        assert not missed, f"cells that were not reached: {missed}"
        problems = [p for name, case in run.nodes.items() for p in _ended_otherwise(up, case, settled[name])]
        problems += [*lost, *accounting.left_behind(up)]
        if not verdict.well:
            problems.append(verdict_table(verdict))
        assert not problems, "\n".join(problems)


@dataclass(slots=True)
class Run:
    up: Running
    nodes: dict[str, Case] = field(default_factory=dict)
    planned: list[tuple[Case, Cell, dict[str, str]]] = field(default_factory=list)
    rounds: int = 1

    async def begin(self, case: Case) -> None:
        """Its fault, on a node of its own, once there is room for it."""
        await self.up.until(lambda: self._under_way() < AT_ONCE, "there is room for another incident")
        node = self.up.pick(case.flow.provider)
        self.nodes[node.name] = case
        self.planned += [(case, cell, cell.on(node.name)) for cell in case.cells]
        self.planned += [(case, cell, cell.on(None)) for cell in case.anywhere]
        self.up.plan_kills([planned for _, _, planned in self.planned])
        self.up.world.inject(node.name, case.flow.fault, cure=case.flow.cure)
        await self.up.report(node, case.flow.fault)

    def missed(self) -> list[Case]:
        """A case for each cell that no incident has reached."""
        reached = self.up.reached()
        found = {(case.flow, cell) for i, (case, cell, _) in enumerate(self.planned) if i in reached}
        return [
            Case(*which)
            for which in dict.fromkeys((case.flow, (cell,)) for case, cell, _ in self.planned)
            if (which[0], which[1][0]) not in found
        ]

    def _under_way(self) -> int:
        over = (State.OBSERVED, State.HANDED_OVER)
        found = {v.workflow_id.rpartition("/")[2] for v in self.up.incidents() if v.end or v.state in over}
        return len(self.nodes.keys() - found)


def _ended_otherwise(up: Running, case: Case, view: IncidentView) -> list[str]:
    problems = accounting.twice(up, view, case.flow.verbs)
    if (view.end or view.state) != case.flow.ends:
        problems.append(f"{view.node} {case.flow.fault}: ended {view.end or view.state}, not {case.flow.ends}")
    return problems


def test_the_matrix_is_whole() -> None:
    """Every effect that these incidents have, and every step."""
    found = {(cell.effect, cell.point) for case in cases() for cell in (*case.cells, *case.anywhere)}
    # No part of these incidents, whose drains all end well: deletion past a disruption budget, which is eviction's call
    # to the same pod, and a notice that is taken back from pods that stay.
    effects = {effect.value for effect in Effect} - {Effect.DELETE.value, Effect.RELEASE.value, Effect.TAKE_BACK.value}
    assert {(effect, point) for effect in effects for point in (BEFORE, AFTER)} <= found
    # Campaigns and people's stops are no part of these incidents; workers are killed in their own tests.
    steps = {step.name for step in ALL} - {CAMPAIGN_STEP.name, TAKE_BACK.name}
    assert {(step, point) for step in steps for point in (BEGIN, END)} <= found
