"""Cases in the ledger: one incident is in one case, whoever asks at the same moment, and a provider's sum is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.storage.cases import BadPart, Cases, Gone, Provider
from activities.storage.database import Database
from medevac.cases import course
from medevac.cases.case import Case, CaseState, Known, Subject, Ticket
from medevac.cases.letter import Letter
from tests.integration.storage.racing import race

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIVE = 5


@pytest.fixture
def cases(db: Database) -> Cases:
    return Cases(db)


def subject(incident: str, machine: str) -> Subject:
    return Subject(incident=incident, cluster="c", node=f"n-{machine}", was=Known(machine_id=machine))


def join(cases: Cases, incident: str, machine: str, at: datetime = T0, provider: str = "p") -> Case:
    """As the activity does it."""
    one = subject(incident, machine)

    def make(about: Provider, same: Case | None) -> Case:
        known = same or (about.gathering if about.lately >= FIVE else None)
        if known is not None:
            return course.link(known, one, machine, at)
        return Case(
            id=f"case-{incident}", system="s", provider=provider, letter=Letter(title="t", body="b"), subjects=(one,),
            state=CaseState.OPENING, opened_at=at, updated_at=at, summary=about.lately >= FIVE,
        )  # fmt: skip

    return cases.join(incident, machine, provider, at, make)[0]


def test_one_incident_is_in_one_case(cases: Cases) -> None:
    ids = race([lambda: join(cases, "inc-1", "m-1").id] * 8)
    assert set(ids) == {"case-inc-1"}
    assert [case.incidents for case in cases.all()] == [("inc-1",)]


def test_incidents_of_one_machine_share_one(cases: Cases) -> None:
    race([lambda n=n: join(cases, f"inc-{n}", "m-1") for n in range(6)])  # type: ignore[misc]
    (case,) = cases.all()
    assert sorted(case.incidents) == [f"inc-{n}" for n in range(6)]
    assert join(cases, "inc-x", "m-1", provider="another").id == "case-inc-x"


def test_the_sixth_in_an_hour_gathers_all_others_also_when_all_come_at_once(cases: Cases) -> None:
    race([lambda n=n: join(cases, f"inc-{n}", f"m-{n}") for n in range(12)])  # type: ignore[misc]
    listed = cases.all()
    assert len(listed) == FIVE + 1
    (gathering,) = [case for case in listed if case.summary]
    assert len(gathering.incidents) == 12 - FIVE
    later = join(cases, "inc-late", "m-late", T0 + timedelta(minutes=61))
    assert not later.summary


def test_changes_at_the_same_moment_are_all_kept(cases: Cases) -> None:
    join(cases, "inc-1", "m-1")
    race([
        lambda n=n: cases.change("case-inc-1", lambda case: case.saying(f"{n}"), T0)  # type: ignore[misc]
        for n in range(10)
    ])  # fmt: skip
    case = cases.get("case-inc-1")
    assert case is not None
    assert sorted(int(saying.text) for saying in case.sayings) == list(range(10))
    assert [saying.n for saying in case.sayings] == list(range(1, 11))
    with pytest.raises(Gone):
        cases.change("none", lambda case: case, T0)


def test_a_closed_one_takes_nobody_in_and_is_found_by_its_ticket(cases: Cases) -> None:
    join(cases, "inc-1", "m-1")
    assert not cases.introduced("p"), "being opened, it is with nobody yet"
    cases.change("case-inc-1", lambda case: course.opened(case, Ticket(system="s", id="T-1"), T0), T0)
    assert cases.introduced("p")
    assert not cases.introduced("q")
    cases.change("case-inc-1", lambda case: course.close(case, "ada", "sold", T0), T0)
    assert cases.all() == []
    found = cases.by_ticket("s", "T-1")
    assert found is not None
    assert found.id == "case-inc-1"
    assert cases.by_ticket("another", "T-1") is None
    assert cases.by_ticket("s", "case-inc-1") is not None
    assert join(cases, "inc-2", "m-1").id == "case-inc-2"


def test_one_that_is_closing_takes_nobody_in(cases: Cases) -> None:
    join(cases, "inc-1", "m-1")
    cases.change("case-inc-1", lambda case: case.model_copy(update={"state": CaseState.CLOSING}), T0)
    assert join(cases, "inc-2", "m-1").id == "case-inc-2"


def test_a_part_that_was_sent_back_is_known_again(cases: Cases) -> None:
    part = BadPart(serial="S1", incident="inc-1", part="machine", machine_id="m-1", why="xid/64, case-1", at=T0)
    cases.remember([part])
    cases.remember([part])
    assert cases.known_bad(["S1", "S2", ""]) == [part]
    assert cases.known_bad(["S1"], but="inc-1") == []
    assert cases.known_bad([""]) == []
