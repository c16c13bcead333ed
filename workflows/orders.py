"""What people order of one incident: hold, resume, abort, assign, confirm. Each is an update, answered in words.

An order sets a flag; the incident heeds it at its next safe point. Said twice under one id, it is answered twice and
carried out once.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from medevac.incident import State
    from medevac.policy.plan import Action
    from workflows.messages import AssignRequest, By, HoldRequest, NodeAnswer, Order
    from workflows.run import ANOTHERS, IncidentRun
    from workflows.steps import Steps

MAX_HOLD = timedelta(days=7)
PLANS_AGAIN = "resume-handed-over"
"""Patch: an order to go on that an older release answered with `was not held` must not plan again in a replay."""
LONGER_STAYS = "longer-hold-stays"
"""Patch: in older releases the last hold counted, also one that ends sooner than another person's."""
ANSWER_S = 8.0
"""How long who has it planned again waits to hear what comes of it."""


class Orders:
    """Handlers of the node workflow, which is one of these."""

    run_state: IncidentRun
    steps: Steps

    @workflow.update
    async def hold(self, request: HoldRequest) -> NodeAnswer:
        run, hold = self.run_state, request.hold
        if known := self._known():
            return known
        stands = run.hold
        if stands and run.holding(workflow.now()) and stands.until > hold.until and workflow.patched(LONGER_STAYS):
            said = f"{hold.by} holds it as well until {hold.until.isoformat()}: {hold.reason}"
            run.note("hold", workflow.now(), f"{said}; {stands.owner}'s hold until {stands.until.isoformat()} stays")
            return self._answer(
                f"{stands.owner} holds it until {stands.until.isoformat()} already, which stays: {stands.reason}; "
                f"`resume` ends a hold sooner; {self._what_runs()}"
            )
        run.hold = hold
        run.note("hold", workflow.now(), f"held by {hold.by} until {hold.until.isoformat()}: {hold.reason}")
        return self._answer(f"held until {hold.until.isoformat()}; {self._what_runs()}")

    @hold.validator
    def _check_hold(self, request: HoldRequest) -> None:
        self._check(request)
        left = request.hold.until - workflow.now()
        if not timedelta(0) < left <= MAX_HOLD:
            raise ValueError("a hold needs an end in the future, at most 7 days away")
        if not request.hold.reason.strip():
            raise ValueError("a hold needs a reason")

    @workflow.update
    async def resume(self, by: By) -> NodeAnswer:
        run = self.run_state
        if known := self._known():
            return known
        held = run.holding(workflow.now())
        if not held and run.state is State.HANDED_OVER and workflow.patched(PLANS_AGAIN):
            return self._answer(await self._planned_again(by))
        was, run.hold = run.hold, None
        run.note("hold", workflow.now(), f"resumed by {by.named}: {by.reason}")
        if held and run.hand_over:
            return self._answer(f"resumed; a person still has it: {run.hand_over}; resume it again to have it planned")
        return self._answer("resumed" if was else "was not held")

    @resume.validator
    def _check_resume(self, by: By) -> None:
        self._check(by)
        run = self.run_state
        if self._known() or run.holding(workflow.now()) or run.state is not State.HANDED_OVER:
            return
        if not by.reason.strip():
            raise ValueError("a person has it; say why it may be planned again")
        if run.hand_over.endswith(ANOTHERS):
            raise ValueError(f"{run.hand_over}; `confirm` has a check judge the new one")

    async def _planned_again(self, by: By) -> str:
        """A hand-over's reason is forgotten; what the planner itself knows, a latch above all, still counts."""
        run = self.run_state
        run.resume_by, run.resumed_n = by.who, run.plan_n
        why = f"; it was handed over because {run.hand_over}" if run.hand_over else ""
        run.note("resume", workflow.now(), f"planned again, says {by.named}: {by.reason}{why}")
        try:
            await workflow.wait_condition(
                lambda: self._has_planned_again() or run.closing or run.abort_by is not None,
                timeout=timedelta(seconds=ANSWER_S),
            )
        except TimeoutError:
            return "it will be planned again"
        plan = run.plan
        if plan is None or not self._has_planned_again():
            return "it ends, and is not planned again"
        if plan.action is Action.HAND_OVER:
            return f"planned again, and a person still has it: {plan.reasons[0]}"
        asks = f"; it asks first: {'; '.join(plan.approval.why)}" if plan.approval else ""
        return f"planned again: {plan.rung or plan.action} for {plan.cause or 'no open fault'}{asks}"

    def _has_planned_again(self) -> bool:
        run = self.run_state
        return run.resume_by is None and run.plan is not None and run.plan.n > run.resumed_n

    @workflow.update
    async def abort(self, by: By) -> NodeAnswer:
        run = self.run_state
        if known := self._known():
            return known
        run.abort_by, run.abort_why = by.who, by.reason
        run.note("abort", workflow.now(), f"stopped by {by.named}: {by.reason}")
        asked = "; the successor that was asked for is ended unless it has joined" if run.requested else ""
        return self._answer(self._what_runs() + asked)

    @abort.validator
    def _check_abort(self, by: By) -> None:
        self._check(by)

    @workflow.update
    async def assign(self, request: AssignRequest) -> NodeAnswer:
        run = self.run_state
        if known := self._known():
            return known
        run.owner = request.owner
        run.note("owner", workflow.now(), f"assigned to {request.owner} by {request.by.named}")
        run.woken = True
        return self._answer(f"assigned to {request.owner}")

    @assign.validator
    def _check_assign(self, request: AssignRequest) -> None:
        self._check(request)

    @workflow.update
    async def confirm_repaired(self, by: By) -> NodeAnswer:
        run = self.run_state
        if known := self._known():
            return known
        run.confirm_by = by.who
        run.note("confirm", workflow.now(), f"{by.named} says it is repaired: {by.reason}")
        return self._answer("a check decides now whether it returns to service")

    @confirm_repaired.validator
    def _check_confirm(self, by: By) -> None:
        self._check(by)
        state = self.run_state.state
        if not self._known() and state not in (State.HANDED_OVER, State.OBSERVED, State.HELD):
            raise ValueError(f"the incident is {state}; only one that waits for a person can be confirmed repaired")

    def _check(self, order: Order) -> None:
        run = self.run_state
        if order.incident and order.incident != run.incident:
            raise ValueError(f"{order.incident} is over; {run.incident} runs on {run.node} now")
        if run.closing:
            raise ValueError(f"{run.incident} is ending ({run.end}); nothing is left to change")

    def _known(self) -> NodeAnswer | None:
        info = workflow.current_update_info()
        text = self.run_state.updates.get(info.id) if info else None
        return NodeAnswer(text=text) if text else None

    def _answer(self, text: str) -> NodeAnswer:
        info = workflow.current_update_info()
        return NodeAnswer(text=self.run_state.answer(info.id, text) if info else text)

    def _what_runs(self) -> str:
        running = self.steps.running
        if running in (sig.ACT.name, sig.PROVE.name):
            return f"too_late({running} already sent): its end is awaited, nothing further is begun"
        return f"stopping({running})" if running == sig.EVACUATE.name else "stopped"
