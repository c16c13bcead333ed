"""The ledger keeps what it is told, once, in order, and tells a machine's past."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from activities.ports import Verb
from activities.storage.database import Database
from activities.storage.fences import Fences
from activities.storage.intents import Intents
from activities.storage.ledger import Ledger
from activities.storage.seen import LONGEST
from activities.storage.tables import incidents
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalState, Verdict, Vote
from medevac.events.event import EvidenceRef, HealthEvent, Kind
from medevac.faults.classes import FaultClass
from medevac.incident import End, IncidentView, Line, State, StepKey
from medevac.policy.plan import Latch, Rung
from tests.integration.storage.racing import race
from tests.unit.approvals.test_tally import ONE, request
from tests.unit.fleet.fleet import T0

DAY = timedelta(days=1)


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return Ledger(db)


def incident(id: str = "i1", at: datetime = T0, **more: object) -> IncidentView:
    values: dict[str, object] = {
        "id": id,
        "workflow_id": "node/c/n1",
        "cluster": "c",
        "node": "n1",
        "machine_id": "m1",
        "fault": "xid/79",
        "fault_class": FaultClass.CRITICAL,
        "state": State.HEARD,
        "opened_at": at,
        "updated_at": at,
        "rev": 1,
    }
    return IncidentView(**{**values, **more})  # type: ignore[arg-type]


def line(text: str = "reboot: done", step: str = "act", n: int = 1, at: datetime = T0, kind: str = "step") -> Line:
    return Line(
        key=StepKey(incident="i1", step=step, n=n), at=at, kind=kind, text=text, data={"a": [1, None, {"b": "c"}]}
    )


# -- incidents -------------------------------------------------------------------------------------------------


def test_an_incident_comes_back_as_it_was_told(ledger: Ledger) -> None:
    view = incident(faults=("xid/79", "xid/48"), due_at=T0 + DAY, summary="fell off the bus")
    assert ledger.upsert_incident(view)
    assert ledger.incident("i1") == view
    assert ledger.incident("i2") is None


def test_what_a_newer_build_wrote_is_read_without_what_only_it_knows(ledger: Ledger, db: Database) -> None:
    view = incident()
    ledger.upsert_incident(view)
    with db.transaction() as connection:
        newer = view.model_dump(mode="json") | {"mood": "calm", "hold": None}
        connection.execute(incidents.update().values(view=newer))
    assert ledger.incident("i1") == view


def test_an_older_revision_never_overwrites_a_newer(ledger: Ledger) -> None:
    newer = incident(rev=3, state=State.PROVING)
    ledger.upsert_incident(newer)
    assert not ledger.upsert_incident(incident(rev=2, state=State.ACTING))
    assert ledger.incident("i1") == newer
    assert ledger.upsert_incident(incident(rev=3, state=State.VERIFYING))


def test_an_end_stands_whatever_revision_comes_after(ledger: Ledger) -> None:
    """A workflow that was restored from an older store doesn't know that its incident is over."""
    ended = incident(rev=3, state=State.ENDED, end=End.RETURNED)
    ledger.upsert_incident(ended)
    assert not ledger.upsert_incident(incident(rev=9, state=State.HANDED_OVER))
    assert not ledger.upsert_incident(incident(rev=9, state=State.ENDED, end=End.WITHDRAWN))
    assert ledger.incident("i1") == ended


def test_incidents_are_found_by_what_people_ask(ledger: Ledger) -> None:
    ledger.upsert_incident(incident("old", T0))
    ledger.upsert_incident(incident("new", T0 + DAY, node="n2", workflow_id="node/c/n2"))
    ledger.upsert_incident(incident("over", T0, end=End.RETURNED, state=State.ENDED))
    assert [v.id for v in ledger.incidents()] == ["new", "old"]
    assert [v.id for v in ledger.incidents(limit=1)] == ["new"]
    assert [v.id for v in ledger.incidents(node="n1")] == ["old"]
    assert ledger.incidents(cluster="elsewhere") == []
    assert {v.id for v in ledger.incidents(open_only=False)} == {"old", "new", "over"}


