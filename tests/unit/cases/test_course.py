"""How a case goes on: whatever is said or seen in whatever order, only a proved machine closes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medevac.cases import course, machines
from medevac.cases.case import MOST_HEARD, Case, CaseState, Heard, Known, Subject, Ticket
from medevac.cases.course import Patience
from medevac.cases.letter import SHARED, Facts, Letter, Share, compose, short, summary
from medevac.cases.machines import Seen
from medevac.cases.replies import Proposal
from medevac.incident import End, State

T0 = datetime(2026, 3, 1, tzinfo=UTC)
WAS = Known(machine_id="m-1", serial="S1", boot_id="b-1")


def case() -> Case:
    made = Case(
        id="case-0123456789ab",
        system="desk",
        provider="p",
        state=CaseState.OPENING,
        letter=Letter(title="t", body="b"),
        subjects=(Subject(incident="inc-1", cluster="c", node="n", was=WAS),),
        opened_at=T0,
        updated_at=T0,
    )
    return course.opened(made, Ticket(system="desk", id="T-1"), T0)


def heard(n: int, proposal: Proposal) -> Heard:
    return Heard(id=f"r{n}", at=T0, proposal=proposal, quote="q", text="t")


SEEN = st.builds(
    Seen,
    incident_state=st.sampled_from([State.HANDED_OVER, State.HELD, State.ACTING, State.VERIFYING, State.PROBATION]),
    now=st.none()
    | st.builds(
        Known,
        machine_id=st.sampled_from(["m-1", "m-2"]),
        serial=st.sampled_from(["S1", "S2"]) | st.none(),
        boot_id=st.sampled_from(["b-1", "b-2"]) | st.none(),
    ),
)
REPLIES = st.sampled_from(list(Proposal))
HAPPENS = st.lists(st.one_of(SEEN, REPLIES, st.sampled_from(["closed there", "time", "chase", "link"])), max_size=15)


@given(HAPPENS)
def test_no_words_and_no_looks_close_it_without_an_end_that_was_verified(things: list[object]) -> None:
    one, now, confirms = case(), T0, 0
    for n, thing in enumerate(things):
        now += timedelta(hours=5)
        if isinstance(thing, Seen):
            one, asked = machines.look(one, lambda _, seen=thing: seen, now)  # type: ignore[misc]
            for confirm in asked:
                one = machines.asked(one, confirm, now)
            confirms += len(asked)
        elif isinstance(thing, Proposal):
            one = course.hear(one, [heard(n, thing)], now)
        elif thing == "closed there":
            one = course.closed_over_there(one, now)
        elif thing == "chase":
            one = course.chase(one, Patience(patience_s=3600), True, now)
        elif thing == "link":
            one = course.link(one, Subject(incident=f"i{n}", cluster="c", node="n2", was=WAS), "line", now)
        one = course.settle(one, now)
        assert one.state is CaseState.WAITING
        assert not one.settled
    seen = [thing for thing in things if isinstance(thing, Seen)]
    if not any(thing.now and (WAS.other_machine(thing.now) or WAS.other_boot(thing.now)) for thing in seen):
        assert confirms == 0


@pytest.mark.parametrize("end", [End.RETURNED, End.REPLACED, End.DISPOSED])
def test_a_verified_end_settles_it(end: End) -> None:
    one, confirms = machines.look(case(), lambda _: Seen(end=end, now=Known(machine_id="m-2")), T0)
    assert confirms == []
    one = course.settle(one, T0)
    assert one.state is CaseState.CLOSING
    assert len(one.comments) == 1


def test_withdrawn_is_no_proof_and_nobody_is_chased_for_it() -> None:
    one = case()
    for _ in range(2):
        one, _ = machines.look(one, lambda _: Seen(end=End.WITHDRAWN), T0)
    assert not course.settle(one, T0).settled
    assert len([saying for saying in one.sayings if "medevac case close" in saying.text]) == 1
    assert course.chase(one, Patience(), True, T0 + timedelta(days=3)) == one


def test_a_claim_counts_until_a_check_has_found_otherwise() -> None:
    one = course.hear(case(), [heard(1, Proposal.REPAIRED)], T0)

    def look(boot: str, at: datetime) -> int:
        nonlocal one
        now = Known(machine_id="m-1", serial="S1", boot_id=boot)
        one, confirms = machines.look(one, lambda _: Seen(incident_state=State.HANDED_OVER, now=now), at)
        for confirm in confirms:
            one = machines.asked(one, confirm, at)
        return len(confirms)

    assert look("b-2", T0 + timedelta(hours=1)) == 1
    assert look("b-3", T0 + timedelta(hours=2)) == 0, "a technician may be at it again"
    again = Heard(id="r2", at=T0 + timedelta(hours=3), proposal=Proposal.REPLACED)
    one = course.hear(one, [again], T0 + timedelta(hours=3))
    assert look("b-3", T0 + timedelta(hours=4)) == 1


def test_a_claim_that_they_write_past_counts_no_more() -> None:
    """Their next letter may take it back in words that nobody here would see."""
    one = course.hear(case(), [heard(1, Proposal.REPAIRED)], T0)
    later = Heard(id="r2", at=T0 + timedelta(hours=1), proposal=Proposal.READ)
    receipt = Heard(id="r3", at=T0 + timedelta(hours=2), proposal=Proposal.NOTHING)
    booted = Seen(
        incident_state=State.HANDED_OVER, now=Known(machine_id="m-1", serial="S1", boot_id="b-2")
    )  # fmt: skip
    at = T0 + timedelta(hours=3)
    _, confirms = machines.look(course.hear(one, [receipt], at), lambda _: booted, at)
    assert len(confirms) == 1, "a receipt takes nothing back"
    _, confirms = machines.look(course.hear(one, [later, receipt], at), lambda _: booted, at)
    assert confirms == []


def test_each_machine_is_verified_once_and_another_one_again() -> None:
    one = case()

    def look(machine: str, boot: str) -> int:
        nonlocal one
        now = Known(machine_id=machine, serial=None, boot_id=boot)
        one, confirms = machines.look(one, lambda _: Seen(incident_state=State.HANDED_OVER, now=now), T0)
        for confirm in confirms:
            one = machines.asked(one, confirm, T0)
        return len(confirms)

    assert [look("m-2", "b-2"), look("m-2", "b-2"), look("m-2", "b-3"), look("m-3", "b-4")] == [1, 0, 1, 1]


def test_while_our_own_remedy_runs_another_boot_is_our_own_doing() -> None:
    one = course.hear(case(), [heard(1, Proposal.REPAIRED)], T0)
    now = Known(machine_id="m-1", serial="S1", boot_id="b-2")
    for state in (State.ACTING, State.PROVING, State.VERIFYING, State.PROBATION):
        assert machines.look(one, lambda _, state=state: Seen(incident_state=state, now=now), T0)[1] == []  # type: ignore[misc]
    assert len(machines.look(one, lambda _: Seen(incident_state=State.HANDED_OVER, now=now), T0)[1]) == 1


def test_an_automatic_reply_stops_no_chase() -> None:
    one, late = case(), T0 + timedelta(days=2)
    quiet = course.hear(one, [heard(1, Proposal.NOTHING)], late)
    assert quiet.sayings == one.sayings
    assert course.chase(quiet, Patience(), True, late).comments
    answered = course.hear(one, [Heard(id="r", at=late, proposal=Proposal.READ)], late)
    assert not course.chase(answered, Patience(), True, late).comments


def test_silence_is_overdue_until_they_answer_and_asking_again_makes_it_no_less_so() -> None:
    day = timedelta(days=1)

    def chased(one: Case, at: datetime) -> Case:
        one = course.chase(one, Patience(patience_s=86_400), True, at)
        for comment in one.comments:
            one = course.commented(one, comment.n, comment.text, at)
        return one

    one = chased(case(), T0)
    assert (one.due_at, one.overdue(T0)) == (T0 + day, False)
    one = chased(chased(one, T0 + day), T0 + 1.5 * day)
    assert one.chased == 1
    assert one.overdue(T0 + 1.5 * day)
    assert one.due_at == T0 + day, "it was due then"
    answered = chased(
        course.hear(one, [Heard(id="r", at=T0 + 2 * day, proposal=Proposal.READ)], T0 + 2 * day), T0 + 2 * day
    )
    assert (answered.due_at, answered.overdue(T0 + 2 * day)) == (T0 + 3 * day, False)
    closed_there = chased(course.closed_over_there(one, T0 + 2 * day), T0 + 2 * day)
    assert not closed_there.overdue(T0 + 9 * day)


def test_a_long_correspondence_is_shown_once() -> None:
    replies = [Heard(id=f"r{n}", at=T0 + timedelta(minutes=n), proposal=Proposal.READ) for n in range(MOST_HEARD + 10)]
    one = case()
    before = one.said
    for _ in range(3):
        one = course.hear(one, replies, T0 + timedelta(days=1))
    assert one.said - before == len(replies)
    one = course.hear(one, [Heard(id="new", at=T0 + timedelta(days=1), proposal=Proposal.READ)], T0)
    assert one.said - before == len(replies) + 1


def test_a_ticket_that_they_open_again_is_chased_again() -> None:
    late = T0 + timedelta(days=2)
    one = course.closed_over_there(case(), T0)
    assert not course.chase(one, Patience(), True, late).comments
    again = course.closed_over_there(one, T0, closed=False)
    assert again.sayings == one.sayings
    assert course.chase(again, Patience(), True, late).comments


def test_what_joins_while_a_comment_is_sent_is_told_as_well() -> None:
    def joined(one: Case, n: int) -> Case:
        return course.link(one, Subject(incident=f"i{n}", cluster="c", node=f"n{n}", was=WAS), f"m-{n}", T0)

    one = joined(joined(case(), 2), 3)
    (comment,) = one.comments
    assert comment.text == "Also affected:\n- m-2\n- m-3"
    one = course.commented(joined(one, 4), comment.n, comment.text, T0)
    (late,) = one.comments
    assert late.text == "Also affected:\n- m-4"
    assert late.n > comment.n
    assert course.commented(one, late.n, late.text, T0).comments == ()


FACTS = Facts(
    machine_id="m-secret-id", serial="S1", parts=("GPU G1",), sku="h100", fault="xid/79", first_seen=T0,
    timeline=("12:00 emptied",), attempts=("12:10 reboot",), reasons=("job llama",), evidence=("file:///e",),
    node="prod/n-1", rack="r-4", contract="gold",
)  # fmt: skip
SAYS = {
    Share.MACHINE_ID: "m-secret-id", Share.SERIAL: "S1", Share.PARTS: "G1", Share.SKU: "h100", Share.FAULT: "xid/79",
    Share.TIMELINE: "emptied", Share.ATTEMPTS: "12:10 reboot", Share.REASONS: "job llama", Share.EVIDENCE: "file:///e",
    Share.NODE: "prod/n-1", Share.RACK: "r-4", Share.CONTRACT: "gold",
}  # fmt: skip


@given(st.sets(st.sampled_from(list(Share))))
def test_exactly_what_is_shared_is_written(share: set[Share]) -> None:
    assert set(SAYS) == set(Share), "each has its words here"
    letter = compose(FACTS, share)
    text = f"{letter.title}\n{letter.body}"
    assert {one for one, words in SAYS.items() if words in text} == share
    many = summary([FACTS], share, "p")
    for words in (short(FACTS, share), f"{many.title}\n{many.body}"):
        assert {one for one, said in SAYS.items() if said in words} <= share


def test_by_itself_no_name_job_or_link_of_ours_leaves() -> None:
    assert not {Share.NODE, Share.RACK, Share.REASONS, Share.EVIDENCE} & set(SHARED)
