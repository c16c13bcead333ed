"""One plan carried out: mark, lease, ask, evacuate, act, prove, verify, return. Each leg may send us back to plan."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities import signatures as sig
from activities.signatures import Verb
from medevac.faults.faultset import Remedy
from medevac.incident import End, Outcome, State, StepKey, StepResult
from medevac.policy.plan import ApprovalNeed, Plan, Rung
from workflows.evacuation import Evacuation
from workflows.marking import Marking
from workflows.midway import Midway, Planner
from workflows.permission import Permission
from workflows.run import IncidentRun
from workflows.standing import Again, Standing
from workflows.steps import Interrupted, Steps, never
from workflows.telling import Telling

VERBS: dict[Rung, tuple[Verb, ...]] = {
    Rung.RESTART_AGENT: (Verb.RESTART_AGENT,),
    Rung.RESET_GPU: (Verb.RESET_GPU,),
    Rung.REBOOT: (Verb.REBOOT,),
    Rung.REINSTALL: (Verb.REINSTALL,),
    # The successor is asked for before the old machine goes: where none can come, nothing is destroyed.
    Rung.REPLACE: (Verb.REQUEST, Verb.TERMINATE),
    Rung.TERMINATE: (Verb.TERMINATE,),
}

TAKE_BACK_S = 60.0
"""How long the release of a successor may keep people waiting for the hand-over; it is tried again after it."""


@dataclass(slots=True)
class Remediation:
    """Carries plans out for one incident."""

    run: IncidentRun
    steps: Steps
    planner: Planner
    standing: Standing
    telling: Telling
    permission: Permission
    marking: Marking
    midway: Midway
    evacuation: Evacuation

    async def carry_out(self, plan: Plan) -> End | None:
        """The incident's end, or None when a new plan is needed."""
        try:
            if plan.mark and (self.run.marked or not plan.mark_after_approval):
                await self.marking.mark(plan)
            self.telling.announce(plan)
            if plan.wait_s:
                await self.steps.until(self.standing.moved, plan.wait_s)
            self.standing.stay()
            if plan.rung is Rung.RMA:
                await self._rma(plan)
                return None
            plan = await self._permission(plan)
            if plan.ticket and self.run.first_time("ticket"):
                self.telling.beside(self._ticket(plan))
            return await (self._wait_it_out(plan) if plan.rung is Rung.WAIT else self._repair(plan))
        except Again:
            return None

    # -- legs --------------------------------------------------------------------------------------------------

    async def _permission(self, plan: Plan) -> Plan:
        """Lease, then approval, then the facts read again: the plan that may be carried out now."""
        self.run.approvals = []
        fleet_wide = await self.permission.lease(plan)
        if plan.approval and not fleet_wide:
            await self._ask(plan, plan.approval)
        if plan.mark:
            await self.marking.mark(plan, fleet_wide)
        self.standing.stay()
        if plan.approval or fleet_wide:
            fresh = await self.planner()
            if not fresh.stays_within(plan):
                raise Again
            plan = fresh
        return plan

    async def _ask(self, plan: Plan, need: ApprovalNeed) -> None:
        # A question that was left is over: asked again, the same plan is another question.
        approval = f"{self.run.incident}-{plan.hash[:8]}" + (f"-{self.run.asks}" if self.run.asks else "")
        title = f"{plan.rung} {self.run.cluster}/{self.run.node}{plan.by} for {plan.cause}"
        await self.permission.approved(plan, approval, need, title=title)

    async def _act(self, plan: Plan, verb: Verb, acted: dict[Verb, StepKey]) -> None:
        """One physical call; its key in `acted` names the intent that `prove` looks for."""
        run = self.run
        await self.permission.stay()
        run.state = State.ACTING
        key = run.key(f"act-{verb}")
        probe = plan.storage_probe if plan.drain is None and not acted else None
        request = sig.ActRequest(
            key=key,
            pre=run.precondition(plan, plan.identity).model_copy(update={"storage_probe": probe}),
            verb=verb,
            fault=plan.cause or "",
            fault_class=run.fault_class,
            rung=plan.rung or Rung.ESCALATE,
            at=plan.ask_at.elsewhere if plan.ask_at and verb is Verb.REQUEST else None,
        )
        before = run.requested
        if verb is Verb.REQUEST:
            run.requested, run.asked, run.asked_of = True, plan.ask_at, run.target(plan, plan.identity)
            run.came = run.taken_back = ""
        result = await self.steps.step(sig.ACT, request, deadline_s=plan.step_s)
        if verb is Verb.REQUEST and (result.outcome is Outcome.REFUSED or "not_sent" in result.proof):
            run.requested = before
            if plan.ask_at and result.outcome is Outcome.FAILED:
                run.nothing_came.append(plan.ask_at.offer)
        if plan.rung and not acted and result.outcome not in (Outcome.REFUSED, Outcome.CANCELLED):
            # Also where it failed or gave no answer: it may have been sent, and must not count as never tried.
            run.asked_rungs.append(plan.rung)
            run.order_sent = run.order_sent or plan.order is not None
        acted[verb] = key
        if result.outcome is Outcome.TIMED_OUT:
            # It may have been sent: only its proof, or the word that there is none, lets anything follow it.
            await self._prove(plan, (verb,), key)
            return
        self.standing.judge(str(verb), result)
        if verb is Verb.REQUEST and (result.outcome is Outcome.ALREADY or "unclear" in result.proof):
            # Nobody knows whether a successor was asked for: the old machine stays until one has joined.
            await self._prove(plan, (verb,), key)

    def _begin(self, plan: Plan) -> Remedy:
        """From here on, what our own steps cause is expected."""
        run, now = self.run, workflow.now()
        limit = timedelta(seconds=plan.drain_s + plan.step_s + plan.verify_s)
        return Remedy(
            step="evacuate",
            began_at=now,
            deadline=now + limit,
            before=plan.identity,
            echo_grace_s=run.timing.echo_grace_s,
            latched_s=run.timing.latched_s,
        )

    async def _wait_it_out(self, plan: Plan) -> End | None:
        """A provider's maintenance, or nothing to do at all: empty the node, wait, and let a check judge."""
        run = self.run
        run.remedy = self._begin(plan)
        await self.evacuation.carry_out(plan)
        run.state, run.waiting_for = State.WATCHING, "the fault's own end"
        if plan.order is not None:
            # Empty and held, as people agreed for the whole list: its neighbours' turn, and that is seen.
            await self.permission.release()
            await self.telling.record()
        await self.steps.until(lambda: not self._suspected() or self.standing.stopped(), plan.step_s)
        run.waiting_for = ""
        if run.abort_by or run.holding(workflow.now()) or run.worse:
            return None
        run.asked_rungs.append(Rung.WAIT)
        run.remedy = run.remedy.model_copy(update={"step": "verify", "proved_at": workflow.now()})
        if not await self.verify(plan, workflow.now(), None):
            return None
        return await self.give_back(plan, End.RETURNED)

    def _suspected(self) -> bool:
        return any(fault.fault_class.repairable for fault in self.run.faults.faults)

    async def _repair(self, plan: Plan) -> End | None:
        run = self.run
        verbs = VERBS[plan.rung] if plan.rung else ()
        run.remedy = self._begin(plan)
        began = run.remedy.began_at
        acted: dict[Verb, StepKey] = {}
        first, rest = (verbs[:1], verbs[1:]) if plan.request_first else ((), verbs)
        for verb in first:
            await self._act(plan, verb, acted)
        await self.evacuation.carry_out(plan, begun=bool(acted))
        run.remedy = run.remedy.model_copy(update={"step": "act"})
        came: StepResult | None = None
        for verb in rest:
            if verb is Verb.TERMINATE and (plan.ask_at or plan.successor_need):
                # An accepted request is no machine: the old one stays until a successor is there, or people say so.
                came = await self._successor(plan, acted[Verb.REQUEST])
                verbs = (verb,) if came else verbs
            await self._act(plan, verb, acted)
        proved = await self._prove(plan, verbs, acted[verbs[-1]])
        proved = came or proved
        # By this workflow's clock: what was heard before the proof was is for the check to judge, which begins now.
        run.remedy = run.remedy.model_copy(update={"step": "verify", "proved_at": workflow.now()})
        if plan.rung is Rung.TERMINATE:
            await self.permission.release()
            return End.DISPOSED
        if proved.successor:
            run.subject, run.requested = proved.successor, False
        boot_id = proved.identity.boot_id if proved.identity else None
        passed = await self.verify(plan, began, boot_id)
        if not passed:
            return None
        return await self.give_back(plan, End.REPLACED if proved.successor else End.RETURNED)

    async def _successor(self, plan: Plan, acted: StepKey) -> StepResult | None:
        """The proof that it is there; None where none came in its time, and people said yes to doing without."""
        need = plan.successor_need
        result = await self._prove(plan, (Verb.REQUEST,), acted, late_is_asked=need is not None)
        if result.outcome.ok:
            if need is not None:
                self.run.expect_until(workflow.now() + timedelta(seconds=plan.step_s + plan.verify_s))
            return result
        if need is None:
            raise Again
        why = (f"no successor is there {plan.step_s / 60:g} min after it was asked for", *need.why[1:], result.reason)
        await self.midway.ask(plan, "successor", need, "terminate with no successor to be seen", why, begun=True)
        return None

    async def _prove(
        self, plan: Plan, verbs: tuple[Verb, ...], acted: StepKey, *, late_is_asked: bool = False
    ) -> StepResult:
        """Waits for what the call must have changed. Not interrupted: we must know how an effect under way ends.

        Unless it is a successor that the old machine waits for, which is taken back when a person stops. With
        `late_is_asked` the end of its time is given back, and what was asked for isn't released by it.
        """
        run = self.run
        run.state = State.PROVING
        request = sig.ProveRequest(
            key=run.key("prove"),
            pre=run.precondition(plan, plan.identity),
            verbs=verbs,
            acted=acted,
            deadline_s=plan.step_s,
            keep_late=late_is_asked,
        )
        optional = late_is_asked or (plan.ask_at is not None and verbs == (Verb.REQUEST,))
        interrupt = (lambda: bool(run.abort_by)) if optional else never
        result = await self.steps.step(sig.PROVE, request, deadline_s=plan.step_s, interrupt=interrupt)
        if Verb.REQUEST in verbs:
            self._became(result)
            if not run.requested and run.asked:
                run.nothing_came.append(run.asked.offer)
        if late_is_asked and result.outcome is Outcome.TIMED_OUT:
            return result
        self.standing.judge("prove", result)
        return result

    def _became(self, result: StepResult) -> None:
        """Of what was asked for, where the step says it."""
        if "nothing_left" in result.proof:
            self.run.requested = not result.proof["nothing_left"]
            self.run.came = str(result.proof["joined"])

    async def verify(self, plan: Plan, not_before: datetime, boot_id: str | None) -> bool:
        """True when a check that covers the faults, newer than the remedy, passed. Else a new plan is needed."""
        run = self.run
        run.state = State.VERIFYING
        request = sig.VerifyRequest(
            key=run.key("verify"),
            cluster=run.cluster,
            node=run.subject,
            covers=plan.covers,
            not_before=not_before,
            boot_id=boot_id,
            deadline_s=plan.verify_s,
        )
        try:
            result = await self.steps.call(
                sig.VERIFY, request, deadline_s=plan.verify_s, interrupt=lambda: bool(run.abort_by)
            )
            step = self.steps.heard(sig.VERIFY, request.key, result.step)
        except Interrupted:
            step = self.steps.unheard(sig.VERIFY, request.key, None)
        except ActivityError as error:
            step = self.steps.unheard(sig.VERIFY, request.key, error)
        if step.outcome.ok:
            run.absorb(workflow.now())
            since = run.remedy.proved_at if run.remedy else not_before
            run.faults = run.faults.prove(plan.covers, boot_id, workflow.now(), since=since, about=plan.faults)
            left = [f.code for f in run.faults.faults if f.fault_class.repairable]
            run.failed = f"still open after the repair: {', '.join(left)}" if left else ""
            run.changed = run.worse = bool(left)
            return not left
        run.failed = f"verify {step.outcome}: {step.reason}"
        if step.outcome is not Outcome.FAILED:
            run.hand_over = run.failed
        return False

    async def give_back(self, plan: Plan, end: End) -> End | None:
        """Lifts our marks, gives the lease back, and watches: a fault in probation is this incident's failure."""
        run = self.run
        lifted, _ = await asyncio.gather(self.marking.lift(), self.permission.release())
        if not lifted:
            return None
        run.state = State.PROBATION
        if run.remedy:
            run.remedy = run.remedy.model_copy(update={"step": "probation"})
        if await self.steps.until(lambda: run.changed and bool(run.faults.faults), plan.probation_s):
            run.failed = f"{', '.join(run.faults.codes)} came back in probation"
            return None
        return end

    async def _rma(self, plan: Plan) -> None:
        """Opens the provider's ticket and hands over: the machine stays out until the provider has mended it."""
        run = self.run
        if plan.approval:
            await self._ask(plan, plan.approval)
        run.asked_rungs.append(Rung.RMA)
        result = await self._ticket(plan)
        ticket = result.proof.get("ticket", "")
        run.hand_over = f"RMA ticket {ticket} is open" if result.outcome.ok else f"no RMA ticket: {result.reason}"

    async def _ticket(self, plan: Plan) -> StepResult:
        """Tells the provider what is wrong and what was decided."""
        run = self.run
        request = sig.TicketRequest(
            key=run.key("ticket"),
            provider=plan.domains.get("provider", ""),
            title=f"{plan.cause} on {plan.identity.machine_id} ({run.cluster}/{run.node})",
            body="\n".join((*plan.reasons, *(f"not {p.rung}: {p.why}" for p in plan.passed_over))),
            entities=tuple(
                dict.fromkeys(one for f in run.faults.faults if f.code in plan.faults for one in f.entities)
            ),
        )
        return await self.steps.step(sig.TICKET, request)

    # -- undoing -----------------------------------------------------------------------------------------------

    async def take_back(self) -> None:
        """Nobody waits for the successor any more: it is ended unless it has become a node, and people are told."""
        run, of = self.run, self.run.asked_of
        if not run.requested or run.came or of is None or not workflow.patched(sig.TAKE_BACK.name):
            return
        before = run.taken_back
        request = sig.TakeBackRequest(
            key=run.key(sig.TAKE_BACK.name), of=of, at=run.asked.elsewhere if run.asked else None
        )
        result = await self.steps.step(sig.TAKE_BACK, request, deadline_s=TAKE_BACK_S)
        self._became(result)
        run.taken_back = result.reason if "nothing_left" in result.proof else ""
        if before and result.proof.get("nothing_left"):
            text = f"{run.cluster}/{run.node}: {run.taken_back}"
            self.telling.beside(self.telling.notify(f"successor {run.taken_back}", text))
