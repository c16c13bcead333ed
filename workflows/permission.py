"""Permission to destroy: a lease from the guard, then people's yes to this very plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities import signatures as sig
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalRequest, ApprovalResult, ApprovalState, Waiter
from medevac.fleet.lease import LeaseRef, LeaseRequest
from medevac.incident import State
from medevac.policy.plan import ApprovalNeed, Plan
from workflows.messages import ANSWER_SLACK_S, approval_workflow_id
from workflows.run import IncidentRun
from workflows.standing import Again, Standing
from workflows.steps import Interrupted, Steps
from workflows.telling import Telling

LATE_ASKS_ANEW = "late-asks-anew"
"""Patch: older releases took a no to others, or the others' expiry, for one to whoever had joined too late for it."""

WITHDRAWN_IS_SLOWED = "withdrawn-is-slowed"
"""Patch: older releases asked anew at once, without end, where the question was withdrawn."""


@dataclass(slots=True)
class Permission:
    run: IncidentRun
    steps: Steps
    standing: Standing
    telling: Telling

    async def lease(self, plan: Plan) -> str | None:
        """Holds the lease when it returns; gives the fleet-wide approval that it took, if it took one."""
        run = self.run
        approval = plan.order.approval if plan.order else None
        fleet_wide: str | None = None
        while run.lease is None:
            run.state, run.waiting_for = State.WAITING_LEASE, "a lease"
            run.lease_asked = True
            request = LeaseRequest(
                lease_id=run.incident,
                incident=run.incident,
                workflow_id=run.workflow_id,
                cluster=run.cluster,
                node=run.node,
                pool=plan.domains.get("pool"),
                domains=plan.domains,
                gang=plan.gang,
                job_running=plan.job_running,
                fault=plan.cause or "",
                fault_class=run.fault_class,
                plan_hash=plan.hash,
                approval=approval,
                campaign=plan.order.campaign if plan.order else None,
                person_asked=plan.approval is not None or plan.order is not None,
                asked_at=run.opened_at,
                asks=run.asks,
            )
            try:
                answer = await self.steps.call(
                    sig.ACQUIRE,
                    sig.AcquireRequest(key=run.key("acquire"), lease=request),
                    deadline_s=run.timing.lease_wait_s,
                    interrupt=self.standing.moved,
                )
            except Interrupted:
                raise Again from None
            except ActivityError as error:
                run.hand_over = f"no lease within {run.timing.lease_wait_s / 3600:.1f} h: {error.cause}"
                raise Again from None
            run.waiting_for = ""
            if answer.granted:
                run.lease = LeaseRef(lease_id=answer.granted.lease_id, epoch=answer.granted.epoch)
            elif answer.ask:
                approval = answer.ask.approval
                await self.approved(
                    plan, approval, answer.ask.need, title=answer.ask.reason, fleet_wide=answer.ask.fleet_wide
                )
                fleet_wide = approval if answer.ask.fleet_wide else fleet_wide
        return fleet_wide

    async def approved(
        self, plan: Plan, approval: str, need: ApprovalNeed, *, title: str, fleet_wide: bool = False
    ) -> None:
        """Returns when people said yes to this very plan; a no or an expiry latches and sends us back."""
        run = self.run
        now = workflow.now()
        if approval not in run.decisions:
            run.state, run.waiting_for = State.WAITING_APPROVAL, f"approval {approval}"
            waiter = Waiter(
                incident=run.incident,
                workflow_id=run.workflow_id,
                cluster=run.cluster,
                node=run.node,
                plan_hash=plan.hash,
                text=f"{run.cluster}/{run.node}: {plan.rung}{plan.by} for {plan.cause}. {'; '.join(plan.reasons[:3])}"[
                    :1000
                ],
                destroys=plan.destroys,
            )
            request = ApprovalRequest(
                id=approval,
                title=title,
                need=need,
                fleet_wide=fleet_wide,
                requested_by="medevac",
                requested_at=now,
                expires_at=now + timedelta(seconds=need.expires_s),
                policy_version=plan.policy_version,
                waiter=waiter,
            )
            asked = await self.steps.step(
                sig.ASK,
                sig.AskRequest(key=run.key("ask"), request=request, timing=run.timing),
                interrupt=self.standing.moved,
            )
            self.standing.judge("ask", asked)
            if "result" in asked.proof:
                # It was decided before this incident could join; nobody would signal it any more.
                run.decisions[approval] = ApprovalResult.model_validate(asked.proof["result"])
            await self.telling.record()
            # A question whose list changes under its voters gets more time, up to this.
            longest = tally.LONGEST if workflow.patched(LATE_ASKS_ANEW) else 1
            answered = await self.steps.until(
                lambda: approval in run.decisions or self.standing.moved(), need.expires_s * longest + ANSWER_SLACK_S
            )
            run.waiting_for = ""
            if approval not in run.decisions:
                await self._leave(approval)
                if not answered:
                    self.standing.latch(f"approval {approval} gave no answer", "expiry")
                raise Again
        result = run.decisions[approval]
        if run.first_time(f"decided {approval}"):
            by = f" by {' and '.join(result.by)}" if result.by else ""
            run.note("vote", result.decided_at, f"{approval} {result.state}{by}: {result.reason}")
        if result.state is ApprovalState.WITHDRAWN or (
            result.covers.get(run.incident) != plan.hash
            and (result.state is ApprovalState.APPROVED or workflow.patched(LATE_ASKS_ANEW))
        ):
            # Nobody said no to this plan of this incident, nor yes: void, ask anew.
            run.decisions.pop(approval)
            run.asks += 1
            # Withdrawn is nobody's answer: who finds the same again and again is slowed as by any other repeat.
            run.answered = result.state is not ApprovalState.WITHDRAWN or not workflow.patched(WITHDRAWN_IS_SLOWED)
            raise Again
        if result.state is not ApprovalState.APPROVED:
            if result.state is ApprovalState.REJECTED:
                run.stop(" and ".join(result.by), result.reason)
            self.standing.latch(
                f"approval {approval} was {result.state}: {result.reason}", ", ".join(result.by) or "expiry"
            )
            raise Again
        run.approvals.append(approval)

    async def stay(self) -> None:
        """Before each destructive step. What was just taken back may be gone in a moment: that is awaited first."""
        await self.steps.until(lambda: not self.run.faults.clearing or self.standing.moved())
        self.standing.stay()

    async def _leave(self, approval: str) -> None:
        self.run.asks += 1
        handle = workflow.get_external_workflow_handle(approval_workflow_id(approval))
        try:
            await handle.signal("leave", self.run.incident)
        except ApplicationError:
            return  # It is over already; nobody waits there any more.

    async def release(self) -> None:
        run = self.run
        if run.lease is None and not run.lease_asked:
            return
        request = sig.ReleaseRequest(key=run.key("release"), lease_id=run.incident)
        if (await self.steps.step(sig.RELEASE, request)).outcome.ok:
            run.lease, run.lease_asked = None, False
