"""Every refusal is one line of JSON, `{"error": ...}`, with the status that says whose turn it is."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from activities.ports import Unreadable
from activities.storage.policies import NoPolicy
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


REFUSED = (
    AuthError, Problem, Declined, NotRunning, Unavailable, Unreadable, NoPolicy, RequestValidationError,
    ValidationError,
)  # fmt: skip
"""What a person or sender is told of, in the words of `said`."""


def said(error: Exception) -> tuple[int, str]:
    """Status and words of one of `REFUSED`."""
    match error:
        case AuthError() | Problem():
            return error.status, str(error)
        case Declined():
            return 409, str(error)
        case NotRunning():
            return 409, f"{error} does not run any more"
        case Unavailable():
            return 503, f"the workflow engine does not answer: {error}; try again"
        case RequestValidationError() | ValidationError():
            first = error.errors()[0]
            return 422, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        case _:
            return 503, f"cannot be read now: {error}; try again"


def install(app: FastAPI) -> None:
    async def refused(_: Request, error: Exception) -> JSONResponse:
        return refusal(*said(error))

    for kind in REFUSED:
        # One that is raised while an answer is made is a fault of ours.
        if kind is not ValidationError:
            app.add_exception_handler(kind, refused)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return refusal(500, "failed inside; nothing is known to have happened; the log of the gateway says more")
