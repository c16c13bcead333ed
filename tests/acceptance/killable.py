"""A worker process like any other, that can be killed at its steps' boundaries and notes when each step begins.

`python -m tests.acceptance.killable`. The notes go to the file that `MEDEVAC_STEPS_FILE` names, one JSON object a
line; a step that was killed has a `begin` and no `end`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

import worker.assembly
from simulation.boundaries import BoundaryKills
from worker.cli import main

VARIABLE = "MEDEVAC_STEPS_FILE"


class Notes(Interceptor):
    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next, self._handle)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, handle: int) -> None:
        super().__init__(inner)
        self._handle = handle

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self._note("begin")
        try:
            return await self.next.execute_activity(input)
        finally:
            self._note("end")

    def _note(self, what: str) -> None:
        info = activity.info()
        note = {
            "what": what,
            "at": time.time(),
            "pid": os.getpid(),
            "workflow": info.workflow_id,
            "run": info.workflow_run_id,
            "activity": info.activity_id,
            "type": info.activity_type,
            "attempt": info.attempt,
        }
        os.write(self._handle, json.dumps(note).encode() + b"\n")


def install() -> None:
    assemble = worker.assembly.assemble

    def killable(*args: Any) -> worker.assembly.Assembly:
        made = assemble(*args)
        ours: list[Interceptor] = [BoundaryKills()]
        if path := os.environ.get(VARIABLE):
            ours.insert(0, Notes(path))
        return replace(made, interceptors=[*ours, *made.interceptors])

    setattr(worker.assembly, "assemble", killable)  # noqa: B010  a module's function, not an attribute of ours


if __name__ == "__main__":
    install()
    sys.argv[1:] = ["worker"]
    main()
