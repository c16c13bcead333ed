"""Signing in: with a personal token, or as whom a trusted proxy names; and out again."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from worker.console.pages import PageRoute, cookie_age, https, render
from worker.console.sessions import Session, Sessions
from worker.gateway import bodies
from worker.gateway.authentication import AuthError
from worker.gateway.errors import Problem
from worker.gateway.people import People, Right
from worker.gateway.services import Services

router = APIRouter(route_class=PageRoute, include_in_schema=False)

COOKIE = "medevac_session"
FIRST = "medevac_login"
"""Cookie that ties the sign-in form to the browser it was shown in."""
LONGEST_FORM = 65_536
MOST_FIELDS = 50

Form = dict[str, str]


async def services(request: Request) -> Services:
    """The gateway's, with threads of the console's own."""
    found: Services = request.app.state.console.services
    return found


Served = Annotated[Services, Depends(services)]


def sessions_of(served: Services) -> Sessions:
    return Sessions(served.session_key, served.people, timedelta(seconds=served.console.session_s))


async def session(request: Request, served: Served) -> Session:
    """Who looks. Raises `AuthError`."""
    keeper: Sessions = request.app.state.console.sessions
    found = _proxied(request, served, keeper)
    if found is None and (cookie := request.cookies.get(COOKIE)):
        found = keeper.find(cookie, served.now())
    if found is None:
        raise AuthError(401, "sign in first")
    found.person.require(Right.READ)
    return replace(found, person=found.person.by("console"))


Here = Annotated[Session, Depends(session)]


def _proxied(request: Request, served: Services, keeper: Sessions) -> Session | None:
    proxy = served.console.proxy
    if proxy is None or request.client is None:
        return None
    try:
        peer = ip_address(request.client.host)
    except ValueError:
        return None
    given = request.headers.getlist(proxy.header)
    if not given or not any(peer in network for network in proxy.addresses):
        return None
    people: People = served.people
    person = people.at_proxy(given[0].strip()) if len(given) == 1 else None
    if person is None:
        raise AuthError(403, "the proxy has signed in somebody who isn't known here; `people` of the configuration is")
    return keeper.of_proxy(person)


async def form(request: Request) -> Form:
    """The fields of a posted form, bounded. The last of a name counts."""
    body = await bodies.read(request, LONGEST_FORM, "the form is too large")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except (UnicodeDecodeError, ValueError):
        raise Problem(400, "the form can't be read") from None


async def posted(request: Request, here: Here) -> Form:
    """Of the person's own page: nobody else's page can know its `csrf`. Raises `Problem`."""
    fields = await form(request)
    _own(request, fields, here.csrf)
    return fields


Posted = Annotated[Form, Depends(posted)]


def _own(request: Request, fields: Form, csrf: str) -> None:
    ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not ours or not hmac.compare_digest(fields.get("csrf", "").encode(), csrf.encode()):
        raise Problem(403, "the form did not come from a page of yours, or your session is another now; load it anew")


@router.get("/login")
async def login(request: Request, next: str = "/") -> HTMLResponse:
    return _asked(request, next)


@router.post("/login")
async def sign_in(request: Request, served: Served) -> Response:
    fields = await form(request)
    keeper: Sessions = request.app.state.console.sessions
    _own(request, fields, keeper.csrf(f"login:{request.cookies.get(FIRST, secrets.token_hex())}"))
    try:
        person = served.people.holder(fields.get("token", "").strip())
        person.require(Right.READ)
    except AuthError as error:
        return _asked(request, fields.get("next", "/"), error)
    response = RedirectResponse(_local(fields.get("next", "/")), status_code=303)
    response.set_cookie(
        COOKIE,
        keeper.begin(person, served.now()),
        max_age=cookie_age(keeper.lasts),
        path="/",
        httponly=True,
        samesite="strict",
        secure=https(request),
    )
    response.delete_cookie(FIRST, path="/login")
    return response


@router.post("/logout")
async def sign_out(request: Request, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    request.app.state.console.sessions.end(here, served.now())
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(COOKIE, path="/")
    return response


def _asked(request: Request, next: str, error: AuthError | None = None) -> HTMLResponse:
    nonce = secrets.token_urlsafe(16)
    csrf = request.app.state.console.sessions.csrf(f"login:{nonce}")
    text = render("login.html", csrf=csrf, next=_local(next), problem=str(error) if error else "", here="/login")
    response = HTMLResponse(text, status_code=error.status if error else 200)
    response.set_cookie(FIRST, nonce, path="/login", httponly=True, samesite="strict", secure=https(request))
    return response


def _local(path: str) -> str:
    """Only a page of ours: a link to the sign-in must not lead anywhere else afterwards."""
    parts = urlsplit(path.replace("\\", "/"))
    safe = path.isprintable() and path.startswith("/") and not path.startswith("//") and not parts.netloc
    return path if safe and "\\" not in path else "/"
