"""Every refusal is one line of JSON, `{"error": ...}`, with the status that says whose turn it is."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from activities.ports import Unreadable
from worker.engine import Declined, NotRunning, Unavailable
from worker.gateway.authentication import AuthError

RETRY_AFTER_S = 5

log = logging.getLogger(__name__)


class Problem(Exception):
    """A refusal with its status; the message says what and what to do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def refusal(status: int, message: str, **more: object) -> JSONResponse:
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return JSONResponse({"error": message, **more}, status_code=status, headers=headers)


def install(app: FastAPI) -> None:
    @app.exception_handler(AuthError)
    async def auth(_: Request, error: AuthError) -> JSONResponse:
        return refusal(error.status, str(error))

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> JSONResponse:
        return refusal(error.status, str(error))

    @app.exception_handler(Declined)
    async def declined(_: Request, error: Declined) -> JSONResponse:
        return refusal(409, str(error))

    @app.exception_handler(NotRunning)
    async def not_running(_: Request, error: NotRunning) -> JSONResponse:
        return refusal(409, f"{error} does not run any more")

    @app.exception_handler(Unavailable)
    async def unavailable(_: Request, error: Unavailable) -> JSONResponse:
        return refusal(503, f"the workflow engine does not answer: {error}; try again")

    @app.exception_handler(Unreadable)
    async def unreadable(_: Request, error: Unreadable) -> JSONResponse:
        return refusal(503, f"cannot be read now: {error}; try again")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return refusal(422, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return refusal(500, "failed inside; nothing is known to have happened; the log of the gateway says more")
