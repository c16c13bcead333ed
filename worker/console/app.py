"""The console's routes, and what one process keeps for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastapi import APIRouter, FastAPI, Response

from worker.console import (
    approvals,
    audit,
    campaigns,
    cases,
    entering,
    fleet,
    guard,
    incidents,
    live,
    providers,
    silences,
)
from worker.console.entering import sessions_of
from worker.console.live import Live
from worker.console.pages import PageRoute, assets
from worker.console.sessions import Sessions
from worker.gateway.errors import Problem
from worker.gateway.services import Services
from worker.threads import Threads

static = APIRouter(route_class=PageRoute, include_in_schema=False)
THREADS = 4
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Console:
    services: Services
    sessions: Sessions
    live: Live

    def close(self) -> None:
        self.live.close()


@static.get("/console/static/{name}")
async def asset(name: str) -> Response:
    if name not in assets():
        raise Problem(404, "there is no such file")
    content, _ = assets()[name]
    # Asked for under its version, and no secret: it may be kept.
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(content, media_type=TYPES[name.rpartition(".")[2]], headers=headers)


def install(app: FastAPI, services: Services) -> None:
    # Of its own: however long people's searches take, events are taken in meanwhile.
    own = replace(services, threads=Threads(THREADS))
    app.state.console = Console(own, sessions_of(own), Live(own.stores.views, own.threads))
    for room in (static, entering.router, live.router):
        app.include_router(room)
    for page in (fleet, incidents, approvals, campaigns, guard, silences, cases, providers, audit):
        app.include_router(page.router)
