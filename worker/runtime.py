"""The worker process: polls the task queues until it is told to stop, and says whether it does."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.worker import Interceptor, Worker, WorkerDeploymentConfig

from activities import signatures
from activities.signatures import Queue
from worker import metrics
from worker.connection import connect
from worker.installation import open_installation
from worker.liveness import Liveness
from worker.mirroring import mirroring
from worker.probe import probe_server
from worker.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""How late a cancel may reach an activity; the default of 30 s would let an aborted drain go on."""
STICKY_TIMEOUT = timedelta(seconds=2)
"""How long the tasks of a dead worker's queue wait before another worker takes them."""


class Incomplete(RuntimeError):
    """An activity that workflows may call has no implementation; the worker would hang them."""


def by_queue(implementations: Sequence[Callable[..., Any]]) -> dict[Queue, list[Callable[..., Any]]]:
    """Implementations by the queue of their signature. Raises `Incomplete`."""
    named: dict[str, Callable[..., Any]] = {}
    for one in implementations:
        definition = activity._Definition.must_from_callable(one)
        if definition.name is None or definition.name in named:
            raise Incomplete(f"activity {definition.name} is implemented twice")
        named[definition.name] = one
    if missing := [known.name for known in signatures.ALL if known.name not in named]:
        raise Incomplete(f"no implementation of the activities {', '.join(missing)}; the worker would hang workflows")
    if strange := set(named) - {known.name for known in signatures.ALL}:
        raise Incomplete(f"activities without a signature: {', '.join(sorted(strange))}")
    queues: dict[Queue, list[Callable[..., Any]]] = {queue: [] for queue in Queue}
    for known in signatures.ALL:
        queues[known.queue].append(named[known.name])
    return queues


def make_workers(
    client: Client,
    settings: Settings,
    implementations: Sequence[Callable[..., Any]],
    workflows: Sequence[type],
    interceptors: Sequence[Interceptor] = (),
) -> list[Worker]:
    """One for each task queue; the main one runs the workflows too."""
    slots = {
        Queue.MAIN: settings.activity_slots,
        Queue.MACHINES: settings.machine_slots,
        Queue.CHAT: settings.chat_slots,
    }
    pace = {Queue.MACHINES: settings.machine_calls_per_s, Queue.CHAT: settings.chat_calls_per_s}
    workers = []
    for queue, found in by_queue(implementations).items():
        main = queue is Queue.MAIN
        workers.append(
            Worker(
                client,
                task_queue=queue,
                activities=found,
                workflows=workflows if main else [],
                activity_executor=ThreadPoolExecutor(slots[queue], thread_name_prefix=queue),
                max_concurrent_activities=slots[queue],
                max_concurrent_workflow_tasks=100 if main else None,
                max_cached_workflows=settings.cached_workflows if main else 0,
                max_task_queue_activities_per_second=pace.get(queue),
                max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
                default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
                sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
                graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_s),
                interceptors=interceptors,
                deployment_config=deployment(settings),
            )
        )
    return workers


def deployment(settings: Settings) -> WorkerDeploymentConfig | None:
    if not settings.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=settings.deployment, build_id=settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=(
            VersioningBehavior.PINNED if settings.versioning == "pinned" else VersioningBehavior.AUTO_UPGRADE
        ),
    )


def telemetry(settings: Settings) -> Runtime:
    """The SDK's own logs go where ours go; its metrics to their own port, if one is set."""
    return Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(
                filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
                forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
            ),
            metrics=PrometheusConfig(bind_address=settings.temporal_metrics) if settings.temporal_metrics else None,
        )
    )


async def run_worker(settings: Settings) -> int:
    """Until SIGTERM or SIGINT (0), or until a poller ends by itself (1)."""
    from worker.assembly import WORKFLOWS, assemble

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    installation = open_installation(settings)
    client = await connect("worker", runtime=telemetry(settings), patience_s=settings.temporal_wait_s)
    assembly = assemble(settings, installation, client)
    metrics.BUILD.labels(assembly.version, settings.build_id).set(1)
    workers = make_workers(client, settings, assembly.implementations, WORKFLOWS, assembly.interceptors)
    activity_kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    liveness = Liveness(
        client,
        {
            Queue.MAIN: (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, activity_kind),
            Queue.MACHINES: (activity_kind,),
            Queue.CHAT: (activity_kind,),
        },
    )
    server = probe_server(settings.worker_host, settings.worker_port, lambda: liveness.trouble)
    essential = [asyncio.create_task(one.run(), name=one.task_queue) for one in workers]
    essential.append(asyncio.create_task(server.serve(), name="health endpoint"))
    helpers = [
        asyncio.create_task(liveness.watch(), name="liveness"),
        asyncio.create_task(assembly.sweep.run(), name="sweep"),
    ]
    if (mirror := mirroring(installation)) is not None:
        helpers.append(asyncio.create_task(mirror.run(stop), name="chat"))
    stopping = asyncio.create_task(stop.wait())
    log.info("worker %s polls %s", client.identity, ", ".join(Queue))
    await asyncio.wait([*essential, stopping], return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in essential if task.done()]
    for task in ended:
        log.error("%s ended by itself: %s", task.get_name(), task.exception() or "no error given")
    log.info("worker stops; activities have %.0f s to end", settings.shutdown_s)
    for helper in helpers:
        helper.cancel()
    server.should_exit = True
    for one, task in zip(workers, essential[:-1], strict=True):
        if not task.done():
            helpers.append(asyncio.create_task(one.shutdown(), name=f"shutdown {one.task_queue}"))
    with suppress(TimeoutError):
        async with asyncio.timeout(settings.shutdown_s + 10):
            await asyncio.gather(*essential, *helpers, return_exceptions=True)
    assembly.close()
    return 1 if ended and not stop.is_set() else 0
