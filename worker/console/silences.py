"""Silences: who holds what back, why and until when; one made, one ended early."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from activities.quietly import Quietly
from medevac.faults.classes import FaultClass
from medevac.incident import IncidentView
from medevac.policy.silences import LONGEST, Holds, Matcher, Silence
from worker.console.entering import Here, Posted, Served
from worker.console.pages import PageRoute, go, hours_of, page
from worker.gateway import silences as api
from worker.gateway.people import Right
from worker.gateway.services import Services

router = APIRouter(prefix="/silences", route_class=PageRoute, include_in_schema=False)

LATELY = 50
MOST = 1_000
"""Open incidents, newest first, among which those that a silence fits are looked for."""
LINES = tuple(name for name in Matcher.model_fields if name != "fault_class")

Words = Annotated[str, Query(max_length=253)]


@router.get("")
async def silences(
    request: Request, served: Served, here: Here,
    cluster: Words = "", pool: Words = "", node: Words = "", fault: Words = "", source: Words = "",
) -> HTMLResponse:  # fmt: skip
    """With a matcher's lines in the address, as an incident's page gives them, they stand in the form."""
    asked = {"cluster": cluster, "pool": pool, "node": node, "fault": fault, "source": source}

    def read() -> HTMLResponse:
        now = served.now()
        standing = served.stores.silences.standing(now)
        over = [one for one in served.stores.silences.latest(LATELY) if not one.stands(now)]
        return page(
            request, served, here, "silences.html", rows=[(one, fitting) for one, fitting in _fits(served, standing)],
            over=over, asked=asked, lines=LINES, classes=tuple(FaultClass), edges=tuple(Holds),
            may=here.person.may(Right.OPERATE), longest_h=int(LONGEST.total_seconds() // 3_600),
        )  # fmt: skip

    return await served.threads.run(read)


@router.post("")
async def add(request: Request, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    lines = {name: fields.get(name, "").strip() or None for name in (*LINES, "fault_class")}
    wish = api.Wish.model_validate(
        {
            "matcher": lines,
            "reason": fields.get("reason", "").strip(),
            "for_s": hours_of(fields),
            "holds": [edge for edge in Holds if fields.get(edge) == "on"],
        }
    )
    return go(request, here, "/silences", (await api.add(wish, served, here.person)).answer)


@router.post("/{id}/end")
async def end(request: Request, id: str, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    return go(request, here, "/silences", (await api.end(id, served, here.person)).answer)


def _fits(served: Services, standing: list[Silence]) -> list[tuple[Silence, list[IncidentView]]]:
    """With the open incidents that each fits, latched ones too: those are told and paged all the same."""
    if not standing:
        return []
    quietly = Quietly(served.stores.ledger, served.stores.policies, served.stores.silences)
    opened = served.stores.ledger.incidents(open_only=True, limit=MOST)
    known = [(view, quietly.subjects(view, standing, served.now())) for view in opened]
    return [(one, [view for view, those in known if any(map(one.matcher.fits, those))]) for one in standing]
