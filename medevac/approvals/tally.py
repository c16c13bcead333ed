"""The tally: who may vote, what a vote comes to, and when a question is decided. Pure; the clock is passed in.

Reject wins, voters are distinct people, nobody votes on their own request, expiry is a no, and a vote counts only for
the list that the voter was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from medevac.approvals.approval import (
    ApprovalRequest,
    ApprovalResult,
    ApprovalState,
    ApprovalView,
    Verdict,
    Voided,
    Vote,
    Waiter,
)
from medevac.counted import some
from medevac.fleet.votes import no_longer as no_longer_counts
from medevac.fleet.votes import person_of
from medevac.model import digest
from medevac.policy.people import REMIND_AT
from medevac.policy.plan import ApprovalNeed, Reminder

FAIR_SHARE = 0.5
"""Of a question's time. Who joined it later than that has not been asked, and a lost vote gives its voter as much."""
NAMED = 5
"""Nodes, of those by which a list has changed."""
LONGEST = 2
"""Times its own length that a question may last, however often its list changes: then no answer is a no."""


def shown_hash(title: str, need: ApprovalNeed, waiters: tuple[Waiter, ...]) -> str:
    """Of what a voter sees and agrees to: every waiter with its plan, and who must say yes."""
    listed = sorted((waiter.model_dump(mode="json") for waiter in waiters), key=lambda w: str(w["incident"]))
    return digest({"title": title, "need": need.model_dump(mode="json", exclude=need.unsaid), "waiters": listed})[:16]


# -- who waits -------------------------------------------------------------------------------------------------


def join(
    view: ApprovalView | None, request: ApprovalRequest, workflow_id: str, now: datetime | None = None
) -> ApprovalView:
    """Opens the question, or adds a waiter to it. A changed list voids the votes given for the shorter one.

    Idempotent by incident and plan. Of several requests' needs, the strictest holds. A decided question stays as it is.
    `now`: when it is taken in; unset, when it was requested.
    """
    return join_all(view, [request], workflow_id, now)


def join_all(
    view: ApprovalView | None, requests: Sequence[ApprovalRequest], workflow_id: str, now: datetime | None = None
) -> ApprovalView:
    """`join` for many at once: in a storm the list is hashed once, not once for each who joins."""
    joined = view
    for request in requests:
        joined = _joined(joined, request, workflow_id)
    if joined is None:
        raise ValueError("a question is opened by a request")
    if joined is view:
        return joined
    shown = _shown(joined)
    if view is None or shown.shown_hash == view.shown_hash or not view.votes:
        return shown
    at, why = now or max(request.requested_at for request in requests), _changed(view, shown)
    lost = tuple(Voided(vote=vote, at=at, why=why) for vote in view.votes)
    return shown.model_copy(update={"votes": (), "voided": (*view.voided, *lost)})


def _joined(view: ApprovalView | None, request: ApprovalRequest, workflow_id: str) -> ApprovalView:
    if view is None:
        return ApprovalView(
            id=request.id,
            workflow_id=workflow_id,
            title=request.title,
            state=ApprovalState.PENDING,
            fleet_wide=request.fleet_wide,
            need=request.need,
            requested_by=request.requested_by,
            requested_at=request.requested_at,
            expires_at=request.expires_at,
            waiters=(request.waiter,),
            joined={request.waiter.incident: request.requested_at},
            shown_hash="",
            rev=1,
        )
    if view.result is not None:
        return view
    others = tuple(waiter for waiter in view.waiters if waiter.incident != request.waiter.incident)
    also = dict.fromkeys([*view.also_requested_by, request.requested_by])
    also.pop(view.requested_by, None)
    there = request.waiter in view.waiters
    changed = view.model_copy(
        update={
            "waiters": view.waiters if there else (*others, request.waiter),
            "joined": view.joined if there else view.joined | {request.waiter.incident: request.requested_at},
            "need": _stricter(view.need, request.need),
            "fleet_wide": view.fleet_wide or request.fleet_wide,
            "also_requested_by": tuple(also),
        }
    )
    return view if changed == view else changed.model_copy(update={"rev": view.rev + 1})


def leave(view: ApprovalView, incident: str) -> ApprovalView:
    """The incident waits no more. Votes stand: they were given for more than is done now."""
    waiters = tuple(waiter for waiter in view.waiters if waiter.incident != incident)
    if view.result is not None or waiters == view.waiters:
        return view
    joined = {who: at for who, at in view.joined.items() if who != incident}
    return _shown(view.model_copy(update={"waiters": waiters, "joined": joined, "rev": view.rev + 1}))


def voided(before: ApprovalView, after: ApprovalView) -> tuple[Voided, ...]:
    """Votes that a join made void: their voters are told to look again."""
    return after.voided[len(before.voided) :]


def seen(view: ApprovalView) -> bool:
    """Whether somebody has voted on this very list."""
    return any(vote.shown_hash == view.shown_hash for vote in view.votes)


