"""The mark of one incident: set once, kept true to what is wrong, lifted at the end."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio import workflow

from activities import signatures as sig
from activities.signatures import Mark
from medevac.incident import Outcome, State
from medevac.policy.plan import Plan
from workflows.run import IncidentRun
from workflows.standing import Standing
from workflows.steps import Steps

MARK_AGAIN = "mark_again"
"""Histories that were begun before a standing mark could change its words never call for that."""


@dataclass(slots=True)
class Marking:
    run: IncidentRun
    steps: Steps
    standing: Standing

    async def mark(self, plan: Plan, approval: str | None = None) -> None:
        """Marks the node unless this incident has and the mark still says what is wrong. Beyond the mark budget it
        stays unmarked, and is asked about."""
        run = self.run
        words = _words(plan, run)
        if run.marked:
            if self._mark_says(plan, words) or not workflow.patched(MARK_AGAIN):
                return
            await self._mark_again(plan, words)
            return
        run.state = State.PLANNED
        result = await self.steps.step(sig.MARK, self._mark_request(plan, approval))
        if result.outcome is Outcome.BLOCKED:
            run.note("state", workflow.now(), f"not marked: {result.reason}")
            return
        self.standing.judge("mark", result)
        run.marked, run.marked_as = True, words
        run.state = State.MARKED

    def _mark_says(self, plan: Plan, words: str) -> bool:
        """Also where nothing is open, or the node has a successor: the mark then stays as it was until it is lifted."""
        run = self.run
        return not (plan.faults and run.faults.faults) or run.subject != run.node or words == run.marked_as

    async def _mark_again(self, plan: Plan, words: str) -> None:
        """Another fault is the worst, or there are others: the standing mark says so, once for each such change.

        One that is refused stays ours, to be lifted. One that can't be written holds nothing up: the node is marked.
        """
        run = self.run
        result = await self.steps.step(sig.MARK, self._mark_request(plan, None, again=True))
        if result.outcome.ok or result.outcome is Outcome.REFUSED:
            run.marked_as = words
            self.standing.judge("mark again", result)
            return
        run.note("state", workflow.now(), f"the mark still says what it said before: {result.outcome}: {result.reason}")

    def _mark_request(self, plan: Plan, approval: str | None, *, again: bool = False) -> sig.MarkRequest:
        run = self.run
        return sig.MarkRequest(
            key=run.key("mark"),
            cluster=run.cluster,
            node=run.node,
            pool=plan.pool,
            identity=plan.identity,
            mark=Mark(
                incident=run.incident,
                code=_mark_code(plan),
                faults=run.faults.codes,
                reason=plan.reasons[0] if plan.reasons else "",
            ),
            fault_class=run.fault_class,
            domains=plan.domains,
            plan_hash=plan.hash,
            view=run.view(workflow.now()),
            approval=approval or (plan.order.approval if plan.order else None),
            campaign=plan.order.campaign if plan.order else None,
            again=again,
        )

    async def lift(self) -> bool:
        """Removes our marks. Where that can't be done a person is called: nothing ends with a mark left by mistake."""
        run = self.run
        if not run.marked and run.subject == run.node:
            return True
        request = sig.LiftRequest(key=run.key("lift"), cluster=run.cluster, node=run.subject, incident=run.incident)
        result = await self.steps.step(sig.LIFT, request)
        if result.outcome.ok:
            run.marked, run.marked_as = False, ""
            return True
        run.hand_over = f"our mark could not be lifted: {result.reason}"
        return False


def _mark_code(plan: Plan) -> str:
    return (plan.cause or "unknown").replace("/", "-")[:63]


def _words(plan: Plan, run: IncidentRun) -> str:
    """What a mark says that people and programs go by: the worst fault, and all of them in whatever order."""
    return " ".join((_mark_code(plan), *sorted(run.faults.codes)))