def test_a_step_beyond_its_time_is_overdue(ledger: Ledger) -> None:
    ledger.upsert_incident(incident())
    ledger.upsert_incident(incident("over", end=End.RETURNED, state=State.ENDED, due_at=T0))
    ledger.begin_step(StepKey(incident="i1", step="act"), "act", T0 + timedelta(minutes=10))
    assert ledger.overdue(T0 + timedelta(minutes=9)) == []
    (stuck,) = ledger.overdue(T0 + timedelta(minutes=11))
    assert (stuck.id, stuck.step) == ("i1", "act")
    ledger.begin_step(StepKey(incident="i1", step="wait"), "wait", None)
    assert ledger.overdue(T0 + DAY) == []


def test_a_step_says_what_the_incident_does_until_its_row_is_written_anew(ledger: Ledger) -> None:
    ledger.upsert_incident(incident(state=State.WAITING_APPROVAL, waiting_for="approval a1"))
    ledger.begin_step(StepKey(incident="i1", step="notify"), "notify", None)
    assert [(v.state, v.waiting_for) for v in ledger.incidents()] == [(State.WAITING_APPROVAL, "approval a1")]
    ledger.begin_step(StepKey(incident="i1", step="evacuate"), "evacuate", None, state=State.EVACUATING)
    ledger.begin_step(StepKey(incident="i1", step="notify"), "notify", None)
    assert [(v.state, v.waiting_for) for v in ledger.incidents()] == [(State.EVACUATING, "")]
    ledger.upsert_incident(incident(rev=2, state=State.HELD, waiting_for="ada"))
    assert [(v.state, v.waiting_for) for v in ledger.incidents()] == [(State.HELD, "ada")]


def test_no_late_step_changes_an_ended_incident(ledger: Ledger) -> None:
    ended = incident(state=State.ENDED, end=End.RETURNED)
    ledger.upsert_incident(ended)
    ledger.begin_step(StepKey(incident="i1", step="verify"), "verify", T0, state=State.VERIFYING)
    assert ledger.incident("i1") == ended


def test_an_incident_is_found_by_the_name_its_node_had(ledger: Ledger) -> None:
    """A replaced node has gone, and its incident bears the successor's name; people ask for the one they know."""
    ledger.upsert_incident(incident(node="n2", workflow_id="node/c/n1"))
    ledger.upsert_incident(incident("other", node="n11", workflow_id="node/c/n11"))
    assert [v.id for v in ledger.incidents(node="n1")] == ["i1"]
    assert [v.id for v in ledger.incidents(node="n2")] == ["i1"]
    assert ledger.incidents(node="_1") == []


def test_the_first_step_may_bring_the_incident_along(ledger: Ledger) -> None:
    due = T0 + timedelta(seconds=3)
    ledger.begin_step(StepKey(incident="i1", step="mark"), "mark", due, incident())
    found = ledger.incident("i1")
    assert found is not None
    assert (found.step, found.due_at) == ("mark", due)


# -- lines -----------------------------------------------------------------------------------------------------


def test_the_same_line_again_is_no_second_line(ledger: Ledger) -> None:
    assert ledger.add_lines([line(), line(at=T0 + DAY)]) == 1
    assert ledger.add_lines([line()]) == 0
    (kept,) = ledger.lines("i1")
    assert (kept.text, kept.at, kept.data, kept.flagged) == ("reboot: done", T0, line().data, False)


def test_another_meaning_under_the_same_key_is_kept_and_both_are_flagged(ledger: Ledger) -> None:
    ledger.add_lines([line(), line("reboot: failed"), line(n=2), line(kind="message")])
    assert [(x.text, x.key.n, x.flagged) for x in ledger.lines("i1") if x.flagged] == [
        ("reboot: done", 1, True),
        ("reboot: failed", 1, True),
    ]
    assert ledger.flagged() == [line().key]
    assert len(ledger.lines("i1")) == 4


def test_lines_are_in_the_order_of_their_times(ledger: Ledger) -> None:
    ledger.add_lines([line("later", n=2, at=T0 + DAY), line("first")])
    assert [x.text for x in ledger.lines("i1")] == ["first", "later"]


def test_the_same_line_from_many_writers_at_once_is_one(ledger: Ledger) -> None:
    added = race([lambda: ledger.add_lines([line()]) for _ in range(12)])
    assert sum(added) == 1