def no_longer(one: Voided) -> str:
    """For the voter and everybody else: whose word counts no longer, and why."""
    vote = one.vote
    return f"{no_longer_counts(vote.voter, vote.at, one.why, one.at)} (it was {vote.verdict} by {vote.via})"


def lost(view: ApprovalView) -> tuple[Voided, ...]:
    """The last vote of each who has lost one and has not been heard again."""
    last = {person_of(one.vote.voter): one for one in view.voided}
    return tuple(one for one in last.values() if _vote_of(view, one.vote.voter) is None)


def prolonged(view: ApprovalView, now: datetime) -> ApprovalView:
    """With time for those whose votes became void to look again; in all at most `LONGEST` times the question's own."""
    whole = timedelta(seconds=view.need.expires_s)
    until = min(now + whole * FAIR_SHARE, view.requested_at + whole * LONGEST)
    return view if until <= view.expires_at else view.model_copy(update={"expires_at": until})


def _changed(before: ApprovalView, after: ApprovalView) -> str:
    """What a list is that it was not, in words for who agreed to it as it was."""
    was = {waiter.incident: waiter for waiter in before.waiters}
    more = [waiter.node for waiter in after.waiters if waiter.incident not in was]
    other = [waiter.node for waiter in after.waiters if was.get(waiter.incident, waiter) != waiter]
    said = []
    if more:
        said.append(f"{len(more)} more {'waits' if len(more) == 1 else 'wait'} for it now: {some(more, NAMED)}")
    if other:
        said.append(f"another plan was made for {some(other, NAMED)}")
    return "; ".join(said) or "who must agree has changed"


# -- who may ----------------------------------------------------------------------------------------------------


def remind_at(view: ApprovalView) -> datetime:
    """When a question that is still open is told again, and its second group may vote as well."""
    reminder = view.need.reminder
    if reminder is None:
        return view.requested_at + (view.expires_at - view.requested_at) * REMIND_AT
    return view.requested_at + timedelta(seconds=reminder.after_s)


def voters(view: ApprovalView, at: datetime) -> tuple[str, ...]:
    """Groups whose members may vote at that moment."""
    reminder = view.need.reminder
    return view.need.groups + (reminder.then if reminder is not None and at >= remind_at(view) else ())


def waits_for(view: ApprovalView, person: str, groups: Sequence[str], now: datetime) -> bool:
    """Whether this person's word is wanted: of those who may vote now, not who asked, and not heard yet.

    A vote for a list that has become shorter since stands; one for a list that grew is not in the view any more.
    """
    return (
        view.result is None
        and bool(set(groups) & set(voters(view, now)))
        and person_of(person) not in _requesters(view)
        and _vote_of(view, person) is None
    )


# -- voting ----------------------------------------------------------------------------------------------------


def refusal(view: ApprovalView, vote: Vote, now: datetime) -> str | None:
    """Why this vote can't be taken, in one line for the voter; None when it can."""
    if vote.approval != view.id:
        return f"this is {view.id}, the vote is for {vote.approval}"
    if not vote.voter.strip():
        return "a vote needs a signed-in person"
    before = _vote_of(view, vote.voter)
    if heard(view, vote.voter, vote.verdict):
        return None
    decided = result(view, now)
    if decided is not None:
        return _over(view, decided)
    if before is not None:
        return f"you said {before.verdict} at {before.at:%H:%M:%S} UTC; a vote isn't changed, `hold` stops the incident"
    if person_of(vote.voter) in _requesters(view):
        return "you asked for this, someone else must decide"
    # By both clocks: the gateway's, which is signed and counted again later, and the one that decides here.
    if not set(vote.groups) & set(may := voters(view, min(vote.at, now))):
        if set(vote.groups) & set(voters(view, view.expires_at)):
            return (
                f"until {remind_at(view):%Y-%m-%d %H:%M} UTC only {_list(may)} may decide this; from then on you, too"
            )
        return f"only members of {_list(may)} may decide this; you are in {_list(vote.groups)}"
    if vote.shown_hash != view.shown_hash:
        return "the list changed since you were shown it; look again, then vote"
    return None


def heard(view: ApprovalView, voter: str, verdict: Verdict) -> bool:
    """Whether this very vote is in the view: sent again, it is answered as it was the first time."""
    before = _vote_of(view, voter)
    return before is not None and before.verdict is verdict


def cast(view: ApprovalView, vote: Vote, now: datetime) -> tuple[ApprovalView, str]:
    """The view with the vote, and what that came to. A refused vote changes nothing; the same one twice is one."""
    refused = refusal(view, vote, now)
    if refused is not None:
        return view, refused
    if _vote_of(view, vote.voter) is None:
        view = view.model_copy(update={"votes": (*view.votes, vote), "rev": view.rev + 1})
    return view, status(view, now)


