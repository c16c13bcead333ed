"""When a plan still stands: what sends an incident back to plan, and how a step's end is judged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow

from medevac.incident import Outcome, StepResult
from workflows.run import IncidentRun

MAX_REFUSALS = 5
"""Steps that found another world than the plan's, in one incident, before a person is asked to look."""


class Again(Exception):
    """The plan no longer stands: plan again."""


@dataclass(slots=True)
class Standing:
    """Judges for one incident whether its plan may go on."""

    run: IncidentRun
    refusals: int = 0

    def stopped(self) -> bool:
        """A person stopped or held it, or the faults are gone or worse: stop between two effects."""
        run = self.run
        gone = bool(run.plan and run.plan.faults) and not run.faults.faults
        return bool(run.abort_by) or run.holding(workflow.now()) or run.worse or gone

    def moved(self) -> bool:
        return self.run.changed or self.stopped()

    def stay(self) -> None:
        """Before each destructive step: whatever came meanwhile sends us back to plan, delivered cancel or not."""
        self.run.absorb(workflow.now())
        if self.moved():
            raise Again

    def judge(self, step: str, result: StepResult) -> None:
        """Lets a good result pass; any other is noted and sends us back to plan."""
        if result.outcome.ok:
            return
        run = self.run
        if result.outcome is Outcome.REFUSED:
            self.refusals += 1
            run.marked = run.marked and step != "mark"
            if result.who:
                self.latch(f"{step} refused: {result.reason}", result.who)
            elif self.refusals >= MAX_REFUSALS:
                run.hand_over = f"{step} was refused {self.refusals} times, last: {result.reason}"
        elif result.outcome is Outcome.BLOCKED:
            run.hand_over = f"{step} is blocked by {result.who or 'someone'}: {result.reason}"
        elif result.outcome is not Outcome.CANCELLED:
            run.failed = f"{step} {result.outcome}: {result.reason}"
            if step in ("evacuate", "mark"):
                run.hand_over = run.failed
        raise Again

    def latch(self, why: str, by: str) -> None:
        """A veto, reject or expiry holds for this machine and fault set for 24 h."""
        run = self.run
        plan = run.plan
        now = workflow.now()
        run.note(
            "latch",
            now,
            why,
            by=by,
            machine_id=plan.identity.machine_id if plan else None,
            faults=list(run.faults.codes),
            until=(now + timedelta(hours=24)).isoformat(),
        )
