"""Kill points at the boundaries of every step: `begin` (nothing done yet) and `end` (done, and nobody was told)."""

from __future__ import annotations

from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from simulation import killpoints


class BoundaryKills(Interceptor):
    """The first of a worker's interceptors, so that the step's own line lies inside; local activities count too.

    Effects of the kill plan are the activities' names: `plan`, `mark`, `acquire`, `act`, `record`, …
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name, node = activity.info().activity_type, _node(input.args[0] if input.args else None)
        killpoints.hit(name, "begin", node)
        answer = await self.next.execute_activity(input)
        killpoints.hit(name, "end", node)
        return answer


def _node(request: Any) -> str:
    """The node that a step is about, where its request says so."""
    for part in (
        request,
        getattr(request, "pre", None),
        getattr(request, "lease", None),
        getattr(request, "view", None),
    ):
        if isinstance(node := getattr(part, "node", None), str):
            return node
    return ""
