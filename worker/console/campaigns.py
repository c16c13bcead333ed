"""Campaigns: how far each is and why it stands, and a person's pause, halt or resume."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from medevac.campaigns import wording
from medevac.campaigns.progress import POSSIBLE_IN, NodeState, left_out
from worker.console.entering import Here, Posted, Served
from worker.console.pages import PageRoute, go, page
from worker.gateway import campaigns as api
from worker.gateway.errors import Problem
from worker.gateway.services import Services

router = APIRouter(prefix="/campaigns", route_class=PageRoute, include_in_schema=False)

ORDERS = {"pause": api.pause, "halt": api.halt, "resume": api.resume, "widen": api.widen, "end": api.end}
MOST_SHOWN = 2_000


@router.get("")
async def campaigns(request: Request, served: Served, here: Here) -> HTMLResponse:
    def read() -> HTMLResponse:
        rows = list(served.stores.campaigns.all(False))[:100]
        return page(request, served, here, "campaigns.html", rows=rows)

    return await served.threads.run(read)


@router.get("/{campaign}")
async def campaign(request: Request, campaign: str, served: Served, here: Here) -> HTMLResponse:
    return await served.threads.run(_campaign, request, campaign, served, here)


@router.post("/{campaign}/{order}")
async def order(
    request: Request, campaign: str, order: str, served: Served, here: Here, fields: Posted
) -> RedirectResponse:
    if order not in ORDERS:
        raise Problem(404, "there is no such order")
    word = api.Ordered(reason=fields.get("reason", "").strip())
    answer = await ORDERS[order](campaign, word, served, here.person)
    return go(request, here, f"/campaigns/{campaign}", answer.answer)


def _campaign(request: Request, campaign: str, served: Services, here: Here) -> HTMLResponse:
    row = served.stores.campaigns.get(campaign)
    if row is None:
        raise Problem(404, f"no campaign is called {campaign[:100]}")
    nodes = list(served.stores.campaigns.nodes(campaign))
    count = Counter(node.state for node in nodes)
    over = sum(number for state, number in count.items() if state.over)
    possible = [order for order, states in POSSIBLE_IN.items() if row.state in states]
    return page(
        request, served, here, "campaign.html", row=row, nodes=nodes[:MOST_SHOWN], count=count, over=over,
        total=len(nodes), left_out=left_out(nodes), states=tuple(NodeState), possible=possible,
        orders=served.stores.campaigns.words(campaign), happens=wording.happens(row.plan.spec),
        differing=wording.differing(row.plan.spec.care), pace=wording.pace(row.plan),
        members={member.key: member for member in row.plan.members}, skipped=row.plan.skipped[:MOST_SHOWN],
    )  # fmt: skip
