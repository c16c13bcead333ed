"""Approvals: those that wait for me, and my yes or no, confirmed on a page that shows everything."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from medevac.approvals import tally
from medevac.approvals.approval import ApprovalState, Verdict
from worker.console.entering import Here, Posted, Served
from worker.console.pages import PageRoute, go, may_vote, page
from worker.gateway.votes import Ballot, cast, find

router = APIRouter(prefix="/approvals", route_class=PageRoute, include_in_schema=False)

MOST = 500
RECENT = 30


@router.get("")
async def approvals(request: Request, served: Served, here: Here) -> HTMLResponse:
    def read() -> HTMLResponse:
        pending = served.stores.ledger.approvals(pending_only=True, limit=MOST)
        recent = [
            view
            for view in served.stores.ledger.approvals(pending_only=False, limit=RECENT)
            if view.state is not ApprovalState.PENDING
        ]
        mine = [view for view in pending if may_vote(here, view, served.now())]
        others = [view for view in pending if view not in mine]
        return page(request, served, here, "approvals.html", mine=mine, others=others, recent=recent)

    return await served.threads.run(read)


@router.get("/{approval:path}")
async def approval(
    request: Request, approval: str, served: Served, here: Here, verdict: Annotated[Verdict | None, Query()] = None
) -> HTMLResponse:
    """With `verdict`, the page on which it is confirmed."""
    view, now = await find(served, approval), served.now()
    return await served.threads.run(
        page, request, served, here, "approval.html", view=view, verdict=verdict, mine=may_vote(here, view, now),
        counting=tally.counting(view),
        # Only the part that shows it waits for clusters.
        card=lambda: served.cards.of(view, now, "/incidents/{incident}"),
    )  # fmt: skip


@router.post("/{approval:path}")
async def vote(request: Request, approval: str, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    given = {name: fields.get(name, "") for name in ("verdict", "shown_hash", "reason")}
    ballot = Ballot.model_validate(given)
    return go(request, here, "/approvals", await cast(served, here.person, approval, ballot))
