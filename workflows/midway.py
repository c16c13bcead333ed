"""Questions in the middle of a plan: what its own approval couldn't know of when the plan was made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from temporalio import workflow

from medevac.policy.plan import ApprovalNeed, Plan, Rung
from workflows.permission import Permission
from workflows.run import IncidentRun
from workflows.standing import Again

TITLE = 300
"""Characters of a question's title."""


class Planner(Protocol):
    async def __call__(self, under_way: Rung | None = None) -> Plan:
        """A fresh, recorded plan from the facts as they are now.

        `under_way`: the rung that the present plan has begun, whose attempt is still going on.
        """
        ...


@dataclass(slots=True)
class Midway:
    run: IncidentRun
    planner: Planner
    permission: Permission

    async def ask(
        self, plan: Plan, about: str, need: ApprovalNeed, what: str, why: tuple[str, ...], *, begun: bool
    ) -> None:
        """Returns when people said yes to it in this very plan, and it still stands. It counts once.

        `begun`: a call of the plan's rung was made.
        """
        run = self.run
        approval = f"{run.incident}-{plan.hash[:8]}-{about}-{run.key(about).n}"
        title = f"{what} on {run.cluster}/{run.node}, for {plan.rung} for {plan.cause}"
        need = need.model_copy(update={"why": why})
        await self.permission.approved(plan, approval, need, title=title[:TITLE])
        fresh = await self.planner(plan.rung if begun else None)
        if not fresh.stays_within(plan):
            raise Again
        run.expect_until(workflow.now() + timedelta(seconds=2 * plan.pod_grace_s + plan.step_s + plan.verify_s))
