"""What the intake keeps: lanes of the inbox, dead letters, and who leads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from activities.storage.database import Database
from activities.storage.dead_letters import BEGINNING, MOST_BYTES, DeadLetters
from activities.storage.inbox import Inbox, Item
from activities.storage.intake import IntakeStore
from activities.storage.leaders import Leaders
from activities.storage.ledger import Ledger
from activities.storage.redaction import redacted
from activities.storage.said import Said
from medevac.events.event import HealthEvent, Kind
from medevac.incident import End, IncidentView, State

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def item(key: str, lane: str = "a", body: object = None, due_at: datetime | None = None) -> Item:
    return Item(key=key, at=T0, body=body or {"n": key}, lane=lane, due_at=due_at)  # type: ignore[arg-type]


def event(n: int = 0) -> HealthEvent:
    return HealthEvent(
        source="generic", id=f"e{n}", dedupe_key=f"k{n}", kind=Kind.FAULT, fault="xid/79", received_at=T0
    )


def test_the_latest_of_one_key_counts_at_its_own_place(db: Database) -> None:
    store, inbox = IntakeStore(db), Inbox(db)
    store.commit([], [item("fault"), item("clear")])
    store.commit([], [item("fault", body={"n": "again"})])
    assert [(i.key, i.body) for i in inbox.oldest()] == [("clear", {"n": "clear"}), ("fault", {"n": "again"})]
    store.commit([], [item("x"), item("x", body={"n": "last"})])
    assert [i.body for i in inbox.oldest() if i.key == "x"] == [{"n": "last"}]


def test_heads_are_fair_between_lanes_and_ordered_within(db: Database) -> None:
    store, inbox = IntakeStore(db), Inbox(db)
    store.commit([], [item(f"noisy{n:03}", "noisy") for n in range(100)])
    store.commit([], [item("q1", "quiet"), item("q2", "quiet")])
    heads = inbox.heads(T0, per_lane=3, limit=4)
    assert {i.lane for i in heads[:2]} == {"noisy", "quiet"}
    assert [i.key for i in inbox.heads(T0, per_lane=3) if i.lane == "noisy"] == ["noisy000", "noisy001", "noisy002"]


def test_a_postponed_lane_waits_whole(db: Database) -> None:
    store, inbox = IntakeStore(db), Inbox(db)
    store.commit([], [item("a1", "a", due_at=T0 + timedelta(seconds=15)), item("b1", "b")])
    store.commit([], [item("a2", "a")])
    assert [i.key for i in inbox.heads(T0)] == ["b1"], "a2 must not overtake a1"
    assert [i.key for i in inbox.heads(T0 + timedelta(seconds=15))] == ["a1", "b1", "a2"]
    inbox.postpone(["b"], T0 + timedelta(hours=1))
    assert [i.key for i in inbox.heads(T0 + timedelta(seconds=15))] == ["a1", "a2"]


def test_turns_order_a_lane_and_a_family_keeps_its_own_order(db: Database) -> None:
    store, inbox = IntakeStore(db), Inbox(db)

    def said(key: str, family: str, turn: float) -> Item:
        return item(key, "a").model_copy(update={"family": family, "turn": turn})

    store.commit([], [said("slight", "s", 100), said("bad", "b", 10), said("bad's clear", "b", 110)])
    assert [i.key for i in inbox.heads(T0)] == ["bad", "slight", "bad's clear"]
    store.commit([], [said("bad", "b", 20)])
    assert [i.key for i in inbox.heads(T0)] == ["slight", "bad's clear", "bad"], "not before what took it back"
    store.commit([], [said("bad", "b", 120), said("slight", "s", 130)])
    assert [i.key for i in inbox.heads(T0)] == ["slight", "bad's clear", "bad"], "a repeat keeps its turn"
    store.commit([], [said("x", "x", 5), said("x's clear", "x", 105), said("x", "x", 5)])
    assert [i.key for i in inbox.heads(T0) if "x" in i.key] == ["x's clear", "x"], "also within one delivery"


def test_what_was_said_last_is_the_latest_whoever_writes_it_later(db: Database) -> None:
    store, later = IntakeStore(db), T0 + timedelta(seconds=1)
    store.commit([], [], {"k": Said("recovered", later), "l": Said("fault", T0)})
    store.commit([], [], {"k": Said("fault", T0)})
    assert store.glance([], [], ["k", "l", "m"]).said == {"k": Said("recovered", later), "l": Said("fault", T0)}
    Ledger(db).forget_events(later)
    assert set(store.glance([], [], ["k", "l"]).said) == {"k"}


def test_a_glance_sees_open_incidents_and_lanes_that_wait(db: Database) -> None:
    store, ledger = IntakeStore(db), Ledger(db)
    for n, (cluster, node) in enumerate([("a", "one"), ("b", "one"), ("a", "ended")]):
        view = IncidentView(
            id=f"inc-{n}",
            workflow_id=f"node/{cluster}/{node}",
            cluster=cluster,
            node=node,
            state=State.ENDED if node == "ended" else State.EVACUATING,
            end=End.RETURNED if node == "ended" else None,
            opened_at=T0,
            updated_at=T0,
        )
        ledger.upsert_incident(view)
    store.commit([], [item("k", "a/one")])
    glance = store.glance([("a", "one"), ("a", "ended"), ("a", "unheard")], ["a/one", "a/two"])
    assert glance.open == {("a", "one"): T0}
    assert glance.waiting == {"a/one"}
    many = store.glance([("a", f"n{n}") for n in range(2_000)] + [("b", "one")], [f"a/n{n}" for n in range(2_000)])
    assert (many.open, many.waiting) == ({("b", "one"): T0}, frozenset())


def test_lines_and_inbox_are_written_together_or_not_at_all(db: Database) -> None:
    store = IntakeStore(db)
    bad = event().model_copy(update={"received_at": datetime(2026, 3, 1)})  # noqa: DTZ001  what is wrong with it
    with pytest.raises(Exception, match="zone"):
        store.commit([(bad, None, "accepted")], [item("k")])
    assert Inbox(db).waiting() == (0, None)
    store.commit([(event(1), "n1", "accepted")], [item("k")])
    store.settle([i.id for i in Inbox(db).oldest()], [(event(1), "n1", "from the inbox: accepted")])
    assert Inbox(db).waiting() == (0, None)
    assert [row.outcome for row in Ledger(db).events_since(T0)] == ["from the inbox: accepted", "accepted"]


# -- dead letters ----------------------------------------------------------------------------------------------


def put(letters: DeadLetters, body: bytes, at: datetime = T0, **more: str) -> int:
    headers = {"content-type": "application/json", "authorization": "Bearer x", "ce-type": "a.b"}
    return letters.put("alertmanager", more.get("sender", "prometheus"), "part", "alert 2: no", headers, body, at)


def test_a_letter_is_kept_as_it_came_without_secrets(db: Database) -> None:
    letters = DeadLetters(db)
    body = json.dumps({"alerts": [{"labels": {"node": "n1"}}], "password": "hunter2", "note": "é\x00"}).encode()
    stored = letters.get(put(letters, body))
    assert stored is not None
    assert stored.headers == {"content-type": "application/json", "ce-type": "a.b"}
    assert json.loads(stored.body) == {"alerts": [{"labels": {"node": "n1"}}], "password": "***", "note": "é\x00"}
    assert (stored.letter.whole, stored.letter.size, stored.letter.times) == (True, len(body), 1)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345678",
        '{"api_key": "s3cr3t-value"}',
        '{"inner": "{\\"client_secret\\":\\"s3cr3t-value\\"}"}',
        "https://user:s3cr3t-value@host/path",
        "password=s3cr3t-value&x=1",
        "AKIAS3CR3TVALUE00000",
        "token: s3cr3t-value",
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    safe = redacted(text.encode()).decode()
    for secret in ("abcdefgh12345678", "s3cr3t-value", "S3CR3TVALUE"):
        assert secret not in safe
    assert "***" in safe


def test_redacted_json_is_still_json_and_bytes_stay_bytes() -> None:
    document = {"token": "x y", "a": [{"db_password": "p\\q"}], "u": "https://u:p@h/"}
    assert set(json.loads(redacted(json.dumps(document).encode()))) == set(document)
    assert redacted(b"\xff\xfe\x00") == b"\xff\xfe\x00"


def test_the_same_refusal_again_is_counted(db: Database) -> None:
    letters = DeadLetters(db)
    first = put(letters, b"{}")
    letters.taken(first, T0)
    assert letters.listed() == []
    assert put(letters, b"{}", T0 + timedelta(minutes=1)) == first
    put(letters, b"{}", sender="other")
    newest, oldest = letters.listed()
    assert (newest.sender, oldest.times, oldest.first_at) == ("other", 2, T0)
    assert oldest.taken_at is None, "refused anew, it waits anew"
    assert letters.waiting() == 2


def test_a_large_one_keeps_its_beginning(db: Database) -> None:
    import random

    letters = DeadLetters(db)
    body = random.Random(1).randbytes(MOST_BYTES * 2)
    stored = letters.get(put(letters, body))
    assert stored is not None
    assert (stored.letter.whole, stored.letter.size, len(stored.body) <= BEGINNING) == (False, len(body), True)
    compressible = b'{"alerts": [' + b'{"labels": {}}, ' * 100_000 + b"]}"
    again = letters.get(put(letters, compressible))
    assert again is not None
    assert again.body == compressible


def test_letters_are_forgotten(db: Database) -> None:
    letters = DeadLetters(db)
    put(letters, b"{}")
    put(letters, b"[]", T0 + timedelta(days=2))
    assert letters.forget(T0 + timedelta(days=1)) == 1
    assert len(letters.listed()) == 1


# -- leaders ---------------------------------------------------------------------------------------------------


def test_one_leads_until_its_claim_is_over(db: Database) -> None:
    leaders = Leaders(db)
    assert leaders.lead("inbox", "a", T0, 15)
    assert not leaders.lead("inbox", "b", T0 + timedelta(seconds=14), 15)
    assert leaders.lead("inbox", "a", T0 + timedelta(seconds=14), 15)
    assert not leaders.lead("inbox", "b", T0 + timedelta(seconds=20), 15)
    assert leaders.lead("inbox", "b", T0 + timedelta(seconds=29), 15)
    assert not leaders.lead("inbox", "a", T0 + timedelta(seconds=30), 15)
    leaders.resign("inbox", "a")
    assert not leaders.lead("inbox", "a", T0 + timedelta(seconds=30), 15)
    leaders.resign("inbox", "b")
    assert leaders.lead("inbox", "a", T0 + timedelta(seconds=30), 15)
    assert leaders.lead("watch", "b", T0, 15)
