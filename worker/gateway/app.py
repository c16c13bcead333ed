"""The FastAPI application."""

from __future__ import annotations

from fastapi import FastAPI

from worker.console import app as console
from worker.gateway import (
    adopt,
    approvals,
    campaigns,
    case_replies,
    cases,
    dead_letters,
    drills,
    errors,
    events,
    fences,
    health,
    incidents,
    page,
    policy,
    providers,
    reports,
    silences,
    slack,
)
from worker.gateway.addresses import NoNul
from worker.gateway.services import Services


def create_app(services: Services) -> FastAPI:
    app = FastAPI(
        title="medevac",
        summary="Durable, verified, human-gated remediation for GPU fleets",
        version="1",
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    errors.install(app)
    app.add_middleware(NoNul)
    for room in (
        events,
        dead_letters,
        incidents,
        approvals,
        campaigns,
        case_replies,
        cases,
        drills,
        fences,
        adopt,
        policy,
        providers,
        reports,
        silences,
        health,
        page,
        slack,
    ):
        app.include_router(room.router)
    console.install(app, services)
    return app