def test_hostile_text_is_kept_without_its_nul(ledger: Ledger) -> None:
    hostile = Line(
        key=StepKey(incident="i1", step="note"),
        at=T0,
        kind="event",
        text="a\x00b'; DROP TABLE lines;--",
        data={"k\x00": ["\x00"]},
    )
    ledger.add_lines([hostile])
    (kept,) = ledger.lines("i1")
    assert kept.text == "a�b'; DROP TABLE lines;--"
    assert kept.data == {"k�": ["�"]}


# -- a machine's past ------------------------------------------------------------------------------------------


def begin(
    db: Database, id: str, at: datetime, n: int = 1, machine: str | None = "m1", verb: Verb = Verb.REBOOT
) -> StepKey:
    rung = Rung.REBOOT if verb is Verb.REBOOT else Rung.REPLACE
    key = StepKey(incident=id, step=str(verb), n=n)
    Intents(db).begin(key, verb, "c", "n1", machine, "b1", rung, "xid/79", FaultClass.CRITICAL, at)
    return key


def test_attempts_are_counted_by_machine_over_seven_days(db: Database, ledger: Ledger) -> None:
    begin(db, "old", T0 - 8 * DAY)
    begin(db, "i0", T0 - DAY)
    begin(db, "other", T0, machine="m2")
    Intents(db).ended(begin(db, "i1", T0), "timed_out")
    void = begin(db, "i1", T0, n=2)
    Intents(db).void(void, "throttled", T0)
    history = ledger.history("i1", "c", "renamed", "m1", T0)
    assert [(a.incident, a.rung, a.outcome) for a in history.attempts] == [
        ("i0", Rung.REBOOT, "begun"),
        ("i1", Rung.REBOOT, "timed_out"),
    ]


def test_asking_for_a_successor_and_terminating_is_one_attempt(db: Database, ledger: Ledger) -> None:
    begin(db, "i1", T0, verb=Verb.REQUEST)
    begin(db, "i1", T0, verb=Verb.TERMINATE)
    assert len(ledger.history("i1", "c", "n1", "m1", T0).attempts) == 1


def test_without_a_machine_id_the_nodes_name_counts(db: Database, ledger: Ledger) -> None:
    begin(db, "i0", T0, machine=None)
    assert len(ledger.history("i1", "c", "n1", None, T0).attempts) == 1
    assert ledger.history("i1", "c", "n2", None, T0).attempts == ()


def test_incidents_of_the_last_thirty_days(ledger: Ledger) -> None:
    for id, age in (("ancient", 31 * DAY), ("older", 20 * DAY), ("recent", DAY)):
        ledger.upsert_incident(incident(id, T0 - age, end=End.RETURNED, state=State.ENDED))
    ledger.upsert_incident(incident("nameless", T0 - 2 * DAY, machine_id=None))
    ledger.upsert_incident(incident("i1"))
    history = ledger.history("i1", "c", "n1", "m1", T0)
    assert [(p.incident, p.end) for p in history.incidents] == [
        ("older", "returned"),
        ("nameless", None),
        ("recent", "returned"),
    ]
    assert [p.ended_at is not None for p in history.incidents] == [True, False, True]
    assert not history.this_incident_ended


def test_an_incident_that_ended_knows_so(ledger: Ledger) -> None:
    ledger.upsert_incident(incident(end=End.WITHDRAWN, state=State.ENDED))
    assert ledger.history("i1", "c", "n1", "m1", T0).this_incident_ended


def test_a_latch_holds_for_its_machine_until_its_time(ledger: Ledger) -> None:
    latch = Latch(why="rejected: launch day", faults=("xid/79",), by="bob", until=T0 + DAY)
    for _ in range(2):
        ledger.add_latch("i0", "m1", latch)
    assert ledger.history("i1", "c", "n1", "m1", T0).latches == (latch,)
    assert ledger.history("i1", "c", "n1", "m1", T0 + DAY).latches == ()
    assert ledger.history("i1", "c", "n1", "m2", T0).latches == ()


def test_a_latch_without_a_machine_holds_for_the_incidents(ledger: Ledger) -> None:
    ledger.upsert_incident(incident("i0"))
    ledger.add_latch("i0", None, Latch(why="veto", faults=(), by="ann", until=T0 + DAY))
    assert len(ledger.history("i1", "c", "n1", "m1", T0).latches) == 1


