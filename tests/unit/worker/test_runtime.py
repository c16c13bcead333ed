"""What a worker refuses to start without, and how it tells that it polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.common import VersioningBehavior
from temporalio.service import RPCError, RPCStatusCode

from activities import signatures
from activities.failures import Bounded
from activities.folding import Folding
from activities.registry import Registry
from activities.signatures import Queue
from tests.votes import KEYS
from worker.assembly import WORKFLOWS, implementations
from worker.config import Scorecard
from worker.liveness import Liveness
from worker.runtime import Incomplete, by_queue, deployment
from worker.settings import Settings
from worker.stores import Stores


def named(name: str) -> Callable[..., Any]:
    @activity.defn(name=name)
    def run(_: object) -> None:
        return None

    return run


async def test_every_signature_has_its_implementation(registry: Registry, stores: Stores) -> None:
    bounded = Bounded(1)
    client = cast(Client, object())
    folding = Folding(stores.ledger, bounded)
    found = implementations(
        registry,
        stores,
        client,
        asyncio.get_running_loop(),
        bounded,
        folding,
        KEYS,
        Scorecard(),
        report=lambda *_: None,
        follow=lambda _: None,
        confirm=lambda *_: None,
    )
    bounded.close()
    queues = by_queue(found)
    assert sum(len(one) for one in queues.values()) == len(signatures.ALL)
    assert len(queues[Queue.MACHINES]) == 2
    assert WORKFLOWS


def test_a_missing_a_doubled_or_a_strange_implementation_stops_the_worker() -> None:
    all_of_them = [named(one.name) for one in signatures.ALL]
    by_queue(all_of_them)
    with pytest.raises(Incomplete, match=signatures.ALL[0].name):
        by_queue(all_of_them[1:])
    with pytest.raises(Incomplete, match="twice"):
        by_queue([*all_of_them, all_of_them[0]])
    with pytest.raises(Incomplete, match="stranger"):
        by_queue([*all_of_them, named("stranger")])


def test_a_build_id_turns_worker_versioning_on() -> None:
    assert deployment(Settings()) is None
    config = deployment(Settings(build_id="2026.11.1"))
    assert config is not None
    assert config.use_worker_versioning
    assert config.version.build_id == "2026.11.1"
    assert config.default_versioning_behavior == VersioningBehavior.PINNED


class Server:
    """Answers as Temporal does about who polls."""

    namespace = "default"
    identity = "me"

    def __init__(self) -> None:
        self.pollers: dict[str, tuple[str, datetime]] = {}
        self.down = False
        self.workflow_service = self

    async def describe_task_queue(
        self, request: DescribeTaskQueueRequest, timeout: timedelta
    ) -> DescribeTaskQueueResponse:
        if self.down:
            raise RPCError("unavailable", RPCStatusCode.UNAVAILABLE, b"")
        answer = DescribeTaskQueueResponse()
        for identity, at in [found for queue, found in self.pollers.items() if queue == request.task_queue.name]:
            poller = PollerInfo(identity=identity)
            poller.last_access_time.FromDatetime(at)
            answer.pollers.append(poller)
        return answer


@pytest.mark.parametrize(
    ("identity", "age_s", "trouble"),
    [("me", 5, ""), ("me", 300, "not polling q"), ("another", 5, "not polling q"), (None, 0, "not polling q")],
)
async def test_only_its_own_recent_poll_is_life(identity: str | None, age_s: float, trouble: str) -> None:
    server = Server()
    if identity:
        server.pollers["q"] = (identity, datetime.now(UTC) - timedelta(seconds=age_s))
    liveness = Liveness(server, {"q": (TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,)})  # type: ignore[arg-type]
    assert liveness.trouble, "nobody has seen it poll yet"
    assert await liveness._look() == trouble
