"""Worker processes of the benchmarks: `python -m benchmarks._worker {ours,bare}`.

`ours` is the real worker with wide limits, and notes when each activity begins where MEDEVAC_STEPS_FILE says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

import worker.assembly
import worker.installation
from activities.guard.store import GuardStore
from benchmarks._wide import WidePolicies
from simulation.boundaries import BoundaryKills
from worker.stores import Stores, open_stores

STEPS = "MEDEVAC_STEPS_FILE"


class Notes(Interceptor):
    """One JSON line for each beginning of an activity, written before anything else of it runs."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Noting(next, self._handle)


class _Noting(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, handle: int) -> None:
        super().__init__(inner)
        self._handle = handle

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        note = {"at": time.time(), "pid": os.getpid(), "workflow": info.workflow_id, "type": info.activity_type}
        os.write(self._handle, json.dumps(note).encode() + b"\n")
        return await self.next.execute_activity(input)


def wide_stores(url: str) -> Stores:
    stores = open_stores(url)
    policies = WidePolicies(stores.database)
    return replace(stores, policies=policies, guard=GuardStore(stores.database, policies))


def ours() -> None:
    from worker.cli import main

    setattr(worker.installation, "open_stores", wide_stores)  # noqa: B010  a name that it imported
    if path := os.environ.get(STEPS):
        assemble = worker.assembly.assemble

        def noting(*args: Any) -> worker.assembly.Assembly:
            made = assemble(*args)
            return replace(made, interceptors=[Notes(path), BoundaryKills(), *made.interceptors])

        setattr(worker.assembly, "assemble", noting)  # noqa: B010
    sys.argv[1:] = ["worker"]
    main()


async def bare() -> None:
    from activities.signatures import Queue
    from benchmarks._bare import BareWorkflow, activities, queue
    from worker.connection import connect
    from worker.runtime import HEARTBEAT_THROTTLE, STICKY_TIMEOUT
    from worker.settings import load_settings

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client, settings = await connect("bare"), load_settings()
    slots = {
        Queue.MAIN: settings.activity_slots,
        Queue.MACHINES: settings.machine_slots,
        Queue.CHAT: settings.chat_slots,
    }
    workers = [
        Worker(
            client,
            task_queue=queue(one),
            activities=activities(one),
            workflows=[BareWorkflow] if one is Queue.MAIN else [],
            activity_executor=ThreadPoolExecutor(slots[one]),
            max_concurrent_activities=slots[one],
            max_concurrent_workflow_tasks=100 if one is Queue.MAIN else None,
            max_cached_workflows=settings.cached_workflows if one is Queue.MAIN else 0,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        )
        for one in Queue
    ]
    async with workers[0], workers[1], workers[2]:
        await stop.wait()


if __name__ == "__main__":
    ours() if sys.argv[1] == "ours" else asyncio.run(bare())
