"""Long lists, searches and marks of change, alike on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from activities.storage import tables as t
from activities.storage import views as module
from activities.storage.database import Database
from activities.storage.fences import Fences
from activities.storage.ledger import Ledger
from activities.storage.views import Search, Views
from medevac.approvals.approval import ApprovalState
from medevac.fleet.node import Machine, Node
from medevac.incident import End, Line, State, StepKey
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
