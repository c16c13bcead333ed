"""The campaign workflow: people's yes, then step after step until it ends. What it knows stands in the ledger."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from medevac.approvals.approval import ApprovalRequest
    from medevac.campaigns.progress import CampaignState
    from medevac.incident import Outcome, StepKey, StepResult
    from workflows.messages import ANSWER_SLACK_S, CAMPAIGN, CampaignInput, Decided, approval_workflow_id

STEPS_IN_A_RUN = 1_000
LAST_WORD_S = 30.0
TOLD = (CampaignState.HALTED, CampaignState.PAUSED, CampaignState.ENDED)


@workflow.defn(name=CAMPAIGN)
class CampaignWorkflow:
    """Orders of people are written to the ledger by the gateway, where each step and each node reads them; `wake`
    only makes it look at once."""

    @workflow.init
    def __init__(self, given: CampaignInput) -> None:
        self.given = given
        self.n = given.n
        self.state = given.state
        self.told = given.told
        self.woken = False
        self.decision: Decided | None = None
        self.saying: list[asyncio.Task[None]] = []

    @workflow.signal
    def decided(self, decided: Decided) -> None:
        self.decision = decided

    @workflow.signal
    def wake(self) -> None:
        self.woken = True

    @workflow.query
    def shown(self) -> CampaignState:
        return self.state

    @workflow.run
    async def run(self, given: CampaignInput) -> str:
        if self.state is CampaignState.ASKED:
            approved, reason = await self._ask()
            await self._step(approved, reason)
        while not self._over():
            self.woken = False
            look_again_s = await self._step()
            if not self._over():
                await self._until_woken(look_again_s)
            if workflow.info().is_continue_as_new_suggested() or self.n - given.n > STEPS_IN_A_RUN:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(given.model_copy(update={"n": self.n, "state": self.state, "told": self.told}))
        if self.saying:
            await workflow.wait(self.saying, timeout=LAST_WORD_S)
        return str(self.state)

    def _over(self) -> bool:
        return self.state is CampaignState.ENDED

    async def _ask(self) -> tuple[bool, str]:
        """A yes to this very list; no answer is a no."""
        question = self.given.question
        if question is None:
            return False, "it was started without a question"
        request = sig.AskRequest(key=self._key("ask"), request=question, timing=self.given.timing)
        try:
            asked: StepResult = await workflow.execute_activity(
                sig.ASK.name, request, result_type=sig.ASK.gives, **sig.ASK.options(self.given.timing)
            )
        except ActivityError as error:
            return False, f"nobody could be asked: {error.cause}"
        if asked.outcome is Outcome.ALREADY and "result" in asked.proof:
            self.decision = Decided.model_validate({"result": asked.proof["result"]})
        try:
            await workflow.wait_condition(
                lambda: self.decision is not None or self.woken,
                timeout=timedelta(seconds=question.need.expires_s + ANSWER_SLACK_S),
            )
        except TimeoutError:
            return False, "nobody answered in time, which is a no"
        if self.decision is None:
            # Nobody wakes one that waits for its yes but people who have stopped it.
            return False, await self._withdraw(question)
        return self.decision.result.answers(question.waiter, "list")

    async def _withdraw(self, question: ApprovalRequest) -> str:
        handle = workflow.get_external_workflow_handle(approval_workflow_id(question.id))
        try:
            await handle.signal("leave", question.waiter.incident)
        except ApplicationError as error:
            workflow.logger.info("%s needs no word any more: %s", question.id, error)
        return "it was stopped before people agreed to it"

    async def _step(self, decided: bool | None = None, reason: str = "") -> float:
        self.n += 1
        request = sig.CampaignStepRequest(
            campaign=self.given.id, n=self.n, decided=decided, reason=reason, told=self.told
        )
        stepped: sig.CampaignStepped = await workflow.execute_activity(
            sig.CAMPAIGN_STEP.name,
            request,
            result_type=sig.CAMPAIGN_STEP.gives,
            **sig.CAMPAIGN_STEP.options(self.given.timing),
        )
        for word in stepped.words:
            self.told = word.n
            self._say(f"campaign {self.given.id}: {word.text}", StepKey(incident=self._thread, step="word", n=word.n))
        if stepped.state is not self.state and stepped.state in TOLD:
            text = f"campaign {self.given.id} is {stepped.state}: {stepped.why}"
            self._say(text, self._key("notify"), page=stepped.state is CampaignState.HALTED)
        self.state = stepped.state
        return stepped.look_again_s

    async def _until_woken(self, seconds: float) -> None:
        try:
            await workflow.wait_condition(lambda: self.woken, timeout=timedelta(seconds=max(0.1, seconds)))
        except TimeoutError:
            return

    @property
    def _thread(self) -> str:
        return f"campaign-{self.given.id}"

    def _key(self, step: str) -> StepKey:
        return StepKey(incident=self._thread, step=step, n=max(1, self.n))

    def _say(self, text: str, key: StepKey, page: bool = False) -> None:
        """Beside the work: a chat that is down never holds a campaign's halt back."""
        self.saying.append(asyncio.create_task(self._post(text, key, page)))

    async def _post(self, text: str, key: StepKey, page: bool) -> None:
        request = sig.NotifyRequest(key=key, thread=self._thread, text=text, page=page)
        try:
            await workflow.execute_activity(
                sig.NOTIFY.name, request, result_type=sig.NOTIFY.gives, **sig.NOTIFY.options(self.given.timing)
            )
        except ActivityError as error:
            workflow.logger.warning("campaign %s: chat did not take the message: %s", self.given.id, error.cause)
