"""The SQS consumer against moto's server: SQS, SNS and EventBridge as boto3 sees them, not doubles of our own."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from activities.storage.intake import IntakeStore
from medevac.fleet.node import Node
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, engine, node, registry, stores, world
from worker import ways_in
from worker.intake.delivery import Deliveries
from worker.intake.fold import Fold
from worker.intake.inventory import Inventory
from worker.intake.pipeline import Intake
from worker.intake.sqs import SqsConsumer, make_client
from worker.speakers import Queue
from worker.stores import Stores
from worker.threads import Threads

__all__ = ["engine", "node", "registry", "stores", "world"]

REGION = "us-east-1"


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION=REGION)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@dataclass
class Rig:
    client: Any
    queue: Queue
    consumer: SqsConsumer
    intake: Intake

    def send(self, body: str) -> None:
        self.client.send_message(QueueUrl=self.queue.url, MessageBody=body)

    def counts(self) -> tuple[int, int]:
        """Messages to be had, and messages that somebody is at."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


@pytest.fixture
async def rig(endpoint: str, registry: Any, stores: Stores, engine: StubEngine, request: Any) -> AsyncIterator[Rig]:
    fifo = "fifo" in request.node.name
    name = f"q{abs(hash(request.node.name))}" + (".fifo" if fifo else "")
    raw = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint)
    attributes = {"VisibilityTimeout": "30", **({"FifoQueue": "true"} if fifo else {})}
    url = raw.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    queue = Queue(
        name="gpu-health",
        url=url,
        region=REGION,
        endpoint=endpoint,
        source="generic" if fifo else "aws",
        clusters=("sim-a",),
        visibility_s=30,
        tries=3,
    )
    threads = Threads(8)
    intake = Intake(
        inventory=Inventory(registry.clusters), stores=stores, engine=engine, fold=Fold(60.0), threads=threads
    )
    client = make_client(queue)
    consumer = SqsConsumer(queue, client, Deliveries(intake, stores.dead_letters, threads), wait_s=0)
    yield Rig(client, queue, consumer, intake)
    threads.close()


def in_order(rig: Rig, node: Node, kinds: list[str]) -> None:
    """Statements about one GPU, in the group of its node."""
    for n, kind in enumerate(kinds):
        body = {"node": node.name, "kind": kind, "fault": "xid/79", "statement": "level", "key": "gpu-4", "id": str(n)}
        rig.client.send_message(
            QueueUrl=rig.queue.url,
            MessageBody=json.dumps(body),
            MessageGroupId=node.name,
            MessageDeduplicationId=f"{node.name}-{n}",
        )


def state_change(instance: str, id: str = "e-1", state: str = "stopped") -> dict[str, Any]:
    return {
        "version": "0",
        "id": id,
        "detail-type": "EC2 Instance State-change Notification",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2026-03-01T12:00:00Z",
        "region": REGION,
        "resources": [f"arn:aws:ec2:{REGION}:123456789012:instance/{instance}"],
        "detail": {"instance-id": instance, "state": state},
    }


def interruption(instance: str, id: str = "e-1") -> dict[str, Any]:
    return {
        **state_change(instance, id),
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "detail": {"instance-id": instance, "instance-action": "terminate"},
    }


def heard(engine: StubEngine) -> list[str]:
    return [name for _, name, _ in (*engine.reported, *engine.joined)]


@pytest.fixture
def instance(node: Node, monkeypatch: pytest.MonkeyPatch) -> str:
    """The node, by an instance id of EC2's shape."""
    id = "i-0123456789abcdef0"
    monkeypatch.setattr(
        "worker.intake.inventory.names_of", lambda one: {one.name} | ({id} if one.name == node.name else set())
    )
    return id


async def test_a_message_is_deleted_once_it_is_held(rig: Rig, engine: StubEngine, node: Node, instance: str) -> None:
    rig.send(json.dumps(interruption(instance)))
    assert await rig.consumer.once() == 1
    assert heard(engine) == [node.name]
    assert engine.reported[0][2].sender == "gpu-health"
    assert rig.counts() == (0, 0)


