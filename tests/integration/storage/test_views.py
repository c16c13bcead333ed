"""Long lists, searches and marks of change, alike on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from activities import signatures as sig
from activities.recording import RecordingActivities
from activities.storage import tables as t
from activities.storage import views as module
from activities.storage.database import Database
from activities.storage.fences import Fences
from activities.storage.ledger import Ledger
from activities.storage.silences import Silences
from activities.storage.views import Search, Views
from medevac.approvals.approval import ApprovalState, Verdict, Voided, Vote
from medevac.fleet.node import Machine, Node
from medevac.incident import End, Line, State, StepKey
from medevac.policy.silences import Holds, Matcher, Silence
from tests.integration.console.conftest import asked, incident_of

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
ALL = Search(since=NOW - 10_000 * HOUR, until=NOW + HOUR)


def node(name: str) -> Node:
    return Node(cluster="c", name=name, pool="train", machine=Machine(provider="cloud", id=f"m-{name}"))


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return Ledger(db)


@pytest.fixture
def views(db: Database) -> Views:
    return Views(db)


def line(n: int, text: str, at: datetime = NOW, incident: str = "i1", **data: str) -> Line:
    return Line(key=StepKey(incident=incident, step="s", n=n), at=at, kind="step", text=text, data=dict(data))


def test_incidents_are_listed_newest_first_and_found_by_name_and_state(ledger: Ledger, views: Views) -> None:
    for n in range(3):
        view = incident_of(node(f"n_{n}"), id=f"i{n}", opened_at=NOW - n * HOUR, owner="ada")
        ledger.upsert_incident(view)
    ledger.upsert_incident(incident_of(node("n_9"), id="i9", state=State.ENDED, end=End.RETURNED))
    found, count = views.incidents(limit=2)
    assert ([one.id for one in found], count) == (["i0", "i1"], 3)
    one = found[0]
    assert (one.node, one.pool, one.fault, one.state, one.owner) == (
        "n_0",
        node("n").pool,
        "xid/79",
        State.WAITING_APPROVAL,
        "ada",
    )
    assert one.waiting_for == "the yes of an approver"
    assert one.opened_at == NOW
    # Of a step that has begun since, what was waited for before is over.
    ledger.begin_step(StepKey(incident="i0", step="verify"), "verify", NOW, state=State.VERIFYING)
    found, _ = views.incidents(state="verifying")
    assert [(one.id, one.step, one.waiting_for) for one in found] == [("i0", "verify", "")]
    assert [one.id for one in views.incidents(text="n_1")[0]] == ["i1"]
    assert views.incidents(text="n%")[1] == 0
    assert [one.end for one in views.incidents(open_only=False, text="i9")[0]] == [End.RETURNED]
    assert views.by_node()[(node("n").cluster, "n_2")].id == "i2"


def test_each_change_changes_the_mark_of_its_topic(db: Database, ledger: Ledger, views: Views) -> None:
    sick = node("n1")
    fences = Fences(db)

    def breaks() -> None:
        with db.transaction() as connection:
            row = {"name": "guard", "epoch": 1, "question": None, "stamp": "x"}
            connection.execute(sa.insert(t.guard).values(**row))

    changes: list[tuple[set[str], Callable[[], object]]] = [
        ({"incidents"}, lambda: ledger.upsert_incident(incident_of(sick))),
        ({"incidents"}, lambda: ledger.upsert_incident(incident_of(sick, summary="another", rev=1))),
        ({"incidents"}, lambda: ledger.begin_step(StepKey(incident="inc-1", step="a"), "a", NOW)),
        ({"incidents"}, lambda: ledger.begin_step(StepKey(incident="inc-1", step="a"), "a", NOW + HOUR)),
        ({"incidents"}, lambda: ledger.upsert_incident(incident_of(sick, state=State.ENDED, end=End.RETURNED, rev=2))),
        ({"lines"}, lambda: ledger.add_lines([line(1, "x")])),
        ({"approvals"}, lambda: ledger.upsert_approval(asked(sick))),
        ({"approvals"}, lambda: ledger.upsert_approval(asked(sick, rev=2))),
        ({"approvals"}, lambda: ledger.upsert_approval(asked(sick, state=ApprovalState.REJECTED, rev=3))),
        ({"guard"}, lambda: fences.freeze("all", "ada", "smoke")),
        ({"guard"}, lambda: fences.thaw("all", "ada")),
        ({"guard"}, lambda: fences.thaw("all", "grace")),
        ({"guard"}, breaks),
        (set(), lambda: ledger.add_lines([line(1, "x")])),
    ]
    known = views.marks()
    for n, (topics, change) in enumerate(changes):
        change()
        found = views.marks()
        assert {name for name in found if found[name] != known[name]} == topics, n
        known = found


def test_lines_are_found_literally_and_by_pages(ledger: Ledger, views: Views) -> None:
    ledger.upsert_incident(incident_of(node("n1"), id="i1"))
    ledger.add_lines([line(n, f"line {n}", NOW - n * HOUR) for n in range(5)])
    ledger.add_lines([line(1, "100%_sure", incident="campaign-x", by="otto")])
    newest = views.said(ALL, 3)
    assert [one.text for one in newest] == ["100%_sure", "line 4", "line 3"]
    assert [one.text for one in views.said(ALL, 3, newest[-1].id)] == ["line 2", "line 1", "line 0"]

    def found(**wanted: object) -> list[str]:
        given = {"since": ALL.since, "until": ALL.until, **wanted}
        return sorted(one.text for one in views.said(Search(**given), 10))  # type: ignore[arg-type]

    assert found(text="%_") == ["100%_sure"]
    assert found(text="_%") == []
    assert found(person="otto") == ["100%_sure"]
    assert found(node="n1") == [f"line {n}" for n in range(5)]
    assert found(since=NOW - 2.5 * HOUR, until=NOW - 0.5 * HOUR) == ["line 1", "line 2"]


def test_an_export_is_read_in_batches_and_bounded(
    ledger: Ledger, views: Views, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    ledger.add_lines([line(n, f"line {n}") for n in range(5)])
    Fences(db).freeze("all", "ada", "smoke", at=NOW)
    batches = list(views.export(ALL, 1_000))
    assert [len(batch) for batch in batches] == [1, 2, 2, 1]
    assert batches[0][0].text == "frozen by ada: smoke"
    assert sum(len(batch) for batch in list(views.export(ALL, 3))[1:]) == 3


def vote_at(at: datetime, who: str) -> Vote:
    return Vote(approval="a", voter=who, groups=("approver",), verdict=Verdict.APPROVE, shown_hash="0123456789abcdef",
                via="cli", at=at)  # fmt: skip


def test_votes_of_a_time_are_found_however_many_questions_came_since(
    ledger: Ledger, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    for n in range(9):
        at = NOW - n * HOUR
        view = asked(node("n"), id=f"a{n}", requested_at=at, expires_at=at + HOUR / 2, votes=(vote_at(at, f"p{n}"),))
        ledger.upsert_approval(view)
        # Of one moment with the one before, so that a page ends between the two.
        lost = Voided(vote=vote_at(at, f"q{n}"), at=at, why="1 more waits for it now: n2")
        ledger.upsert_approval(view.model_copy(update={"id": f"b{n}", "votes": (), "voided": (lost,)}))
    found = views.decisions(ALL)
    assert sorted(one.text.split()[2] for one in found) == sorted(f"{who}{n}" for who in "pq" for n in range(9))
    assert all(("it counts no longer" in one.text) == (" q" in one.text) for one in found)
    assert {one.node for one in found} == {"n"}
    then = Search(since=NOW - 7 * HOUR, until=NOW - 5 * HOUR)
    assert sorted(one.text.split()[2] for one in views.decisions(then)) == ["p6", "p7", "q6", "q7"]
    exported = [one.text.split()[2] for batch in views.export(then, 1_000) for one in batch]
    assert sorted(exported) == ["p6", "p7", "q6", "q7"]


def test_silences_are_told_as_they_were_made_and_ended(db: Database, views: Views) -> None:
    silences = Silences(db)
    for n, via in enumerate(("slack", "")):
        silences.add(
            Silence(id=f"s-{n}", by="otto", reason="we debug it", at=NOW - HOUR, until=NOW + HOUR, via=via,
                    matcher=Matcher(cluster="c", node="n1"), holds=(Holds.MARK,))
        )  # fmt: skip
    silences.end("s-0", "kim", NOW, "console")
    ended, *made = views.decisions(ALL)
    assert (ended.kind, ended.subject, ended.node) == ("silence", "s-0", "n1")
    assert ended.text.startswith("ended early by kim (console): mark held for cluster c, node n1 until")
    assert sorted(one.text.partition(":")[0] for one in made) == ["silenced by otto", "silenced by otto (slack)"]
    assert views.decisions(Search(since=NOW - HOUR / 2, until=NOW + HOUR)) == [ended]


def test_what_was_voted_on_stands_whole_though_the_list_has_changed_since(ledger: Ledger) -> None:
    recording = RecordingActivities(ledger)
    before = asked(node("n"))
    before = before.model_copy(
        update={"votes": (vote_at(NOW, "ada").model_copy(update={"shown_hash": before.shown_hash}),)}
    )
    after = before.model_copy(update={"shown_hash": "f" * 16, "votes": (), "rev": before.rev + 1})
    for request in (before, before, after):
        seen = (before,) if request is after else ()
        recording.record(sig.RecordRequest(key=StepKey(incident=before.id, step="r"), approval=request, seen=seen))
    (shown,) = [line for line in ledger.lines(before.id) if line.kind == "shown"]
    assert shown.data["waiters"] == [waiter.model_dump(mode="json") for waiter in before.waiters]
    assert (shown.data["shown_hash"], shown.flagged) == (before.shown_hash, False)