@pytest.mark.parametrize("new", ["m2", "c/n2"])
def test_a_successor_knows_whose_place_it_took_for_a_day(ledger: Ledger, new: str) -> None:
    ledger.upsert_incident(incident("i0"))
    ledger.record_successor("m1", new, "i0", T0)
    ledger.record_successor("m1", new, "i0", T0)
    succeeds = ledger.history("i1", "c", "n2", "m2", T0 + timedelta(hours=23)).succeeds
    assert succeeds is not None
    assert (succeeds.incident, succeeds.fault) == ("i0", "xid/79")
    assert ledger.history("i1", "c", "n2", "m2", T0 + timedelta(hours=25)).succeeds is None
    assert ledger.history("i1", "c", "n3", "m3", T0).succeeds is None
    assert [s.new_machine for s in ledger.successors(T0)] == [new]


def test_a_freeze_shows_in_the_history(db: Database, ledger: Ledger) -> None:
    Fences(db).freeze("pool/c/train", "ann", "upgrade", at=T0)
    assert ledger.history("i1", "c", "n1", "m1", T0, pool="train").frozen == "pool/c/train by ann: upgrade"
    assert ledger.history("i1", "c", "n1", "m1", T0, pool="infer").frozen is None


def test_notes_tell_what_people_did_meanwhile(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.note("c", "n1", "bob uncordoned it", T0)
    assert [n.text for n in ledger.notes("c", "n1", T0)] == ["bob uncordoned it"]
    assert ledger.notes("c", "n1", T0 + DAY) == []


# -- events ----------------------------------------------------------------------------------------------------


def test_events_are_kept_bounded_and_forgotten_in_time(ledger: Ledger) -> None:
    event = HealthEvent(
        source="generic",
        id="e" * 5_000,
        dedupe_key="k\x00",
        kind=Kind.FAULT,
        fault="xid/79",
        fault_class=FaultClass.CRITICAL,
        summary="s" * 2_000,
        entities=tuple(f"gpu:{i}" for i in range(1_000)),
        detail={"blob": "x" * 100_000},
        evidence=(EvidenceRef(title="log", url="https://e"),),
        received_at=T0,
    )
    ledger.see_events(
        [(event, "n1", "accepted"), (event.model_copy(update={"received_at": T0 + DAY}), None, "o" * 900)]
    )
    later, first = ledger.events_since(T0)
    assert (first.node, first.outcome, first.at, first.event.fault) == ("n1", "accepted", T0, "xid/79")
    assert (later.node, len(later.outcome)) == (None, LONGEST)
    assert len(later.event.model_dump_json()) < 3_000
    assert [e.at for e in ledger.events_since(T0 + DAY)] == [T0 + DAY]
    assert len(ledger.events_since(T0, limit=1)) == 1
    assert ledger.forget_events(T0 + DAY) == 1
    assert len(ledger.events_since(T0)) == 1


# -- approvals -------------------------------------------------------------------------------------------------


def test_a_decision_is_never_overwritten(ledger: Ledger) -> None:
    view = tally.join(None, request(need=ONE), "approval/a1")
    assert ledger.upsert_approval(view)
    assert ledger.approvals() == [view]
    yes = Vote(
        approval="a1",
        voter="ann",
        groups=("operator",),
        verdict=Verdict.APPROVE,
        shown_hash=view.shown_hash,
        via="cli",
        at=T0,
    )
    voted, _ = tally.cast(view, yes, T0)
    result = tally.result(voted, T0)
    decided = voted.model_copy(update={"state": ApprovalState.APPROVED, "result": result})
    assert ledger.upsert_approval(decided)
    assert not ledger.upsert_approval(view)
    assert not ledger.upsert_approval(view.model_copy(update={"rev": 99}))
    assert ledger.approval("a1") == decided
    assert ledger.approvals() == []
    assert ledger.approvals(pending_only=False) == [decided]
    assert ledger.approval("a2") is None


def test_an_older_view_of_a_question_never_overwrites_a_newer(ledger: Ledger) -> None:
    first = tally.join(None, request(), "approval/a1")
    second = tally.join(first, request("i2"), "approval/a1")
    ledger.upsert_approval(second)
    assert not ledger.upsert_approval(first)
    assert ledger.approval("a1") == second
