"""The hand-over at the change of a shift: the same text as the command's, once, late but not too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.failures import Bounded
from activities.folding import Folding
from activities.messaging import HANDOVER
from activities.ports import NotSent, Unclear
from activities.registry import Registry
from medevac.fleet.node import Node
from medevac.policy.loading import preset
from tests.unit.worker.conftest import StubEngine, view_of
from worker.meanwhile import Meanwhile
from worker.shifts import LATE, ShiftChange
from worker.stores import Stores
from worker.sweep import Sweep
from worker.threads import Threads

MORNING = datetime(2026, 3, 2, 7, 0, tzinfo=UTC)
"""08:00 in Berlin."""
MINUTE = timedelta(minutes=1)


class Heard:
    simulated = True

    def __init__(self, *trouble: Exception) -> None:
        self.trouble = list(trouble)
        self.said: list[tuple[str, str, str]] = []

    def find(self, key: str) -> str | None:
        return None

    def post(self, key: str, thread: str, text: str) -> str:
        if self.trouble:
            raise self.trouble.pop()
        self.said.append((key, thread, text))
        return "1"


@pytest.fixture
def fleet(stores: Stores, registry: Registry, node: Node) -> Registry:
    text = preset("demo") + '\nhandover: {at: ["08:00", "20:00"], zone: Europe/Berlin}\n'
    stores.policies.activate(stores.policies.propose(text, "setup", MORNING), None, MORNING)
    stores.ledger.upsert_incident(view_of(node, fault="xid/79", opened_at=MORNING - timedelta(hours=3)))
    return registry


def workers(stores: Stores, registry: Registry, chat: Heard, count: int = 3) -> list[ShiftChange]:
    registry.chat = chat
    return [ShiftChange(stores, registry) for _ in range(count)]


def test_it_is_said_once_however_many_workers_look(stores: Stores, fleet: Registry, node: Node) -> None:
    chat = Heard()
    found = workers(stores, fleet, chat)
    for n in range(4):
        for worker in found:
            worker.look(MORNING + n * MINUTE)
    [(_, thread, text)] = chat.said
    assert thread == HANDOVER
    assert "Hand-over at 2026-03-02 07:00 UTC" in text
    assert "since 2026-03-01 19:00 UTC: 1 incidents began" in text
    assert node.name in text
    workers(stores, fleet, chat, 1)[0].look(MORNING + 5 * MINUTE)
    assert len(chat.said) == 1, "not again by one that has just started"
    for worker in found:
        worker.look(MORNING + timedelta(hours=12))
    assert len(chat.said) == 2


def test_it_is_late_where_no_worker_ran_and_left_out_when_it_is_no_news(stores: Stores, fleet: Registry) -> None:
    chat = Heard()
    [worker] = workers(stores, fleet, chat, 1)
    worker.look(MORNING + LATE + MINUTE)
    assert chat.said == []
    worker.look(MORNING + timedelta(hours=12) + LATE)
    assert len(chat.said) == 1


def test_what_was_surely_not_sent_is_sent_again_and_what_nobody_knows_is_not(stores: Stores, fleet: Registry) -> None:
    chat = Heard(NotSent("slow down", retry_after_s=1))
    one, other = workers(stores, fleet, chat, 2)
    for n in range(3):
        one.look(MORNING + n * MINUTE)
        other.look(MORNING + n * MINUTE)
    assert len(chat.said) == 1
    chat.trouble.append(Unclear("no answer"))
    for n in range(3):
        one.look(MORNING + timedelta(hours=12) + n * MINUTE)
    assert len(chat.said) == 1


def test_one_that_dies_before_it_has_spoken_is_followed_by_another_that_looks_first(
    stores: Stores, fleet: Registry
) -> None:
    chat = Heard(SystemExit())  # type: ignore[arg-type]
    one, other = workers(stores, fleet, chat, 2)
    with pytest.raises(SystemExit):
        one.look(MORNING)
    other.look(MORNING + MINUTE)
    assert chat.said == [], "the first may still be at it"
    other.look(MORNING + 3 * MINUTE)
    assert len(chat.said) == 1
    for worker in workers(stores, fleet, chat):
        worker.look(MORNING + 10 * MINUTE)
    assert len(chat.said) == 1


def test_one_that_dies_right_after_it_spoke_is_not_said_again(
    stores: Stores, fleet: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Heard()
    one, other = workers(stores, fleet, chat, 2)
    posted, chat_find = chat.post, lambda key: next((said for said, *_ in chat.said if said == key), None)

    def post(key: str, thread: str, text: str) -> str:
        posted(key, thread, text)
        raise SystemExit

    monkeypatch.setattr(chat, "post", post)
    monkeypatch.setattr(chat, "find", chat_find)
    with pytest.raises(SystemExit):
        one.look(MORNING)
    for n in range(3, 9):
        other.look(MORNING + n * MINUTE)
    assert len(chat.said) == 1


def test_of_several_messages_each_is_said_once_though_one_is_refused_for_now(
    stores: Stores, fleet: Registry, node: Node
) -> None:
    for n in range(60):
        sick = node.model_copy(update={"name": f"gpu-{n:03d}"})
        stores.ledger.upsert_incident(view_of(sick, id=f"more-{n}", fault="xid/79"))
    chat = Heard()
    posted = chat.post

    def post(key: str, thread: str, text: str) -> str:
        if len(chat.said) == 1 and not refused:
            refused.append(key)
            raise NotSent("slow down", retry_after_s=1)
        return posted(key, thread, text)

    refused: list[str] = []
    chat.post = post  # type: ignore[method-assign]
    one, other = workers(stores, fleet, chat, 2)
    for n in range(3):
        one.look(MORNING + n * MINUTE)
        other.look(MORNING + n * MINUTE)
    keys = [key for key, _, _ in chat.said]
    assert refused == [keys[1]]
    assert len(keys) == len(set(keys)) >= 2
    said = "\n".join(text for _, _, text in chat.said)
    assert [said.count(f"gpu-{n:03d}:") for n in range(60)] == [1] * 60


def test_a_policy_without_shifts_says_nothing(stores: Stores, registry: Registry) -> None:
    chat = Heard()
    [worker] = workers(stores, registry, chat, 1)
    worker.look(MORNING)
    assert chat.said == []


async def test_the_sweep_of_a_worker_says_it(stores: Stores, fleet: Registry, engine: StubEngine) -> None:
    chat = Heard()
    [change] = workers(stores, fleet, chat, 1)
    threads, bounded = Threads(1), Bounded()
    sweep = Sweep(
        stores, engine, chat, Folding(stores.ledger, bounded), Meanwhile(fleet, stores.ledger), threads, 1.0,
        now=lambda: MORNING, shifts=change,
    )  # fmt: skip
    await sweep.once()
    threads.close()
    bounded.close()
    assert [thread for _, thread, _ in chat.said if thread == HANDOVER] == [HANDOVER]
