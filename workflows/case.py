"""The case workflow: a clock, and people's yes to the first ticket. What it knows stands in the ledger."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from activities.signatures import CASE, CaseInput, Decided
    from medevac.approvals.approval import ApprovalRequest
    from medevac.cases.case import CaseState, Saying
    from medevac.incident import Outcome, StepKey, StepResult
    from workflows.messages import ANSWER_SLACK_S

STEPS_IN_A_RUN = 1_000
AGAIN_S = 30.0


@workflow.defn(name=CASE)
class CaseWorkflow:
    """Replies, links and people's orders are written to the ledger by whoever brings them; `wake` makes it look."""

    @workflow.init
    def __init__(self, given: CaseInput) -> None:
        self.given = given
        self.n = given.n
        self.told = given.told
        self.asked = given.asked
        self.woken = False
        self.decision: Decided | None = None
        self.question: ApprovalRequest | None = None

    @workflow.signal
    def decided(self, decided: Decided) -> None:
        self.decision = decided

    @workflow.signal
    def wake(self) -> None:
        self.woken = True

    @workflow.run
    async def run(self, given: CaseInput) -> str:
        while True:
            self.woken = False
            stepped = await self._step()
            if stepped is None:
                await self._until_woken(AGAIN_S)
                continue
            for saying in stepped.sayings:
                if not await self._say(saying):
                    break
            if not stepped.state.open:
                return await self._end(stepped.state)
            if stepped.ask is not None and stepped.ask.id != self.asked:
                await self._ask(stepped.ask)
            if not self._answered():
                await self._until_woken(stepped.look_again_s)
            if workflow.info().is_continue_as_new_suggested() or self.n - given.n > STEPS_IN_A_RUN:
                await self._renew()

    async def _step(self) -> sig.CaseStepped | None:
        """None where the ledger could not be read for all of the step's time; the same is asked again."""
        self.n += 1
        request = sig.CaseStepRequest(case=self.given.id, n=self.n, told=self.told)
        if (answer := self._answered()) is not None:
            request = request.model_copy(update={"decided": answer[0], "reason": answer[1]})
        timing = self.given.timing
        try:
            stepped: sig.CaseStepped = await workflow.execute_activity(
                sig.CASE_STEP.name,
                request,
                result_type=sig.CASE_STEP.gives,
                # What may have been sent is looked for within this time.
                schedule_to_close_timeout=timedelta(seconds=timing.give_up_s),
                **sig.CASE_STEP.options(timing),
            )
        except ActivityError as error:
            workflow.logger.warning("%s: step %d came to nothing: %s", self.given.id, self.n, error.cause)
            return None
        if request.decided is not None:
            self.decision = self.question = None
        return stepped

    async def _end(self, state: CaseState) -> str:
        """Once more where it was woken while it said its last words: a person may have opened it again."""
        if self.woken:
            await self._renew()
        if self.question is not None and self.decision is None:
            await self._withdraw(self.question)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return str(state)

    async def _renew(self) -> None:
        if self.question is not None:
            # Asked again under the same name it is answered, or joined, with what is known by then.
            self.asked = ""
        await workflow.wait_condition(workflow.all_handlers_finished)
        carried = {"n": self.n, "told": self.told, "asked": self.asked}
        workflow.continue_as_new(self.given.model_copy(update=carried))

    async def _ask(self, question: ApprovalRequest) -> None:
        request = sig.AskRequest(key=self._key("ask", self.n), request=question, timing=self.given.timing)
        try:
            result: StepResult = await workflow.execute_activity(
                sig.ASK.name, request, result_type=sig.ASK.gives, **sig.ASK.options(self.given.timing)
            )
        except ActivityError as error:
            workflow.logger.warning("%s: nobody could be asked: %s", self.given.id, error.cause)
            return
        self.asked, self.question = question.id, question
        if result.outcome is Outcome.ALREADY and "result" in result.proof:
            self.decision = Decided.model_validate({"result": result.proof["result"]})

    async def _withdraw(self, question: ApprovalRequest) -> None:
        handle = workflow.get_external_workflow_handle(f"approval/{question.id}")
        try:
            await handle.signal("leave", question.waiter.incident)
        except ApplicationError as error:
            workflow.logger.info("%s waits for nobody any more: %s", question.id, error)

    def _answered(self) -> tuple[bool, str] | None:
        """People's answer to this very letter; no answer in time is a no."""
        question = self.question
        if question is None:
            return None
        if self.decision is None:
            late = workflow.now() > question.expires_at + timedelta(seconds=ANSWER_SLACK_S)
            return (False, "nobody answered in time, which is a no") if late else None
        return self.decision.result.answers(question.waiter, "letter")

    async def _until_woken(self, seconds: float) -> None:
        try:
            await workflow.wait_condition(
                lambda: self.woken or self.decision is not None, timeout=timedelta(seconds=max(0.1, seconds))
            )
        except TimeoutError:
            return

    def _key(self, step: str, n: int) -> StepKey:
        return StepKey(incident=self.given.id, step=step, n=max(1, n))

    async def _say(self, saying: Saying) -> bool:
        """What chat doesn't take now is said with the next step: it stays in the ledger until it is told."""
        if saying.n > self.told:
            request = sig.NotifyRequest(
                key=self._key("notify", saying.n), thread=self.given.id, text=saying.text, page=saying.page
            )
            try:
                await workflow.execute_activity(
                    sig.NOTIFY.name, request, result_type=sig.NOTIFY.gives, **sig.NOTIFY.options(self.given.timing)
                )
            except ActivityError as error:
                workflow.logger.warning("%s: chat did not take the message: %s", self.given.id, error.cause)
                return False
            self.told = saying.n
        return True
