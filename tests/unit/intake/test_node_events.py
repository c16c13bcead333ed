"""Which Events about nodes are news."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from worker.intake.node_events import News, NodeEvents, happened

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stamp(minutes_ago: float) -> str:
    return (NOW - timedelta(minutes=minutes_ago)).isoformat().replace("+00:00", "Z")


def event(reason: str = "TaskHung", uid: str = "e-1", minutes_ago: float = 1, count: int = 1, **more: Any) -> Any:
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "n1.1", "uid": uid},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"}, "reason": reason, "message": "m",
        "type": "Warning", "count": count, "source": {"component": "kernel-monitor"},
        "firstTimestamp": stamp(minutes_ago), "lastTimestamp": stamp(minutes_ago), **more,
    }  # fmt: skip


def news(events: NodeEvents, thing: Any) -> News:
    found = events.look(thing)
    assert found is not None
    return found


def test_an_occurrence_is_news_once() -> None:
    events = NodeEvents()
    first = news(events, event())
    assert first.source == "npd"
    assert news(events, event()) == first, "it is not held yet"
    events.held(first)
    assert events.look(event()) is None
    assert news(events, event(count=2)).id != first.id


def test_a_series_counts_as_well() -> None:
    new = {"eventTime": stamp(1), "count": None, "firstTimestamp": None, "lastTimestamp": None}
    events = NodeEvents()
    once = news(events, event(**new))
    events.held(once)
    again = news(events, event(**new, series={"count": 2, "lastObservedTime": stamp(0)}))
    assert again.id != once.id


@pytest.mark.parametrize(
    "thing",
    [
        event("MedevacMarked", source={"component": "medevac"}),
        event("NodeHasSufficientMemory", type="Normal"),
        event(involvedObject={"kind": "Pod", "name": "p"}),
    ],
    ids=["our own", "daily life", "a pod's"],
)
def test_what_says_nothing(thing: Any) -> None:
    assert NodeEvents().look(thing) is None


def test_a_reboot_is_heard_though_it_is_no_fault() -> None:
    assert NodeEvents().look(event("Rebooted"))
    assert NodeEvents().look(event("NodeReady", type="Normal"))


def test_one_that_was_listed_may_be_old() -> None:
    events = NodeEvents()
    recent, stale = news(events, event()), news(events, event(uid="e-2", minutes_ago=61))
    assert not events.is_old(recent, (), NOW)
    assert events.is_old(recent, {recent.id}, NOW), "a process before us said it"
    assert events.is_old(stale, (), NOW)
    goes_on = news(events, event(uid="e-3", minutes_ago=200, lastTimestamp=stamp(2)))
    assert not events.is_old(goes_on, (), NOW)


def test_what_happened_before_a_reboot_is_over() -> None:
    events = NodeEvents()
    before, after = news(events, event(uid="a", minutes_ago=20)), news(events, event(uid="b", minutes_ago=5))
    reboot = news(events, event("Rebooted", uid="r", minutes_ago=10))
    assert events.is_old(before, (), NOW)
    assert not events.is_old(after, (), NOW)
    assert not events.is_old(reboot, (), NOW)
    other = news(events, event(uid="c", minutes_ago=20, involvedObject={"kind": "Node", "name": "n2"}))
    assert not events.is_old(other, (), NOW)


def test_one_without_a_time_is_judged_by_its_id_alone() -> None:
    timeless = event(firstTimestamp=None, lastTimestamp=None)
    events = NodeEvents()
    one = news(events, timeless)
    assert not events.is_old(one, (), NOW)
    assert events.is_old(one, {one.id}, NOW)


def test_memory_is_bounded() -> None:
    events = NodeEvents(size=100)
    for n in range(1_000):
        events.held(news(events, event(uid=f"e-{n}")))
    assert len(events) == 100
    events.gone("e-999")
    assert len(events) == 99


def test_one_that_cannot_be_read_is_passed_on_to_be_refused() -> None:
    broken = event()
    del broken["reason"]
    events = NodeEvents()
    one = news(events, broken)
    events.held(one)
    assert events.look(broken) is None


def test_the_latest_time_counts() -> None:
    assert happened(event(minutes_ago=30, series={"lastObservedTime": stamp(3)})) == NOW - timedelta(minutes=3)
