"""The approval workflow: one question, shared by all who wait for its answer, until decided, expired or withdrawn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from medevac.approvals import tally
    from medevac.approvals.approval import ApprovalResult, ApprovalView, Voided, Vote
    from medevac.approvals.signing import Signatures
    from medevac.incident import Line, StepKey
    from workflows.messages import APPROVAL, ApprovalInput, AskRequest, Decided

SIGNALS_AT_ONCE = 200
GATHER_S = 1.0
GATHER_MOST_S = 15.0
GATHERED_PER_S = 20
"""Joins and leaves within a time are written to the ledger together, and the longer the list the longer that time:
the whole list is written each time, and a storm's must not outgrow the history."""
VOID_IS_TOLD = "void-is-told"
"""Patch: older releases voided votes without a word and without more time."""
CAME_BACK = "came-back"
"""Patch: older releases lost a waiter that left and joined again within one gather."""


@workflow.defn(name=APPROVAL)
class ApprovalWorkflow:
    """Votes come as updates whose answer says what is true; the pure tally decides."""

    @workflow.init
    def __init__(self, given: ApprovalInput) -> None:
        self.id = given.id
        self.timing = given.timing
        with workflow.unsafe.sandbox_unrestricted(), workflow.unsafe.imports_passed_through():
            self.signatures = Signatures(given.vote_keys)
        self.view: ApprovalView | None = given.carried
        self.result: ApprovalResult | None = given.carried.result if given.carried else None
        self.inbox: list[AskRequest] = []
        self.left: list[str] = []
        self.steps: dict[str, int] = {}
        self.changed = False
        self.lines: list[Line] = []
        """Of votes that became void; they go with the next record."""
        self.unkept: dict[str, ApprovalView] = {}
        """By digest, lists that people voted on and no record has held yet."""
        self.kept: set[str] = set()
        self.saying: list[asyncio.Task[None]] = []

    # -- messages ----------------------------------------------------------------------------------------------

    @workflow.signal
    def join(self, ask: AskRequest) -> None:
        self._join([ask])

    @workflow.signal
    def join_many(self, asks: list[AskRequest]) -> None:
        self._join(asks)

    @workflow.signal
    def leave(self, incident: str) -> None:
        self.left.append(incident)

    def _join(self, asks: list[AskRequest]) -> None:
        self.inbox += asks
        back = {ask.request.waiter.incident for ask in asks}.intersection(self.left)
        if back and workflow.patched(CAME_BACK):
            # Its last word holds: it waits, with the plan that it has now.
            self.left = [incident for incident in self.left if incident not in back]

    @workflow.query
    def shown(self) -> ApprovalView | None:
        return self.view

    @workflow.update
    async def decide(self, vote: Vote) -> str:
        # Joins still in the inbox stay there: the voter has not seen them.
        self.view, answer = tally.cast(self._open(), vote, workflow.now())
        self.changed = True
        return answer

    @decide.validator
    def _check_vote(self, vote: Vote) -> None:
        if self.view is None:
            raise ValueError(f"{self.id} has not been asked yet")
        # The library resolves its own errors by import while it verifies; the sandbox's answer to that would end
        # the process.
        with workflow.unsafe.sandbox_unrestricted(), workflow.unsafe.imports_passed_through():
            genuine = self.signatures.genuine(vote)
        if not genuine:
            raise ValueError("this vote was not signed by the gateway; vote there, as yourself")
        if refusal := tally.refusal(self.view, vote, workflow.now()):
            raise ValueError(refusal)

    # -- the question ------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, given: ApprovalInput) -> str:
        await workflow.wait_condition(lambda: bool(self.inbox) or self.view is not None)
        asked = reminded = False
        while True:
            if self.view is not None:
                self.result = tally.result(self.view, workflow.now())
            if self.result is not None:
                break
            self._take_in()
            view = self._open()
            if not view.waiters:
                continue
            if not asked:
                asked = True
                self._say(f"{view.title}: yes or no? {len(view.waiters)} waiting, see approval {view.id}", shown=True)
                continue
            if self.changed:
                self.changed = False
                await self._record()
            now = workflow.now()
            remind_at, reminder = tally.remind_at(view), view.need.reminder
            # Without a reminder of its own, the one that is overdue is left out, as histories have it.
            over = reminded or (remind_at <= now and reminder is None)
            due = view.expires_at if over else min(remind_at, view.expires_at)
            if await self._news(max(due - now, timedelta(milliseconds=1))):
                continue
            if due == remind_at and not reminded:
                reminded = True
                until = f"{view.expires_at:%H:%M} UTC"
                then = reminder.then if reminder else ()
                also = f"; {' and '.join(then)} may vote as well from now on" if then else ""
                self._say(f"still waiting for a yes or no until {until}: {view.title} ({view.id}){also}", then)
                if then:
                    # Whoever looks at the ledger for what waits for them looks again.
                    self.view = (latest := self._open()).model_copy(update={"rev": latest.rev + 1})
                    self.changed = True
        self.view = self._open().model_copy(update={"state": self.result.state, "result": self.result})
        await self._record()
        await self._tell()
        for saying in self.saying:
            saying.cancel()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return str(self.result.state)

    async def _news(self, timeout: timedelta) -> bool:
        try:
            await workflow.wait_condition(lambda: bool(self.inbox or self.left) or self.changed, timeout=timeout)
        except TimeoutError:
            return False
        if not self.changed:
            listed = len(self.view.waiters) if self.view else 0
            gather_s = min(max(GATHER_S, listed / GATHERED_PER_S), GATHER_MOST_S, timeout.total_seconds())
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: self.changed, timeout=timedelta(seconds=gather_s))
        return True

    def _open(self) -> ApprovalView:
        if self.view is None:
            raise ApplicationError(f"{self.id} was started without a question", non_retryable=True)
        return self.view

    def _take_in(self) -> None:
        """All joins, then the leaves that no later join of the same incident has overtaken: each one's last word
        holds, and a storm's list is hashed once. The ledger hears of them with the next record."""
        if self.inbox:
            asked = [ask.request for ask in self.inbox]
            self.inbox.clear()
            before, now = self.view, workflow.now()
            self._keep(before)
            self.view = tally.join_all(before, asked, workflow.info().workflow_id, now)
            self.changed = True
            if before is not None and (lost := tally.voided(before, self.view)) and workflow.patched(VOID_IS_TOLD):
                self.view = tally.prolonged(self.view, now)
                self._tell_voters(lost)
        while self.left:
            incident = self.left.pop(0)
            if self.view is not None:
                self._keep(self.view)
                self.view = tally.leave(self.view, incident)
                self.changed = True

    def _keep(self, view: ApprovalView | None) -> None:
        """What voters saw is written as they saw it, also where the list changes before the next record."""
        if view is not None and view.shown_hash not in self.kept and tally.seen(view):
            self.unkept[view.shown_hash] = view

    def _tell_voters(self, lost: tuple[Voided, ...]) -> None:
        view = self._open()
        for one in lost:
            self.lines.append(
                Line(
                    key=self._key("void"),
                    at=one.at,
                    kind="void",
                    text=f"{view.title}: {tally.no_longer(one)}"[:1_000],
                    data=one.model_dump(mode="json"),
                )
            )
        said = "; ".join(tally.no_longer(one) for one in lost)
        until = f"{view.expires_at:%Y-%m-%d %H:%M} UTC"
        self._say(
            f"{view.title}: {said}. Look again, then vote: approval {view.id}, open until {until}",
            tuple(dict.fromkeys(one.vote.voter for one in lost)),
        )

    # -- telling -----------------------------------------------------------------------------------------------

    def _key(self, step: str) -> StepKey:
        n = self.steps.get(step, 0) + 1
        self.steps[step] = n
        return StepKey(incident=self.id, step=step, n=n)

    async def _record(self) -> None:
        view, lines, unkept = self.view, tuple(self.lines), dict(self.unkept)
        request = sig.RecordRequest(key=self._key("record"), approval=view, lines=lines, seen=tuple(unkept.values()))
        try:
            await workflow.execute_activity(
                sig.RECORD.name, request, result_type=sig.RECORD.gives, **sig.RECORD.options(self.timing)
            )
            del self.lines[: len(lines)]
            self.unkept = {shown: one for shown, one in self.unkept.items() if shown not in unkept}
            self.kept |= unkept.keys()
            if view is not None and tally.seen(view):
                self.kept.add(view.shown_hash)
        except ActivityError as error:
            # The lines stay for the next record.
            workflow.logger.warning("approval %s could not be written to the ledger: %s", self.id, error.cause)

    def _say(self, text: str, mention: tuple[str, ...] = (), *, shown: bool = False) -> None:
        """Beside the wait: a chat that is down never holds a vote back."""
        request = sig.NotifyRequest(
            key=self._key("notify"), thread=self.id, text=text, page=True, mention=mention, shown=shown
        )
        self.saying.append(asyncio.create_task(self._post(request)))

    async def _post(self, request: sig.NotifyRequest) -> None:
        try:
            await workflow.execute_activity(
                sig.NOTIFY.name, request, result_type=sig.NOTIFY.gives, **sig.NOTIFY.options(self.timing)
            )
        except ActivityError as error:
            workflow.logger.warning("approval %s: chat did not take the message: %s", self.id, error.cause)

    async def _tell(self) -> None:
        """Everyone who waits learns the answer; one who is gone by now needs none."""
        result = self.result
        if result is None:
            return
        mine = {waiter.workflow_id: waiter.incident for waiter in self._open().waiters}

        async def tell(workflow_id: str) -> None:
            # Only what concerns each: with the whole list in each signal, a long one outgrows the history.
            covers = {i: plan for i, plan in result.covers.items() if i == mine.get(workflow_id)}
            told = Decided(result=result.model_copy(update={"covers": covers}))
            try:
                await workflow.get_external_workflow_handle(workflow_id).signal("decided", told)
            except ApplicationError as error:
                workflow.logger.info("%s needs no answer any more: %s", workflow_id, error)

        waiters = [waiter.workflow_id for waiter in self._open().waiters]
        while waiters or self.inbox:
            # Who joined too late is told as well: not covered, so it asks anew.
            waiters += [self.inbox.pop(0).request.waiter.workflow_id for _ in range(len(self.inbox))]
            batch, waiters = waiters[:SIGNALS_AT_ONCE], waiters[SIGNALS_AT_ONCE:]
            await asyncio.gather(*(tell(each) for each in batch))
