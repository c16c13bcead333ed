"""The bare Temporal workflow that the engine is held against: the same activities, and nothing else.

It runs the steps of one recorded incident of ours one after the other: the same kinds (local, remote), queues,
time-outs, and payload models, on the same number of threads, through the same converter and sandbox. Its activities
return what ours returned, at once: no ledger, no world, no checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from activities import signatures as sig
    from benchmarks._recorded import steps
    from medevac.events.event import HealthEvent
    from workflows.messages import NodeInput

BARE = "bare"


def queue(one: sig.Queue) -> str:
    return f"bare-{one.value}"


@workflow.defn(name=BARE)
class BareWorkflow:
    @workflow.init
    def __init__(self, given: NodeInput) -> None:
        self.heard: list[HealthEvent] = []

    @workflow.signal
    def report(self, event: HealthEvent) -> None:
        self.heard.append(event)

    @workflow.run
    async def run(self, given: NodeInput) -> str:
        for step in steps():
            options = step.signature.options(given.timing, 60.0)
            options["result_type"] = step.signature.gives
            if step.local:
                await workflow.execute_local_activity(step.signature.name, step.takes, **options)
            else:
                options["task_queue"] = queue(step.signature.queue)
                await workflow.execute_activity(step.signature.name, step.takes, **options)
        return f"{len(self.heard)} events"


def activities(one: sig.Queue) -> list[Callable[..., Any]]:
    """For every signature of the queue: answers as ours did."""
    answers = {step.signature.name: step.gives for step in steps()}

    def made(signature: sig.Activity[Any, Any]) -> Callable[..., Any]:
        def run(request: Any) -> Any:
            return answers[signature.name]

        run.__annotations__ = {"request": signature.takes, "return": signature.gives}
        return activity.defn(name=signature.name)(run)

    return [made(signature) for signature in sig.ALL if signature.queue is one and signature.name in answers]
