"""How a page is made and sent: templates, one block of them for a live update, headers, refusals as pages."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute

from medevac.approvals import tally
from medevac.approvals.approval import ApprovalView
from worker.console.sessions import Session
from worker.gateway.errors import REFUSED, RETRY_AFTER_S, Problem, said
from worker.gateway.services import Services

HERE = Path(__file__).parent
PART = "x-part"
"""Request header: the one block of the page that is wanted."""
SAID = "medevac_said"
SAID_S = 60
LONGEST_NUMBER = 6
"""Digits of a number in a form; more than any that is allowed."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Name → content and its version."""
    files = sorted((HERE / "static").iterdir())
    return {file.name: (file.read_bytes(), hashlib.sha256(file.read_bytes()).hexdigest()[:12]) for file in files}


def _asset(name: str) -> str:
    return f"/console/static/{name}?v={assets()[name][1]}"


def when(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat(" ", "seconds")[:19] if at else ""


def span(seconds: float) -> str:
    """About how long, in the two largest units."""
    left = int(max(0, seconds))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


@cache
def _templates() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"when": when, "span": span, "url": lambda text: quote(str(text), safe="")}
    env.globals |= {"asset": _asset}
    return env


def page(
    request: Request, served: Services, session: Session, template: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """Blocking, for it also reads how many approvals wait: call it on a thread."""
    part, said_before = request.headers.get(PART), served_said(request, session)
    shown = part in (None, "header", "waiting")
    waiting = served.stores.ledger.approvals(pending_only=True, limit=500) if shown else []
    text = render(
        template,
        part,
        installation=served.installation,
        session=session,
        here=request.url.path,
        waiting=sum(may_vote(session, view, served.now()) for view in waiting),
        said=said_before,
        now=served.now(),
        **values,
    )
    response = HTMLResponse(text, status_code=status)
    if said_before and part is None:
        response.delete_cookie(SAID, path="/")
    return response


def may_vote(session: Session, view: ApprovalView, now: datetime) -> bool:
    """Whether this approval waits for this person."""
    return tally.waits_for(view, session.person.id, session.person.groups, now)


def hours_of(fields: Mapping[str, str], otherwise: str = "") -> int:
    """The field `hours` of a form, in seconds. Raises `Problem`."""
    hours = fields.get("hours", otherwise).strip()
    if not (hours.isascii() and hours.isdigit() and len(hours) <= LONGEST_NUMBER):
        raise Problem(422, "hours: give a whole number; it has an end")
    return int(hours) * 3_600


def render(template: str, part: str | None = None, **values: Any) -> str:
    """The whole page, or the one block of it that is called `part`."""
    found = _templates().get_template(template)
    if part is None:
        return found.render(**values)
    blocks: dict[str, Any] = {}
    for parent in (_templates().get_template("base.html"), found):
        blocks |= parent.blocks
    if part not in blocks:
        raise Problem(404, "this page has no such part; load it anew")
    return "".join(blocks[part](found.new_context(values)))


def served_said(request: Request, session: Session) -> str:
    keeper = request.app.state.console.sessions
    return str(keeper.carried(request.cookies.get(SAID, ""), session.id))


def go(request: Request, session: Session, to: str, said: str) -> RedirectResponse:
    """After a form: to a page that says what came of it, so that loading it anew does nothing twice."""
    response = RedirectResponse(to, status_code=303)
    words = request.app.state.console.sessions.carry(said, session.id)
    response.set_cookie(SAID, words, max_age=SAID_S, path="/", httponly=True, samesite="strict", secure=https(request))
    return response


def https(request: Request) -> bool:
    """Whether the browser came by https. A forged header makes a cookie stricter, for its forger."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "") == "https"


def cookie_age(lasts: timedelta) -> int:
    return int(lasts.total_seconds())


def refused(request: Request, status: int, message: str) -> HTMLResponse:
    text = render("refused.html", status=status, message=message, here=request.url.path)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return HTMLResponse(text, status_code=status, headers=headers)


class PageRoute(APIRoute):
    """Every answer with the page's headers, every refusal as a page; who isn't signed in is asked to."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            began = time.perf_counter()
            try:
                response = await handle(request)
            except REFUSED as error:
                status, words = said(error)
                if status == 401 and request.method == "GET" and PART not in request.headers:
                    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                    response = RedirectResponse(f"/login?next={quote(back, safe='')}", status_code=303)
                else:
                    response = refused(request, status, words)
            response.headers["Server-Timing"] = f"page;dur={(time.perf_counter() - began) * 1_000:.1f}"
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer
