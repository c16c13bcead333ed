"""Addresses that name nothing: refused before anything is looked for by them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from worker.gateway.errors import refusal


class NoNul:
    """PostgreSQL holds no NUL, and what asks for one fails inside instead of finding nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ("\0" in scope["path"] or b"%00" in scope["query_string"]):
            await refusal(422, "the address holds a NUL, which nothing here is called by")(scope, receive, send)
            return
        await self._app(scope, receive, send)
