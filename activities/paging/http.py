"""What the HTTP APIs of paging systems have in common: how an answer is read, and what is never told of it."""

from __future__ import annotations

from typing import Any

import httpx
from pydantic import Field

from activities.failures import redact
from activities.ports import NotAllowed, NotSent, Unclear
from activities.secret import Secret
from medevac.model import Model

ASKED = "medevac/doctor"
"""Key of a page that never stands: to resolve it wakes nobody."""
THROTTLED_S = 30.0


class PagerOptions(Model):
    drill: bool = False
    """A service for trials, the only kind that a simulated fleet may page."""
    timeout_s: float = Field(default=5.0, gt=0, le=30)
    """Of one call."""


def client(options: PagerOptions) -> httpx.Client:
    timeout = httpx.Timeout(options.timeout_s, connect=min(3.0, options.timeout_s))
    return httpx.Client(timeout=timeout, follow_redirects=False)


def secret_of(name: str, secret: Secret) -> str:
    try:
        return secret.value()
    except NotAllowed as error:
        raise NotSent(f"pager {name}: {error}", final=True) from None


def send(name: str, http: httpx.Client, url: str, body: dict[str, Any], headers: dict[str, str], secret: str) -> None:
    """Posts it. Only a 2xx is taken. Raises `NotSent` or `Unclear`, in which the secret never stands."""
    try:
        answer = http.post(url, json=body, headers=headers)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise NotSent(f"pager {name}: can't be reached ({type(error).__name__})") from None
    except httpx.HTTPError as error:
        raise Unclear(f"pager {name}: no answer ({type(error).__name__})") from None
    if answer.is_success:
        return
    said = redact(answer.text.replace(secret, "***"), 200)
    why = f"pager {name}: HTTP {answer.status_code}: {said}"
    if answer.status_code == 429:
        raise NotSent(why, retry_after_s=_retry_after(answer))
    if answer.status_code >= 500:
        raise Unclear(why)
    raise NotSent(why, final=True)


def _retry_after(answer: httpx.Response) -> float:
    try:
        return min(600.0, max(1.0, float(answer.headers.get("Retry-After", ""))))
    except ValueError:
        return THROTTLED_S
