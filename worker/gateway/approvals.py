"""Questions that wait for people, as their voters see them, and their votes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from medevac.approvals.approval import ApprovalView
from medevac.model import Model
from medevac.telling.card import Card
from worker.gateway.incidents import Answer
from worker.gateway.services import Served, SignedIn
from worker.gateway.votes import Ballot, cast, find

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])


@router.get("", summary="Approvals that are pending, longest waiting first; or all, newest first")
async def approvals(
    served: Served,
    person: SignedIn,
    pending: Annotated[bool, Query()] = True,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[ApprovalView]:
    return list(await served.threads.run(served.stores.ledger.approvals, pending_only=pending, limit=limit))


@router.post("/{approval:path}/votes", summary="Approve or reject; reject wins")
async def vote(approval: str, ballot: Ballot, served: Served, person: SignedIn) -> Answer:
    return Answer(answer=await cast(served, person, approval, ballot))


class Shown(Model):
    approval: ApprovalView
    card: Card


@router.get("/{approval:path}/card", summary="One approval with all that its voters must weigh")
async def card(approval: str, served: Served, person: SignedIn) -> Shown:
    view = await find(served, approval)
    return Shown(approval=view, card=await served.threads.run(served.cards.of, view, served.now()))


@router.get("/{approval:path}", summary="One approval: what would be done, by whom it was asked, who voted")
async def approval(approval: str, served: Served, person: SignedIn) -> ApprovalView:
    return await find(served, approval)