def result(view: ApprovalView, now: datetime) -> ApprovalResult | None:
    """The decision, once there is one. Asked again later, it is the same."""
    if view.result is not None:
        return view.result
    votes = counting(view)
    rejects = [vote for vote in votes if vote.verdict is Verdict.REJECT]
    if rejects:
        return _result(view, ApprovalState.REJECTED, now, rejects[:1], rejects[0].reason or "no reason given")
    if not view.waiters:
        return _result(view, ApprovalState.WITHDRAWN, now, [], "nobody waits for it any more")
    missing = _missing(view, now)
    if not missing:
        return _result(view, ApprovalState.APPROVED, now, votes, "; ".join(v.reason for v in votes if v.reason))
    if now >= view.expires_at:
        asked = _asked(view)
        late = len(view.waiters) - len(asked)
        anew = f"; {late} who joined too late for an answer {'asks' if late == 1 else 'ask'} anew" if late else ""
        reason = f"no decision until {view.expires_at:%Y-%m-%d %H:%M} UTC; {missing}{anew}"
        return _result(view, ApprovalState.EXPIRED, now, [], reason, asked)
    return None


def _asked(view: ApprovalView) -> tuple[Waiter, ...]:
    """Those about whom people had a fair time to answer: nobody's silence is a no to the others."""
    least = timedelta(seconds=view.need.expires_s) * FAIR_SHARE
    return tuple(
        waiter
        for waiter in view.waiters
        if view.expires_at - view.joined.get(waiter.incident, view.requested_at) >= least
    )


def status(view: ApprovalView, now: datetime) -> str:
    """One line that is true now."""
    decided = result(view, now)
    if decided is not None:
        by = f" by {' and '.join(decided.by)}" if decided.by else ""
        return f"{decided.state}{by}{f': {decided.reason}' if decided.reason else ''}"
    count = len(counting(view))
    return f"recorded {count} of {view.need.threshold}; {_missing(view, now)}"


def counting(view: ApprovalView) -> list[Vote]:
    """The votes that decide it: one a person, the first. Who asked doesn't count, even if they did so later."""
    first: dict[str, Vote] = {}
    for vote in view.votes:
        if set(vote.groups) & set(voters(view, vote.at)):
            first.setdefault(person_of(vote.voter), vote)
    return [vote for person, vote in first.items() if person not in _requesters(view)]


def _missing(view: ApprovalView, now: datetime) -> str:
    """What an approval still lacks; empty when nothing."""
    yes = [vote for vote in counting(view) if vote.verdict is Verdict.APPROVE]
    lacks = view.need.lacks([vote.groups for vote in yes], voters(view, now))
    return f"missing: {lacks}" if lacks else ""


def _vote_of(view: ApprovalView, voter: str) -> Vote | None:
    return next((vote for vote in view.votes if person_of(vote.voter) == person_of(voter)), None)


def _requesters(view: ApprovalView) -> set[str]:
    return {person_of(who) for who in (view.requested_by, *view.also_requested_by)}


def _result(
    view: ApprovalView,
    state: ApprovalState,
    now: datetime,
    votes: list[Vote],
    reason: str,
    covered: tuple[Waiter, ...] | None = None,
) -> ApprovalResult:
    """`covered`: those of the waiters whom it is about; unset, all."""
    return ApprovalResult(
        id=view.id,
        state=state,
        by=tuple(vote.voter for vote in votes),
        reason=reason,
        decided_at=now,
        covers={waiter.incident: waiter.plan_hash for waiter in (view.waiters if covered is None else covered)},
    )


def _over(view: ApprovalView, decided: ApprovalResult) -> str:
    if decided.state is ApprovalState.EXPIRED:
        return f"too late: it expired at {view.expires_at:%Y-%m-%d %H:%M:%S} UTC, which is a no"
    by = f" by {' and '.join(decided.by)}" if decided.by else ""
    return f"too late: it was {decided.state}{by} at {decided.decided_at:%Y-%m-%d %H:%M:%S} UTC"


def _stricter(one: ApprovalNeed, other: ApprovalNeed) -> ApprovalNeed:
    """Both needs at once: more people, only those whom both accept, and the earlier end of waiting."""
    groups = tuple(group for group in one.groups if group in other.groups) or one.groups
    return ApprovalNeed(
        groups=groups,
        threshold=max(one.threshold, other.threshold),
        one_of=one.one_of or other.one_of,
        expires_s=min(one.expires_s, other.expires_s),
        why=one.why,
        reminder=_later(one, other, groups),
    )


def _later(one: ApprovalNeed, other: ApprovalNeed, groups: tuple[str, ...]) -> Reminder | None:
    """The later of both reminders, to those whom both accept by then."""
    if one.reminder is None and other.reminder is None:
        return None
    a, b = (need.reminder or Reminder(after_s=need.expires_s * REMIND_AT) for need in (one, other))
    both = [name for name in (*one.groups, *a.then) if name in (*other.groups, *b.then) and name not in groups]
    return Reminder(after_s=max(a.after_s, b.after_s), then=tuple(both), page=a.page or b.page)


def _shown(view: ApprovalView) -> ApprovalView:
    return view.model_copy(update={"shown_hash": shown_hash(view.title, view.need, view.waiters)})


def _list(groups: tuple[str, ...]) -> str:
    return ", ".join(groups) or "no group"