async def test_wrapped_by_sns_and_sent_by_event_bridge(
    rig: Rig, endpoint: str, engine: StubEngine, node: Node, instance: str
) -> None:
    """SNS → SQS and EventBridge → SQS, by the services' own (moto's) envelopes."""
    arn = rig.client.get_queue_attributes(QueueUrl=rig.queue.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns = boto3.client("sns", region_name=REGION, endpoint_url=endpoint)
    topic = sns.create_topic(Name="gpu-health")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    sns.publish(TopicArn=topic, Message=json.dumps(interruption(instance, "by-sns")))
    bus = boto3.client("events", region_name=REGION, endpoint_url=endpoint)
    bus.put_rule(Name="gpu", EventPattern=json.dumps({"source": ["aws.ec2.test", "aws.ec2"]}))
    bus.put_targets(Rule="gpu", Targets=[{"Id": "q", "Arn": arn}])
    entry = interruption(instance)
    bus.put_events(
        Entries=[{"Source": "aws.ec2", "DetailType": entry["detail-type"], "Detail": json.dumps(entry["detail"])}]
    )
    received = 0
    while received < 2:
        received += await rig.consumer.once()
    assert set(heard(engine)) == {node.name}
    assert rig.counts() == (0, 0)


async def test_without_temporal_the_inbox_takes_it_and_the_message_goes(
    rig: Rig, engine: StubEngine, stores: Stores, instance: str
) -> None:
    engine.down = True
    rig.send(json.dumps(interruption(instance)))
    await rig.consumer.once()
    assert rig.counts() == (0, 0)
    assert stores.inbox.waiting()[0] == 1


async def test_held_by_nobody_it_stays_and_comes_again(
    rig: Rig, engine: StubEngine, stores: Stores, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from activities.ports import Unreadable
    from worker.intake import sqs

    def down(*_: object) -> None:
        raise Unreadable("connection refused")

    monkeypatch.setattr(sqs, "AGAIN_S", (0,))
    engine.down = True
    rig.send(json.dumps(interruption(instance)))
    with monkeypatch.context() as without:
        without.setattr(IntakeStore, "commit", down)
        for _ in range(2):
            assert await rig.consumer.once() == 1
    assert sum(rig.counts()) == 1
    assert await rig.consumer.once() == 1
    assert rig.counts() == (0, 0)
    assert stores.inbox.waiting()[0] == 1


async def test_unreadable_ones_lie_with_the_dead_letters(
    rig: Rig, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.send("{not json")
    with monkeypatch.context() as without:

        def broken(*_: object) -> None:
            raise OSError("disk full")

        without.setattr(type(stores.dead_letters), "put", broken)
        from worker.intake import sqs

        without.setattr(sqs, "AGAIN_S", (0,))
        await rig.consumer.once()
        assert sum(rig.counts()) == 1, "kept nowhere else, it must stay"
    await rig.consumer.once()
    assert rig.counts() == (0, 0)
    [letter] = stores.dead_letters.listed()
    assert (letter.source, letter.sender, letter.why) == ("aws", "gpu-health", "unreadable")


async def test_one_that_never_passes_ends_with_the_dead_letters(
    rig: Rig, engine: StubEngine, stores: Stores, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worker.intake import sqs

    async def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(sqs, "AGAIN_S", (0,))
    monkeypatch.setattr(Intake, "take", breaks)
    rig.send(json.dumps(interruption(instance)))
    for _ in range(rig.queue.tries):
        assert stores.dead_letters.listed() == []
        assert await rig.consumer.once() == 1
    assert rig.counts() == (0, 0)
    [letter] = stores.dead_letters.listed()
    assert (letter.why, letter.times) == ("tries", 1)


class Hours:
    """One clock for the queue and its consumer, which moves only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from worker.intake import sqs

        self.now = self._due = time.time()
        monkeypatch.setattr(sqs, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": self._sleep}))
        monkeypatch.setattr("moto.sqs.models.unix_time", lambda: self.now)
        monkeypatch.setattr("moto.sqs.models.unix_time_millis", lambda: self.now * 1000.0)

    async def _sleep(self, seconds: float) -> None:
        self._due = self.now + seconds
        while self.now < self._due:  # noqa: ASYNC110  the test moves it
            await asyncio.sleep(0.01)

    async def go_by(self, seconds: float) -> None:
        """Until the consumer, where this has woken it, has done what it woke for."""
        self.now += seconds
        async with asyncio.timeout(120):
            while self._due <= self.now:  # noqa: ASYNC110  the consumer's sleep moves it
                await asyncio.sleep(0.01)


async def test_a_message_that_takes_long_stays_hidden(
    rig: Rig, engine: StubEngine, node: Node, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than its visibility: nobody else may receive it meanwhile."""
    taken = Intake.take
    hours = Hours(monkeypatch)
    others: list[int] = []

    async def slowly(self: Intake, *arguments: Any) -> Any:
        for _ in range(10):
            await hours.go_by(rig.queue.visibility_s / 8)
            answer = await asyncio.to_thread(rig.client.receive_message, QueueUrl=rig.queue.url, WaitTimeSeconds=0)
            others.append(len(answer.get("Messages", [])))
        return await taken(self, *arguments)

    monkeypatch.setattr(Intake, "take", slowly)
    rig.send(json.dumps(interruption(instance)))
    await rig.consumer.once()
    assert others == [0] * 10
    assert rig.counts() == (0, 0)


async def test_a_stop_lets_what_was_received_end(rig: Rig, engine: StubEngine, instance: str) -> None:
    stop = asyncio.Event()
    for n in range(30):
        rig.send(json.dumps(interruption(instance, f"e-{n}")))
    running = asyncio.create_task(rig.consumer.run(stop))
    while not engine.reported:  # noqa: ASYNC110  of another task's list
        await asyncio.sleep(0.01)
    stop.set()
    async with asyncio.timeout(120):
        await running
    assert rig.counts()[1] == 0, "nothing is left half done"


# -- FIFO ------------------------------------------------------------------------------------------------------


async def test_fifo_messages_of_one_group_keep_their_order(
    rig: Rig, engine: StubEngine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the first takes."""
    slow, quick = [n for n in world.nodes("sim-a") if n.gpus][:2]
    order: list[tuple[str, str]] = []
    taken = Intake.take

    async def take(self: Intake, events: Any, *arguments: Any) -> Any:
        [event] = events
        if event.subject == slow.name:
            await asyncio.sleep(0.3 if event.id == "0" else 0.0)
        order.append((event.subject, event.kind))
        return await taken(self, events, *arguments)

    monkeypatch.setattr(Intake, "take", take)
    in_order(rig, slow, ["fault", "recovered", "fault", "recovered"])
    in_order(rig, quick, ["fault"])
    while sum(rig.counts()):
        await asyncio.gather(rig.consumer.once(), rig.consumer.once())
    assert [kind for name, kind in order if name == slow.name] == ["fault", "recovered", "fault", "recovered"]
    assert (quick.name, "fault") in order


async def test_fifo_what_is_held_by_nobody_lets_its_group_wait(
    rig: Rig, engine: StubEngine, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from activities.ports import Unreadable
    from worker.intake import sqs

    def down(*_: object) -> None:
        raise Unreadable("connection refused")

    monkeypatch.setattr(sqs, "AGAIN_S", (0,))
    in_order(rig, node, ["fault", "recovered", "fault"])
    engine.down = True
    with monkeypatch.context() as without:
        without.setattr(IntakeStore, "commit", down)
        await rig.consumer.once()
    assert sum(rig.counts()) == 3, "none of them is gone, nor was one taken before its time"
    engine.down = False
    rig.intake._resting_until = 0.0
    while sum(rig.counts()):
        await rig.consumer.once()
    assert len(engine.reported) == 2
    assert len(engine.joined) == 1


async def test_fifo_one_that_never_passes_does_not_hold_its_group_for_ever(
    rig: Rig, engine: StubEngine, node: Node, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worker.intake import sqs

    monkeypatch.setattr(sqs, "AGAIN_S", (0,))
    taken = Intake.take

    async def take(self: Intake, events: Any, *arguments: Any) -> Any:
        if events[0].id == "0":
            raise RuntimeError("a bug")
        return await taken(self, events, *arguments)

    monkeypatch.setattr(Intake, "take", take)
    in_order(rig, node, ["fault", "fault"])
    tries = 0
    while sum(rig.counts()):
        tries += 1
        await rig.consumer.once()
    assert tries <= rig.queue.tries + 1
    assert [letter.why for letter in stores.dead_letters.listed()] == ["tries"]
    assert [event.id for _, _, event in engine.reported] == ["1"]


async def test_the_doctor_reaches_the_queue_and_takes_nothing_from_it(rig: Rig) -> None:
    rig.send(json.dumps({"hello": "world"}))
    assert "answers" in await ways_in._queue(rig.queue)
    assert rig.counts() == (1, 0)
    gone = rig.queue.model_copy(update={"url": f"{rig.queue.url}-gone"})
    with pytest.raises(Exception, match="NonExistentQueue"):
        await ways_in._queue(gone)


async def test_what_is_no_form_of_aws_lies_with_the_dead_letters_once_it_is_deleted(rig: Rig, stores: Stores) -> None:
    rig.send(json.dumps({"hello": "world"}))
    await rig.consumer.once()
    assert rig.counts() == (0, 0)
    [letter] = stores.dead_letters.listed()
    assert (letter.why, letter.whole) == ("unreadable", True)
    assert "neither an event" in letter.reason
