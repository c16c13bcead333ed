"""The node workflow: one incident of one node, from the first fault to a verified end."""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from medevac.events.event import HealthEvent
    from medevac.fleet.order import unplanned
    from medevac.incident import End, IncidentView, State
    from medevac.policy.plan import Action, Plan, Rung
    from workflows.evacuation import Evacuation
    from workflows.marking import Marking
    from workflows.messages import NODE, Decided, NodeInput
    from workflows.midway import Midway
    from workflows.orders import Orders
    from workflows.permission import Permission
    from workflows.remediation import Remediation
    from workflows.run import IncidentRun
    from workflows.standing import Again, Standing
    from workflows.steps import Steps
    from workflows.telling import Telling

SAME_PLAN_TIMES = 3
SAME_PLAN_MAX_S = 300.0
LAST_WORD_S = 30.0
"""How long the message of the end may keep an ended incident."""
LOOK_AGAIN_S = 3_600.0
"""A hand-over is looked at this often: the node may be gone, or a person may have mended it."""


@workflow.defn(name=NODE)
class NodeWorkflow(Orders):
    """Signals only append; what a caller must know is an update. A stop sets a flag first, then cancels."""

    @workflow.init
    def __init__(self, given: NodeInput) -> None:
        info = workflow.info()
        incident = f"inc-{info.run_id.replace('-', '')[-10:]}"
        self.run_state = IncidentRun(given, incident, info.workflow_id, info.run_id, workflow.now())
        for event in given.heard:
            self.run_state.hear(event)
        self.steps = Steps(self.run_state)
        self.standing = Standing(self.run_state)
        self.telling = Telling(self.run_state, self.steps)
        self.permission = Permission(self.run_state, self.steps, self.standing, self.telling)
        self.marking = Marking(self.run_state, self.steps, self.standing)
        midway = Midway(self.run_state, self._plan, self.permission)
        self.remediation = Remediation(
            self.run_state,
            self.steps,
            self._plan,
            self.standing,
            self.telling,
            self.permission,
            self.marking,
            midway,
            Evacuation(self.run_state, self.steps, self.standing, self.permission, midway),
        )

    # -- messages ----------------------------------------------------------------------------------------------

    @workflow.signal
    def report(self, event: HealthEvent) -> None:
        self.run_state.hear(event)

    @workflow.signal
    def decided(self, decided: Decided) -> None:
        self.run_state.decisions[decided.result.id] = decided.result

    @workflow.signal
    def wake(self) -> None:
        self.run_state.woken = True

    @workflow.query
    def state(self) -> IncidentView:
        return self.run_state.row(workflow.now())

    # -- the incident ------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, given: NodeInput) -> str:
        while True:
            try:
                return await self._close(await self._to_an_end())
            except asyncio.CancelledError:
                # Someone cancelled the workflow itself. Nothing may be left half-done by that: it is a person's stop.
                reason = workflow.cancellation_reason()
                self.run_state.abort_by = "temporal cancel" + (f" ({reason})" if reason else "")
                self.run_state.abort_why = ""

    async def _to_an_end(self) -> End:
        run = self.run_state
        end: End | None = None
        same = 0
        while end is None or self._heard_more():
            await self._make_room()
            if run.holding(workflow.now()):
                await self._held()
            if run.confirm_by and run.plan:
                end = await self._confirmed(run.plan)
                continue
            ordered = bool(run.resume_by)
            if ordered:
                run.go_on()
                self.standing.refusals = 0
            self._stopped_by_a_person()
            before = run.plan.hash if run.plan else ""
            plan = await self._plan()
            same = same + 1 if plan.hash == before and not run.answered else 0
            run.answered = False
            if plan.action is not Action.HAND_OVER:
                # It goes on already: an order is not for a later hand-over.
                run.resume_by, run.resumed_n = None, min(run.resumed_n, plan.n - 1)
                if ordered:
                    # Should it come to people once more, they are told once more.
                    run.said = [what for what in run.said if not what.startswith("handed over")]
            if same >= SAME_PLAN_TIMES and plan.action in (Action.ACT, Action.WATCH):
                # Nothing moved between two equal plans: slower each time, never a hot loop.
                await self.steps.until(self.standing.moved, min(2.0**same, SAME_PLAN_MAX_S))
            if plan.action is not Action.ACT:
                await self.permission.release()
            end = await self._follow(plan)
        return end

    def _heard_more(self) -> bool:
        """A fault came in at the very end: the incident isn't over."""
        run = self.run_state
        run.absorb(workflow.now())
        return run.changed and bool(run.faults.faults)

    async def _plan(self, under_way: Rung | None = None) -> Plan:
        run = self.run_state
        run.absorb(workflow.now())
        if any(line.kind == "latch" for line in run.lines):
            # The planner reads latches from the ledger: a no must be there before the next plan is made.
            await self.telling.record()
        run.plan_n += 1
        run.changed = run.worse = run.woken = False
        request = sig.PlanRequest(
            incident=run.incident,
            n=run.plan_n,
            cluster=run.cluster,
            node=run.node,
            faults=run.faults,
            opened_at=run.opened_at,
            # In mid-repair a node may be away for a while; only one that a person has may simply be gone.
            seen=bool(run.plan and run.plan.identity.machine_id)
            and (not run.asked_rungs or run.state is State.HANDED_OVER),
            asked_rungs=tuple(run.asked_rungs),
            failed=run.failed,
            hand_over=run.hand_over,
            asked=run.asked if run.requested else None,
            nothing_came=tuple(run.nothing_came),
            under_way=under_way,
        )
        plan = await self.steps.local(sig.PLAN, request)
        if run.found_another(plan.identity):
            run.plan = plan
            return await self._plan(under_way)
        if run.plan is None or plan.hash != run.plan.hash:
            what = plan.rung or plan.action
            alternatives = [f"{p.rung}: {p.why}" for p in plan.passed_over]
            run.note(
                "decision",
                workflow.now(),
                f"{what} for {plan.cause or 'no open fault'}: {'; '.join(plan.reasons)}"[:1500],
                hash=plan.hash,
                policy_version=plan.policy_version,
                policy_hash=plan.policy_hash,
                passed_over=alternatives,
                destroys=list(plan.destroys),
                approval=plan.approval.model_dump(mode="json") if plan.approval else None,
                drain=plan.drain,
                would=plan.would,
            )
        run.plan = plan
        return plan

    async def _follow(self, plan: Plan) -> End | None:
        match plan.action:
            case Action.ACT:
                return await self.remediation.carry_out(plan)
            case Action.WATCH:
                await self._watch(plan)
                return None
            case Action.OBSERVE:
                return await self._observe(plan)
            case Action.HAND_OVER:
                return await self._hand_over(plan)
            case Action.RECORD | Action.WITHDRAW:
                if not await self.marking.lift():
                    return None
                return End.DISPOSED if plan.gone else End.WITHDRAWN

    async def _watch(self, plan: Plan) -> None:
        """Marked, and given time to clear by itself."""
        run = self.run_state
        if plan.mark:
            await self._try_mark(plan)
        self.telling.announce(plan)
        run.state = State.WATCHING
        await self.steps.until(lambda: run.changed or run.woken or self._person(), plan.watch_s)

    async def _observe(self, plan: Plan) -> End | None:
        """Touches nothing; says once what it would do; ends when nobody repeats the fault for the quiet time."""
        run = self.run_state
        run.state, run.waiting_for = State.OBSERVED, "a person, or quiet"
        await self.telling.record()
        said = f"{run.cluster}/{run.node}: {plan.cause}. {plan.would or '; '.join(plan.reasons[:2])}"
        self.telling.beside(self.telling.notify(f"observed {plan.cause}", said))
        while not await self.steps.until(lambda: run.changed or run.woken or self._person(), self._observe_s(plan)):
            if self._quiet_left(plan) <= 0:
                run.note("state", workflow.now(), f"nobody repeated it for {plan.quiet_s / 3600:.1f} h")
                return End.WITHDRAWN if await self.marking.lift() else None
            if plan.watch_s:
                break  # what holds it back may be over
        return await self._answered(plan)

    def _observe_s(self, plan: Plan) -> float:
        left = self._quiet_left(plan)
        return min(left, plan.watch_s) if plan.watch_s else left

    def _quiet_left(self, plan: Plan) -> float:
        run = self.run_state
        last = max((f.last_seen for f in run.faults.faults), default=run.opened_at)
        return plan.quiet_s - (workflow.now() - last).total_seconds()

    async def _hand_over(self, plan: Plan) -> End | None:
        """A person has it, with what was tried; the node stays marked until a check says otherwise."""
        run = self.run_state
        # A latch, a successor's day and a week's attempts run out while a person has it; that is no leave to go on.
        run.hand_over = run.hand_over or plan.reasons[0]
        if plan.mark:
            await self._try_mark(plan)
        await self.remediation.take_back()
        new = run.state is not State.HANDED_OVER or bool(run.lines)
        run.state = State.HANDED_OVER
        run.waiting_for = run.owner or "a person"
        if new:
            await self.telling.record()
        why = "; ".join(filter(None, (*plan.reasons[:3], run.of_successor)))
        text = f"{run.cluster}/{run.node} needs a person: {plan.cause}. {why}"
        page = not unplanned(run.faults.codes, plan.rung, run.order_sent or run.drained)
        self.telling.beside(self.telling.notify(f"handed over {plan.cause}", text, page=page))
        await self.steps.until(lambda: run.changed or self._person() or run.woken, LOOK_AGAIN_S)
        return await self._answered(plan)

    async def _answered(self, plan: Plan) -> End | None:
        """A waiting state is over: a person closed or confirmed it, or there is reason to plan again."""
        run = self.run_state
        run.waiting_for = ""
        if run.abort_by:
            return await self._closed_by_a_person(run.abort_by)
        if run.worse:
            run.hand_over = ""
        return None

    async def _confirmed(self, plan: Plan) -> End | None:
        """A person's word starts the check; it does not skip it."""
        run = self.run_state
        who, run.confirm_by, run.hand_over = run.confirm_by, None, ""
        if await self.remediation.verify(plan, workflow.now(), None):
            return await self.remediation.give_back(plan, End.RETURNED)
        run.hand_over = f"{who} said it was repaired, but {run.failed}"
        return None

    async def _closed_by_a_person(self, who: str) -> End:
        run = self.run_state
        if any(f.fault_class.latched for f in run.faults.faults) and run.marked:
            run.note("state", workflow.now(), f"closed by {who}; the node stays marked, no check has passed")
        else:
            await self.marking.lift()
        return End.WITHDRAWN

    async def _try_mark(self, plan: Plan) -> None:
        try:
            await self.marking.mark(plan)
        except Again:
            self.run_state.note("state", workflow.now(), f"not marked: {self.run_state.failed or 'refused'}")

    def _person(self) -> bool:
        run = self.run_state
        return bool(run.abort_by or run.confirm_by or run.resume_by) or run.holding(workflow.now())

    def _stopped_by_a_person(self) -> None:
        run = self.run_state
        if run.abort_by:
            who, run.abort_by = run.abort_by, None
            run.stop(who, run.abort_why)
            self.standing.latch(f"stopped by {who}", who)
            run.hand_over = f"stopped by {who}"
            run.owner = run.owner or who

    async def _held(self) -> None:
        run = self.run_state
        while (hold := run.hold) and run.holding(workflow.now()):
            run.state, run.waiting_for = State.HELD, f"{hold.owner} until {hold.until.isoformat()}"
            await self.telling.record()
            left = (hold.until - workflow.now()).total_seconds()
            await self.steps.until(lambda: run.hold is not hold or bool(run.abort_by or run.confirm_by), left)
            if run.abort_by or run.confirm_by:
                run.hold = None
            await self._make_room()
        run.waiting_for = ""

    # -- ends --------------------------------------------------------------------------------------------------

    async def _make_room(self) -> None:
        """Continues as new when the history is long; only between two plans, with nothing under way."""
        if not workflow.info().is_continue_as_new_suggested():
            return
        await self.telling.settle()
        await workflow.wait_condition(workflow.all_handlers_finished)
        run = self.run_state
        workflow.continue_as_new(NodeInput(cluster=run.cluster, node=run.node, timing=run.timing, carried=run.carry()))

    async def _close(self, end: End) -> str:
        run = self.run_state
        run.closing = True
        await self.permission.release()
        await self.remediation.take_back()
        run.end, run.state = end, State.ENDED
        run.note("end", workflow.now(), "; ".join(filter(None, (str(end), run.of_successor))))
        text = f"{run.cluster}/{run.node}: {end}. {run.left_behind}".strip()
        page = bool(run.left_behind)
        self.telling.beside(self.telling.notify(f"end {end}", text, page=page, patience_s=LAST_WORD_S))
        while not await self.telling.record():
            workflow.logger.warning("the end of %s is not in the ledger yet", run.incident)
        await self.telling.settle(lambda: bool(run.inbox))
        while run.lines and not run.inbox and not await self.telling.record():
            workflow.logger.warning("the last lines of %s are not in the ledger yet", run.incident)
        await workflow.wait_condition(workflow.all_handlers_finished)
        heard, run.closing = tuple(run.inbox), False
        run.absorb(workflow.now())
        if heard and run.changed:
            # Heard while the end was being written: a new incident, which reads this one from the ledger.
            workflow.continue_as_new(NodeInput(cluster=run.cluster, node=run.node, timing=run.timing, heard=heard))
        return str(end)
