"""Cases with providers: what was written, what they answered and seem to say, what is proved, and people's word."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from medevac.cases.case import POSSIBLE_IN
from worker.console.entering import Here, Posted, Served
from worker.console.pages import PageRoute, go, page
from worker.gateway import cases as api
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer, Reason
from worker.gateway.people import Right
from worker.gateway.services import Services

router = APIRouter(prefix="/cases", route_class=PageRoute, include_in_schema=False)

MOST = 500


@router.get("")
async def cases(
    request: Request,
    served: Served,
    here: Here,
    all: bool = False,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
) -> HTMLResponse:
    def read() -> HTMLResponse:
        rows = served.stores.cases.all(open_only=not all, limit=limit)
        return page(request, served, here, "cases.html", rows=rows, all=all, limit=limit)

    return await served.threads.run(read)


@router.get("/{case}")
async def case(request: Request, case: str, served: Served, here: Here) -> HTMLResponse:
    return await served.threads.run(_case, request, case, served, here)


@router.post("/{case}/{order}")
async def order(
    request: Request, case: str, order: str, served: Served, here: Here, fields: Posted
) -> RedirectResponse:
    answer = await _given(order, case, fields.get("words", "").strip(), served, here)
    return go(request, here, f"/cases/{case}", answer.answer)


async def _given(order: str, case: str, words: str, served: Services, here: Here) -> Answer:
    if order == "comment":
        return await api.comment(case, api.Text(text=words), served, here.person)
    if order == "close":
        return await api.close(case, Reason(reason=words), served, here.person)
    if order == "retry":
        return await api.retry(case, Reason(reason=words), served, here.person)
    raise Problem(404, "there is no such order")


def _case(request: Request, case: str, served: Services, here: Here) -> HTMLResponse:
    row = served.stores.cases.get(case)
    if row is None:
        raise Problem(404, f"no case is called {case[:100]}")
    may = here.person.may(Right.OPERATE)
    possible = [order for order, states in POSSIBLE_IN.items() if may and row.state in states]
    return page(request, served, here, "case.html", row=row, possible=possible)
