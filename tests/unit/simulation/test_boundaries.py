from __future__ import annotations

from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.signatures import LiftRequest
from medevac.incident import StepKey
from simulation import killpoints
from simulation.boundaries import BoundaryKills


class Inner(ActivityInboundInterceptor):
    def __init__(self, said: list[object]) -> None:
        self._said = said

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self._said.append("runs")
        return 7


async def test_a_step_has_a_point_before_it_and_one_before_anybody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(killpoints, "hit", lambda effect, point, node: said.append((effect, point, node)))
    inbound = BoundaryKills().intercept_activity(Inner(said))
    request = LiftRequest(key=StepKey(incident="inc-1", step="lift"), cluster="c", node="gpu-a-001", incident="inc-1")
    given = ExecuteActivityInput(fn=lambda _: None, args=[request], executor=None, headers={})
    env = ActivityEnvironment()
    name = env.info.activity_type

    async def run() -> Any:
        return await inbound.execute_activity(given)

    assert await env.run(run) == 7
    assert said == [(name, "begin", "gpu-a-001"), "runs", (name, "end", "gpu-a-001")]
