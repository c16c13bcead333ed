"""Is it alive, is it ready, what has it counted."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from worker.engine import Unavailable
from worker.gateway.services import Served

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process answers")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Deliveries can be held: ledger at head, policy active, Temporal answers")
async def readyz(served: Served) -> JSONResponse:
    trouble = {}
    try:
        await served.threads.run(served.stores.database.check)
        await served.threads.run(served.stores.policies.active)
    except Exception as error:
        trouble["ledger"] = str(error).splitlines()[0]
    try:
        await served.engine.ping()
    except Unavailable as error:
        trouble["temporal"] = str(error)
    if trouble:
        return JSONResponse({"status": "not ready", **trouble}, status_code=503)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", summary="Prometheus metrics")
async def metrics(request: Request) -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
