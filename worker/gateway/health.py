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


@router.get("/readyz", summary="Deliveries can be held: by Temporal, or by the ledger's inbox")
async def readyz(served: Served) -> JSONResponse:
    """`degraded` is still ready: taken out of service, the gateway could hold nothing for when the other is back."""
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
    if len(trouble) > 1:
        return JSONResponse({"status": "not ready", **trouble}, status_code=503)
    if trouble:
        return JSONResponse({"status": "degraded", **trouble})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", summary="Prometheus metrics")
async def metrics(request: Request) -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
