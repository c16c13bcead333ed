"""Telling: the ledger's row and lines, and people. Neither ever stops an incident."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities import signatures as sig
from medevac.policy.plan import Plan
from workflows.run import IncidentRun
from workflows.steps import Steps, never


@dataclass(slots=True)
class Telling:
    run: IncidentRun
    steps: Steps
    _beside: list[asyncio.Task[object]] = field(default_factory=list)

    async def record(self) -> bool:
        """Upserts the incident's row and the lines not yet written. False: not now, they are kept for the next."""
        run = self.run
        request = sig.RecordRequest(key=run.key("record"), view=run.view(workflow.now()), lines=run.take_lines())
        try:
            await self.steps.call(sig.RECORD, request)
        except ActivityError:
            run.lines = [*request.lines, *run.lines]
            return False
        return True

    async def notify(self, what: str, text: str, *, page: bool = False, patience_s: float = 0.0) -> None:
        """Says it once; a chat that is down never stops an incident. The first word of `what` is the topic."""
        run = self.run
        if not run.first_time(what):
            return
        request = sig.NotifyRequest(
            key=run.key("notify"), thread=run.incident, text=text, page=page, topic=what.split()[0]
        )
        try:
            said = await self.steps.call(sig.NOTIFY, request, deadline_s=patience_s)
            self.steps.heard(sig.NOTIFY, request.key, said)
        except ActivityError:
            run.note("message", workflow.now(), f"could not be posted: {text[:200]}")

    def announce(self, plan: Plan) -> None:
        """Ledger and chat beside the next step: neither may delay it."""
        run = self.run
        rung = f"{plan.rung}{plan.by} ({plan.attempt} of {plan.of})" if plan.rung else str(plan.action)
        text = f"{run.cluster}/{run.node}: {plan.cause} → {rung}. {plan.reasons[0] if plan.reasons else ''}"
        self.beside(self.record())
        self.beside(self.notify(f"plan {plan.cause} {plan.rung}", text))

    def beside(self, telling: Coroutine[Any, Any, object]) -> None:
        self._beside.append(asyncio.create_task(telling))

    async def settle(self, enough: Callable[[], bool] = never) -> None:
        """Waits for what runs beside, unless there is something better to do."""
        await self.steps.until(lambda: all(task.done() for task in self._beside) or enough())
        done, self._beside = [task for task in self._beside if task.done()], []
        for task in done:
            await task
