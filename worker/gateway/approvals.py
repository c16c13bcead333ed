"""Questions that wait for people, and their votes. Late votes are answered from the ledger."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from medevac.approvals.approval import ApprovalView
from worker.gateway.incidents import Answer
from worker.gateway.services import Served, SignedIn
from worker.gateway.votes import Ballot, cast, find

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])


@router.get("", summary="Approvals, pending ones first")
async def approvals(served: Served, person: SignedIn, pending: Annotated[bool, Query()] = True) -> list[ApprovalView]:
    return list(await served.threads.run(served.stores.ledger.approvals, pending_only=pending))


@router.post("/{approval:path}/votes", summary="Approve or reject; reject wins")
async def vote(approval: str, ballot: Ballot, served: Served, person: SignedIn) -> Answer:
    return Answer(answer=await cast(served, person, approval, ballot, ballot.via))


@router.get("/{approval:path}", summary="One approval: what would be done, by whom it was asked, who voted")
async def approval(approval: str, served: Served, person: SignedIn) -> ApprovalView:
    return await find(served, approval)
