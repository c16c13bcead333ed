"""The latest of each, in order, bounded, and nothing lost when it is put back."""

from __future__ import annotations

import threading
from typing import Any

from activities.ports import Told
from worker.intake.conditions import Level
from worker.intake.mailbox import Mailbox


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name}, **more}


def event(uid: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Event", "metadata": {"uid": uid}, **more}


def mailbox(most_events: int = 100) -> Mailbox:
    return Mailbox(lambda: None, most_events)


def test_the_latest_state_of_a_node_counts_and_the_deepest_level() -> None:
    box = mailbox()
    box.put(Told("Node", "began", (node("a", v=1), node("b", v=1))))
    box.put(Told("Node", "changed", (node("a", v=2),)))
    found = {news.name: news for news in box.take(10).nodes}
    assert found["a"].node == node("a", v=2)
    assert found["a"].level is Level.RELIST
    assert not box.take(10)


def test_a_listing_tells_who_went() -> None:
    box = mailbox()
    box.put(Told("Node", "began", (node("a"), node("b"), node("c"))))
    box.take(10)
    box.put(Told("Node", "gone", (node("b"),)))
    box.put(Told("Node", "relist", (node("a"),)))
    found = {news.name: news.node for news in box.take(10).nodes}
    assert found == {"a": node("a"), "b": None, "c": None}


def test_what_is_put_back_comes_first_and_gives_way_to_newer() -> None:
    box = mailbox()
    box.put(Told("Node", "relist", (node("a", v=1), node("b", v=1))))
    batch = box.take(10)
    box.put(Told("Node", "changed", (node("b", v=2), node("c", v=1))))
    box.put_back(batch)
    found = box.take(10).nodes
    assert [(news.name, (news.node or {})["v"], news.level) for news in found] == [
        ("a", 1, Level.RELIST),
        ("b", 2, Level.RELIST),
        ("c", 1, Level.CHANGE),
    ]


def test_an_event_that_happened_is_not_taken_for_one_that_was_found() -> None:
    box = mailbox()
    box.put(Told("Event", "changed", (event("1"),)))
    box.put(Told("Event", "expired", (event("1"), event("2"))))
    assert {news.uid: news.listed for news in box.take(10).events} == {"1": False, "2": True}


def test_an_event_that_expires_unsaid_is_still_said() -> None:
    box = mailbox()
    box.put(Told("Event", "changed", (event("1"),)))
    box.put(Told("Event", "gone", (event("1"), event("2"))))
    assert {news.uid: news.thing for news in box.take(10).events} == {"1": event("1"), "2": None}


def test_who_tells_too_much_waits_until_there_is_room_or_an_end() -> None:
    box = mailbox(most_events=2)
    told = threading.Semaphore(0)

    def tell() -> None:
        for n in range(6):
            box.put(Told("Event", "changed", (event(str(n)),)))
            told.release()

    thread = threading.Thread(target=tell)
    thread.start()
    assert told.acquire(timeout=10)
    assert told.acquire(timeout=10)
    assert [news.uid for news in box.take(2).events] == ["0", "1"]
    assert told.acquire(timeout=10)
    assert told.acquire(timeout=10)
    assert thread.is_alive()
    box.close()
    thread.join(10)
    assert not thread.is_alive()
