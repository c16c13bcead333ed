"""How each provider does, with the counts behind each rate: the API's scorecard as a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from worker.console.entering import Here, Served
from worker.console.pages import PageRoute, page
from worker.gateway import providers as api

router = APIRouter(prefix="/providers", route_class=PageRoute, include_in_schema=False)


@router.get("")
async def providers(
    request: Request, served: Served, here: Here, days: Annotated[float, Query(ge=0.01, le=400)] = 30.0
) -> HTMLResponse:
    found = await api.providers(served, here.person, days)
    return await served.threads.run(page, request, served, here, "providers.html", found=found, days=days)
