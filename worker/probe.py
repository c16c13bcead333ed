"""The worker's own small HTTP server: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def probe_server(host: str, port: int, trouble: Callable[[], str]) -> uvicorn.Server:
    async def health(_: Request) -> JSONResponse:
        why = trouble()
        return JSONResponse({"status": why or "ok"}, status_code=503 if why else 200)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(routes=[Route("/healthz", health), Route("/readyz", health), Route("/metrics", metrics)])
    return QuietServer(uvicorn.Config(app, host=host, port=port, log_level="warning", access_log=False))


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone; who runs it decides when it ends (`should_exit`)."""

    def install_signal_handlers(self) -> None:
        return

    def capture_signals(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()
