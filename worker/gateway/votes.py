"""One vote, whatever way it came: signed for the person whom our own record names, and answered in any case."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Annotated

from pydantic import Field

from activities.ports import Unreadable
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalState, ApprovalView, Verdict, Vote
from medevac.incident import Line, StepKey
from medevac.model import Model, digest
from worker import metrics
from worker.engine import Declined, NotRunning, Unavailable
from worker.gateway.errors import Problem
from worker.gateway.people import Principal, Right
from worker.gateway.services import Services

log = logging.getLogger(__name__)

REFUSED = "refused"
"""Kind of the ledger line of a vote that didn't count, or of a command that wasn't carried out."""
NOT_YET = "has not been asked yet"
"""How the approval's workflow declines a vote that comes before the question, in its very first moment."""


class Ballot(Model):
    verdict: Verdict
    shown_hash: str = Field(min_length=8, max_length=100)
    """`shown_hash` of the approval as it was read: a vote on a list that has changed since does not count."""
    reason: str = Field(default="", max_length=500)
    via: Annotated[str, Field(pattern="^(cli|api|console)$")] = "api"
    """Not read: by what way it came the gateway knows by itself."""


async def cast(served: Services, person: Principal, approval: str, ballot: Ballot) -> str:
    """What is true now, in one line. Raises `AuthError`, `Problem`, `Declined`, `Unavailable`, `Unreadable`.

    A vote that doesn't count is told to the voter alone, and stands in the ledger with its reason.
    """
    person.require(Right.VOTE)
    view = await find(served, approval)
    if view.state is not ApprovalState.PENDING:
        return over(view, person, ballot, served.now())
    if served.signer is None:
        raise Problem(503, "this gateway has no vote key, so no vote counts; set MEDEVAC_VOTE_KEY (`medevac vote-key`)")
    word = served.signer.sign(
        Vote(
            approval=approval,
            voter=person.id,
            groups=person.groups,
            verdict=ballot.verdict,
            reason=ballot.reason,
            shown_hash=ballot.shown_hash,
            via=person.via,
            at=served.now(),
        )
    )
    outcome = "done"
    try:
        return await served.engine.vote(word)
    except NotRunning:
        view = await find(served, approval)
        if view.state is ApprovalState.PENDING:
            # It stands in the ledger a moment before its workflow runs, so that people see it in any case.
            outcome = "early"
            raise Problem(503, early(approval)) from None
        outcome = "late"
        told = over(view, person, ballot, served.now())
        outcome = "done"
        return told
    except Unavailable:
        outcome = "unavailable"
        raise
    except Declined as error:
        if str(error).endswith(NOT_YET):
            outcome = "early"
            raise Problem(503, early(approval)) from None
        outcome = "declined"
        await record_refusal(served, approval, f"{person.id} by {person.via}", str(error))
        raise
    finally:
        metrics.UPDATES.labels("vote", outcome).inc()


async def record_refusal(served: Services, about: str, who: str, why: str) -> None:
    """For good, and once for each that is the same; a ledger that is down must not hide the answer."""
    text = f"{who}: {why}"[:500]
    key = StepKey(incident=about, step=f"vote-{who[:100]}-{digest(text)[:8]}")
    line = Line(key=key, at=served.now(), kind=REFUSED, text=text)
    try:
        await served.threads.run(served.stores.ledger.add_lines, [line])
    except Unreadable as error:
        log.error("a refusal could not be written down (%s): %s", error, line.text)


async def find(served: Services, approval: str) -> ApprovalView:
    view = await served.threads.run(served.stores.ledger.approval, approval)
    if view is None:
        raise Problem(404, f"no approval is called {approval[:100]}; `medevac approvals` lists those that wait")
    return view


def early(approval: str) -> str:
    return f"{approval} is only just being put to people; vote again in a moment"


def over(view: ApprovalView, person: Principal, ballot: Ballot, now: datetime) -> str:
    """What a vote on a decided question is told; one that stands in it already, what it came to. Raises `Problem`.

    Whoever got no answer to the vote that decided sends it again, and must not hear that it changed nothing.
    """
    if tally.heard(view, person.id, ballot.verdict):
        return tally.status(view, now)
    raise Problem(409, late(view))


def late(view: ApprovalView) -> str:
    if view.result is None:
        return f"{view.id} is {view.state}; the vote came too late and changes nothing"
    by = f" by {', '.join(view.result.by)}" if view.result.by else ""
    why = f" ({view.result.reason})" if view.result.reason else ""
    at = view.result.decided_at.isoformat(timespec="seconds")
    return f"{view.id} was {view.result.state}{by} at {at}{why}; the vote came too late and changes nothing"
