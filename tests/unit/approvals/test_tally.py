"""Approvals: who may vote, what a vote comes to, and what voids it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medevac.approvals import tally
from medevac.approvals.approval import ApprovalRequest, ApprovalState, ApprovalView, Verdict, Vote, Waiter
from medevac.policy.plan import ApprovalNeed, Reminder

T0 = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
END = T0 + timedelta(hours=4)
NEED = ApprovalNeed(
    groups=("approver", "capacity-owners"), threshold=2, one_of="capacity-owners", expires_s=14_400, why=()
)
ONE = ApprovalNeed(groups=("operator",), threshold=1, expires_s=14_400, why=())
YES, NO = Verdict.APPROVE, Verdict.REJECT


def request(incident: str = "i1", plan: str = "p1", by: str = "medevac", need: ApprovalNeed = NEED) -> ApprovalRequest:
    return ApprovalRequest(
        id="a1",
        title="reboot",
        need=need,
        fleet_wide=True,
        requested_by=by,
        requested_at=T0,
        expires_at=END,
        policy_version=1,
        waiter=Waiter(
            incident=incident, workflow_id=f"w-{incident}", cluster="c", node="n", plan_hash=plan, text="reboot n"
        ),
    )


def question(need: ApprovalNeed = NEED, by: str = "medevac") -> ApprovalView:
    return tally.join(None, request(need=need, by=by), "approval/a1")


def vote(
    view: ApprovalView,
    voter: str,
    verdict: Verdict = YES,
    groups: tuple[str, ...] = ("approver",),
    at: datetime = T0,
    **more: str,
) -> Vote:
    values = {"approval": view.id, "shown_hash": view.shown_hash, **more}
    return Vote(voter=voter, groups=groups, verdict=verdict, via="cli", at=at, **values)


def cast(view: ApprovalView, *votes: Vote, now: datetime = T0) -> ApprovalView:
    for each in votes:
        assert tally.refusal(view, each, now) is None
        view, _ = tally.cast(view, each, now)
    return view


def state(view: ApprovalView, now: datetime = T0) -> ApprovalState | None:
    decided = tally.result(view, now)
    return None if decided is None else decided.state


def test_one_person_is_enough_where_one_is_needed() -> None:
    view = question(ONE)
    view, answer = tally.cast(view, vote(view, "ann", groups=("operator",)), T0)
    assert answer == "approved by ann"
    decided = tally.result(view, T0)
    assert decided is not None
    assert decided.covers == {"i1": "p1"}


def test_two_people_one_of_them_an_owner() -> None:
    view = question()
    view = cast(view, vote(view, "ann"))
    assert (
        tally.status(view, T0)
        == "recorded 1 of 2; missing: 1 more of approver, capacity-owners and one of capacity-owners"
    )
    view = cast(view, vote(view, "bob"))
    assert state(view) is None
    assert tally.status(view, T0) == "recorded 2 of 2; missing: one of capacity-owners"
    view = cast(view, vote(view, "eve", groups=("capacity-owners",)))
    assert state(view) is ApprovalState.APPROVED


def test_reject_wins_and_its_reason_is_kept() -> None:
    view = question()
    view = cast(view, vote(view, "ann"), vote(view, "bob", NO, reason="launch day"))
    decided = tally.result(view, T0)
    assert decided is not None
    assert (decided.state, decided.by, decided.reason) == (ApprovalState.REJECTED, ("bob",), "launch day")


def test_no_answer_is_a_no() -> None:
    view = cast(question(), vote(question(), "ann"))
    assert state(view, END - timedelta(seconds=1)) is None
    assert state(view, END) is ApprovalState.EXPIRED


def test_the_same_person_twice_is_one_voter() -> None:
    view = question()
    view = cast(view, vote(view, "ann"), vote(view, "Ann "), vote(view, "ann"))
    assert len(view.votes) == 1
    assert state(view) is None


def test_the_same_vote_again_gets_the_same_answer_even_after_the_decision() -> None:
    view = question(ONE)
    mine = vote(view, "ann", groups=("operator",))
    view, first = tally.cast(view, mine, T0)
    later = END + timedelta(days=1)
    assert tally.refusal(view, mine, later) is None
    assert tally.cast(view, mine, later) == (view, first)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"voter": "medevac-user"}, "you asked for this"),
        ({"groups": ("viewer",)}, "only members of approver, capacity-owners may decide this; you are in viewer"),
        ({"groups": ()}, "you are in no group"),
        ({"shown_hash": "other"}, "the list changed"),
        ({"approval": "a2"}, "this is a1, the vote is for a2"),
        ({"voter": " "}, "signed-in person"),
    ],
)
def test_refused(change: dict[str, object], says: str) -> None:
    view = question(by="medevac-user")
    bad = vote(view, "ann").model_copy(update=change)
    refused = tally.refusal(view, bad, T0)
    assert refused is not None
    assert says in refused
    assert "\n" not in refused
    assert tally.cast(view, bad, T0) == (view, refused)


def test_a_vote_is_not_changed() -> None:
    view = question()
    view = cast(view, vote(view, "ann"))
    assert "a vote isn't changed" in str(tally.refusal(view, vote(view, "ann", NO), T0))


def test_late_votes_are_told_what_was_decided() -> None:
    view = question(ONE)
    view = cast(view, vote(view, "ann", groups=("operator",)))
    assert "too late: it was approved by ann" in str(tally.refusal(view, vote(view, "bob", groups=("operator",)), T0))
    assert "too late: it expired" in str(tally.refusal(question(), vote(question(), "bob"), END))


def test_a_join_voids_the_votes_given_for_the_shorter_list() -> None:
    before = cast(question(), vote(question(), "ann"))
    after = tally.join(before, request("i2", "p2"), "approval/a1")
    assert after.votes == ()
    assert [one.vote for one in tally.voided(before, after)] == list(before.votes)
    assert tally.no_longer(after.voided[0]) == (
        "ann's word of 03:00 UTC no longer counts: 1 more waits for it now: n (it was approve by cli)"
    )
    assert tally.lost(after) == after.voided
    assert "look again" in str(tally.refusal(after, vote(before, "bob"), T0))
    again = cast(after, vote(after, "ann", groups=("capacity-owners",)), vote(after, "bob"))
    assert tally.lost(again) == ()
    assert again.voided == after.voided, "what was said once stays"
    decided = tally.result(again, T0)
    assert decided is not None
    assert decided.covers == {"i1": "p1", "i2": "p2"}


def test_votes_that_a_join_voids_give_their_voters_time_to_look_again_but_not_for_ever() -> None:
    late = END - timedelta(minutes=1)
    assert tally.prolonged(question(), T0).expires_at == END, "there is time enough"
    view = tally.prolonged(question(), late)
    assert view.expires_at == late + timedelta(hours=2)
    assert state(view, END) is None
    for _ in range(9):
        view = tally.prolonged(view, view.expires_at - timedelta(seconds=1))
    assert view.expires_at == T0 + timedelta(hours=8)
    assert state(view, view.expires_at) is ApprovalState.EXPIRED


def test_silence_is_no_answer_to_who_joined_too_late_to_be_asked() -> None:
    late = request("i2").model_copy(update={"requested_at": END - timedelta(seconds=100)})
    early = request("i3").model_copy(update={"requested_at": T0 + timedelta(hours=2)})
    view = question()
    for each in (early, late):
        view = tally.join(view, each, "approval/a1")
    decided = tally.result(view, END)
    assert decided is not None
    assert decided.state is ApprovalState.EXPIRED
    assert set(decided.covers) == {"i1", "i3"}
    assert decided.reason.endswith("1 who joined too late for an answer asks anew")
    changed = tally.join(view, request("i1", "p9").model_copy(update={"requested_at": END}), "approval/a1")
    decided = tally.result(changed, END)
    assert decided is not None
    assert set(decided.covers) == {"i3"}, "nobody had time for the new plan"


def test_a_join_again_changes_nothing() -> None:
    view = cast(question(), vote(question(), "ann"))
    assert tally.join(view, request(), "approval/a1") == view


def test_a_new_plan_of_a_waiter_voids_votes() -> None:
    view = cast(question(), vote(question(), "ann"))
    after = tally.join(view, request(plan="heavier"), "approval/a1")
    assert [w.plan_hash for w in after.waiters] == ["heavier"]
    assert after.votes == ()


def test_whose_request_joined_may_not_vote_on_it() -> None:
    view = tally.join(question(), request("i2", by="eve"), "approval/a1")
    assert "you asked for this" in str(tally.refusal(view, vote(view, "EVE"), T0))


def test_of_two_needs_the_stricter_holds() -> None:
    view = tally.join(question(ONE), request("i2", need=ONE.model_copy(update={"threshold": 2})), "approval/a1")
    view = cast(view, vote(view, "ann", groups=("operator",)))
    assert state(view) is None


def test_who_leaves_is_not_covered_and_votes_stand() -> None:
    view = tally.join(question(), request("i2"), "approval/a1")
    view = cast(view, vote(view, "ann", groups=("capacity-owners",)))
    view = tally.leave(view, "i1")
    view = cast(view, vote(view, "bob"))
    decided = tally.result(view, T0)
    assert decided is not None
    assert decided.state is ApprovalState.APPROVED
    assert set(decided.covers) == {"i2"}


def test_who_voted_for_a_list_that_got_shorter_is_not_asked_again_and_counts() -> None:
    view = tally.join(question(), request("i2"), "approval/a1")
    assert tally.waits_for(view, "ann", ("capacity-owners",), T0)
    view = tally.leave(cast(view, vote(view, "ann", groups=("capacity-owners",))), "i1")
    assert [one.voter for one in tally.counting(view)] == ["ann"]
    assert not tally.waits_for(view, "ann", ("capacity-owners",), T0)
    assert tally.status(view, T0).startswith("recorded 1 of 2")
    grown = tally.join(view, request("i3"), "approval/a1")
    assert tally.waits_for(grown, "ann", ("capacity-owners",), T0), "for what was added nobody has spoken"
    assert tally.counting(grown) == []


def test_nobody_left_is_withdrawn() -> None:
    view = tally.leave(question(), "i1")
    assert state(view) is ApprovalState.WITHDRAWN
    assert "too late: it was withdrawn" in str(tally.refusal(view, vote(view, "ann"), T0))


def test_a_decided_question_takes_nobody_in() -> None:
    view = cast(question(ONE), vote(question(ONE), "ann", groups=("operator",)))
    view = view.model_copy(update={"result": tally.result(view, T0)})
    assert tally.join(view, request("i2"), "approval/a1") == view
    assert tally.leave(view, "i1") == view


SECOND = NEED.model_copy(update={"one_of": None, "reminder": Reminder(after_s=3_600, then=("oncall",))})
REMINDED = T0 + timedelta(hours=1)


def test_the_second_group_may_vote_from_the_reminder_on_and_not_before() -> None:
    view = question(SECOND)
    early = vote(view, "olga", groups=("oncall",), at=REMINDED - timedelta(seconds=1))
    refused = str(tally.refusal(view, early, REMINDED - timedelta(seconds=1)))
    assert refused == "until 2026-03-01 04:00 UTC only approver, capacity-owners may decide this; from then on you, too"
    assert tally.refusal(view, early, REMINDED) is not None, "a vote counts as of when it was signed"
    assert not tally.waits_for(view, "olga", ("oncall",), REMINDED - timedelta(seconds=1))
    assert tally.waits_for(view, "olga", ("oncall",), REMINDED)
    late = vote(view, "olga", groups=("oncall",), at=REMINDED)
    view = cast(view, vote(view, "ann"), late, now=REMINDED)
    decided = tally.result(view, REMINDED)
    assert decided is not None
    assert (decided.state, decided.by) == (ApprovalState.APPROVED, ("ann", "olga"))


def test_a_vote_dated_before_the_reminder_does_not_count_when_it_is_counted_again() -> None:
    view = question(SECOND)
    votes = (vote(view, "ann"), vote(view, "olga", groups=("oncall",), at=T0))
    assert state(view.model_copy(update={"votes": votes}), REMINDED) is None


def test_the_second_group_asks_nobody_to_answer_its_own_question_and_an_expiry_stays_a_no() -> None:
    view = question(SECOND, by="olga")
    assert "you asked for this" in str(
        tally.refusal(view, vote(view, "Olga", groups=("oncall",), at=REMINDED), REMINDED)
    )
    assert state(view, END) is ApprovalState.EXPIRED


def test_of_two_second_groups_those_remain_whom_both_accept_and_the_later_reminder() -> None:
    other = SECOND.model_copy(
        update={"groups": ("approver",), "reminder": Reminder(after_s=7_200, then=("oncall", "x"))}
    )
    view = tally.join(question(SECOND), request("i2", need=other), "approval/a1")
    assert tally.voters(view, T0) == ("approver",)
    assert tally.remind_at(view) == T0 + timedelta(hours=2)
    assert tally.voters(view, END) == ("approver", "oncall")
    assert tally.join(view, request("i2", need=other), "approval/a1") == view


def test_digests_of_questions_without_a_second_group_are_what_they_were() -> None:
    assert question().shown_hash == "99463fe03a484d58"


voters = st.sampled_from(["ann", "ANN", "bob", "cid", "eve", "asker"])
groups = st.sampled_from(
    [("approver",), ("capacity-owners",), ("viewer",), ("approver", "capacity-owners"), ("oncall",)]
)
steps = st.one_of(
    st.tuples(st.just("vote"), voters, groups, st.sampled_from([YES, YES, YES, NO]), st.booleans()),
    st.tuples(st.just("join"), st.sampled_from(["i1", "i2", "i3"]), st.sampled_from(["p1", "p2"])),
    st.tuples(st.just("leave"), st.sampled_from(["i1", "i2", "i3"])),
    st.tuples(st.just("wait"), st.integers(0, 9_000)),
)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(steps, max_size=14), st.booleans())
def test_whatever_happens_a_yes_is_two_peoples_informed_yes(history: list[tuple[object, ...]], second: bool) -> None:
    need = NEED.model_copy(update={"reminder": SECOND.reminder}) if second else NEED
    view = question(need, by="asker")
    now, decided, stale = T0, None, view.shown_hash
    for step in history:
        rev, before = view.rev, view
        match step:
            case ("vote", str(voter), tuple(of), Verdict() as verdict, bool(fresh)):
                shown = view.shown_hash if fresh else stale
                each = vote(view, voter, verdict, of, now, shown_hash=shown)
                refused = tally.refusal(view, each, now)
                view, answer = tally.cast(view, each, now)
                assert (view == before) or refused is None
                assert answer == refused or refused is None
            case ("join", str(incident), str(plan)):
                view = tally.join(view, request(incident, plan, by="asker", need=need), "approval/a1")
            case ("leave", str(incident)):
                view = tally.leave(view, incident)
            case ("wait", int(seconds)):
                now += timedelta(seconds=seconds)
        assert view.rev >= rev
        stale = before.shown_hash
        found = tally.result(view, now)
        if found is not None and decided is None:
            decided = found
            view = view.model_copy(update={"result": found, "state": found.state})
        assert tally.result(view, now) == decided
        if decided is not None:
            break
    if decided is None or decided.state is not ApprovalState.APPROVED:
        return
    people = {name.casefold() for name in decided.by}
    assert len(people) >= 2
    assert "asker" not in people
    assert decided.decided_at < END
    assert all(v.verdict is YES for v in view.votes)
    assert any("capacity-owners" in v.groups for v in view.votes)
    assert all(second and v.at >= REMINDED for v in view.votes if v.groups == ("oncall",))
    assert decided.covers == {w.incident: w.plan_hash for w in view.waiters}


def test_many_who_join_at_once_stand_as_if_one_after_the_other() -> None:
    requests = [request(f"inc-{n % 7}", f"h{n}") for n in range(12)]
    one_by_one = None
    for each in requests:
        one_by_one = tally.join(one_by_one, each, "approval/a1")
    assert tally.join_all(None, requests, "approval/a1") == one_by_one
