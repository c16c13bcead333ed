"""Questions that wait for people, and their votes. Late votes are answered from the ledger."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from medevac.approvals.approval import ApprovalState, ApprovalView, Verdict, Vote
from medevac.model import Model
from worker import metrics
from worker.engine import Declined, NotRunning, Unavailable
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer
from worker.gateway.people import Right
from worker.gateway.services import Served, Services, SignedIn

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])


class Ballot(Model):
    verdict: Verdict
    shown_hash: str = Field(min_length=8, max_length=100)
    """`shown_hash` of the approval as it was read: a vote on a list that has changed since does not count."""
    reason: str = Field(default="", max_length=500)
    via: Annotated[str, Field(pattern="^(cli|api|console)$")] = "api"


@router.get("", summary="Approvals, pending ones first")
async def approvals(served: Served, person: SignedIn, pending: Annotated[bool, Query()] = True) -> list[ApprovalView]:
    return list(await served.threads.run(served.stores.ledger.approvals, pending_only=pending))


@router.post("/{approval:path}/votes", summary="Approve or reject; reject wins")
async def vote(approval: str, ballot: Ballot, served: Served, person: SignedIn) -> Answer:
    person.require(Right.VOTE)
    view = await _view(served, approval)
    if view.state is not ApprovalState.PENDING:
        raise Problem(409, _decided(view))
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
            via=ballot.via,
            at=served.now(),
        )
    )
    outcome = "done"
    try:
        return Answer(answer=await served.engine.vote(word))
    except NotRunning:
        view = await _view(served, approval)
        if view.state is ApprovalState.PENDING:
            # It stands in the ledger a moment before its workflow runs, so that people see it in any case.
            outcome = "early"
            raise Problem(503, f"{approval} is only just being put to people; vote again in a moment") from None
        outcome = "late"
        raise Problem(409, _decided(view)) from None
    except (Declined, Unavailable) as error:
        outcome = type(error).__name__.lower()
        raise
    finally:
        metrics.UPDATES.labels("vote", outcome).inc()


@router.get("/{approval:path}", summary="One approval: what would be done, by whom it was asked, who voted")
async def approval(approval: str, served: Served, person: SignedIn) -> ApprovalView:
    return await _view(served, approval)


async def _view(served: Services, approval: str) -> ApprovalView:
    view = await served.threads.run(served.stores.ledger.approval, approval)
    if view is None:
        raise Problem(404, f"no approval is called {approval[:100]}; `medevac approvals` lists those that wait")
    return view


def _decided(view: ApprovalView) -> str:
    if view.result is None:
        return f"{view.id} is {view.state}; the vote came too late and changes nothing"
    by = f" by {', '.join(view.result.by)}" if view.result.by else ""
    why = f" ({view.result.reason})" if view.result.reason else ""
    at = view.result.decided_at.isoformat(timespec="seconds")
    return f"{view.id} was {view.result.state}{by} at {at}{why}; the vote came too late and changes nothing"
