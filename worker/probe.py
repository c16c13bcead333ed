"""The worker's own small HTTP server: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def probe_server(
    host: str, port: int, trouble: Callable[[], str], unready: Callable[[], str] | None = None
) -> uvicorn.Server:
    """`trouble`: why the process should be started anew, or nothing. `unready`: why it can't do its work now, which
    a restart needn't mend; where left out it is the same."""

    def says(why: Callable[[], str]) -> Callable[[Request], Awaitable[JSONResponse]]:
        async def answer(_: Request) -> JSONResponse:
            found = why()
            return JSONResponse({"status": found or "ok"}, status_code=503 if found else 200)

        return answer

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(
        routes=[
            Route("/healthz", says(trouble)),
            Route("/readyz", says(unready or trouble)),
            Route("/metrics", metrics),
        ]
    )
    return QuietServer(uvicorn.Config(app, host=host, port=port, log_level="warning", access_log=False))


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone; who runs it decides when it ends (`should_exit`)."""

    def install_signal_handlers(self) -> None:
        return

    def capture_signals(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()
