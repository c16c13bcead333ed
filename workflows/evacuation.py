"""A node emptied as its plan says, and what people are asked about what still stays then."""

from __future__ import annotations

from dataclasses import dataclass

from activities import signatures as sig
from medevac.fleet.order import evicted
from medevac.incident import Outcome, State, StepResult
from medevac.policy.plan import ApprovalNeed, Drain, Plan
from workflows.midway import Midway
from workflows.permission import Permission
from workflows.run import IncidentRun
from workflows.standing import Standing
from workflows.steps import Steps


@dataclass(slots=True)
class Evacuation:
    run: IncidentRun
    steps: Steps
    standing: Standing
    permission: Permission
    midway: Midway

    async def carry_out(self, plan: Plan, *, begun: bool = False) -> None:
        """Returns when the node is empty. `begun`: a call of the plan's rung was made before."""
        if plan.drain is None:
            return
        # Probed only here: once its pods have left, the storage may well say that it lacks this node.
        probe = plan.storage_probe
        result = await self._drain(plan, plan.drain, plan.drain_s, bypass=plan.budget_bypass, probe=probe)
        if _blocked_by(result, "running") and (plan.job_end_evicts or plan.job_end_need is not None):
            if plan.job_end_need is not None:
                await self._ask_about_jobs(plan, plan.job_end_need, result, begun=begun)
            # What a budget refuses of them is the budget's matter, as anywhere.
            result = await self._drain(plan, Drain.NOW, plan.pod_grace_s, bypass=plan.budget_bypass)
        if _blocked_by(result, "budgets") and plan.budget_need is not None:
            await self._ask_about_budgets(plan, plan.budget_need, result, begun=begun)
            # Their time is over and people know it: what its budget lets go now goes, the rest is deleted.
            result = await self._drain(plan, Drain.NOW, plan.pod_grace_s, bypass=True)
        self.standing.judge("evacuate", result)

    async def _drain(
        self, plan: Plan, drain: Drain, drain_s: float, *, bypass: bool, probe: str | None = None
    ) -> StepResult:
        run = self.run
        await self.permission.stay()
        run.state = State.EVACUATING
        request = sig.EvacuateRequest(
            key=run.key("evacuate"),
            pre=run.precondition(plan, plan.identity).model_copy(update={"storage_probe": probe}),
            drain=drain,
            drain_s=drain_s,
            pod_grace_s=plan.pod_grace_s,
            budget_bypass=bypass,
            budget_waits=plan.budget_waits,
        )
        deadline = drain_s + plan.pod_grace_s
        before, run.drained = run.drained, True
        result = await self.steps.step(sig.EVACUATE, request, deadline_s=deadline, interrupt=self.standing.stopped)
        run.drained = before or evicted(result)
        return result

    async def _ask_about_budgets(self, plan: Plan, need: ApprovalNeed, blocked: StepResult, *, begun: bool) -> None:
        """Whether pods may be deleted past them."""
        why = (f"{blocked.who} refuses at the drain's deadline", *need.why[1:], blocked.reason)
        await self.midway.ask(plan, "budget", need, f"delete pods past {blocked.who}", why, begun=begun)

    async def _ask_about_jobs(self, plan: Plan, need: ApprovalNeed, blocked: StepResult, *, begun: bool) -> None:
        """Whether they may be evicted before their end. Told is what they lose now: the plan may be a day old."""
        running = blocked.proof["running"]
        losses = {job: str(loss) for job, loss in running.items()} if isinstance(running, dict) else {}
        jobs = ", ".join(losses)
        why = (f"still running when the drain's time is over: {jobs}", *need.why[1:], *losses.values())
        told = plan.model_copy(update={"destroys": tuple(losses.values())})
        await self.midway.ask(told, "job-end", need, f"evict {jobs} before the end", why, begun=begun)


def _blocked_by(result: StepResult, what: str) -> bool:
    return result.outcome is Outcome.BLOCKED and bool(result.proof.get(what))
