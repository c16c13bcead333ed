"""The gateway as commands see it: over HTTP, with the person's or the sender's own token."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from worker.cli.output import Failed, plain
from worker.cli.patience import USUAL, Patience
from worker.cli.running import running

CLIENT = "medevac-cli"
"""What the command line calls itself."""


class Api:
    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}", "User-Agent": CLIENT},
            trust_env=True,
        )

    def get(self, path: str, **query: Any) -> Any:
        return self._call("GET", path, params={k: v for k, v in query.items() if v is not None})

    def post(self, path: str, body: Any = None, patience: Patience = USUAL) -> Any:
        """Carries an idempotency key, so that asking again after no answer is one order."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._call("POST", path, patience, json=body or {}, headers=headers)

    def deliver(self, source: str, body: bytes, headers: dict[str, str]) -> Any:
        passed = {
            k: v for k, v in headers.items() if k not in ("host", "content-length", "authorization", "connection")
        }
        return self._call("POST", f"/v1/events/{quote(source, safe='')}", content=body, headers=passed)

    def _call(self, method: str, path: str, patience: Patience = USUAL, **options: Any) -> Any:
        try:
            answer = self._client.request(method, path, timeout=patience.seconds, **options)
        except httpx.ReadTimeout as error:
            raise Failed(f"{self.url} has not answered within {patience.seconds:g} s: {patience.why}") from error
        except httpx.HTTPError as error:
            raise Failed(f"{self.url} does not answer ({error}); is the gateway up, and MEDEVAC_URL right?") from error
        try:
            content = answer.json()
        except ValueError:
            content = {"error": answer.text[:200]}
        if answer.is_success:
            return content
        said = content.get("error") if isinstance(content, dict) else None
        # What the person can put right is 2; what isn't theirs is 1.
        raise Failed(plain(said or f"status {answer.status_code}"), 2 if answer.status_code < 500 else 1)


def person_api(url: str | None = None) -> Api:
    return Api(_url(url), _token("MEDEVAC_TOKEN", "person_token", "your own token"))


def sender_api(url: str | None, token: str | None) -> Api:
    return Api(_url(url), token or _token("MEDEVAC_SENDER_TOKEN", "sender_token", "the sender's token"))


def part(identifier: str) -> str:
    """An id inside a path; its slashes stay."""
    return quote(identifier, safe="/")


def _url(url: str | None) -> str:
    found = url or os.environ.get("MEDEVAC_URL") or running().get("url")
    if not found:
        raise Failed("where is the gateway? Set MEDEVAC_URL, or start `medevac up` here", 2)
    return str(found)


def _token(variable: str, kind: str, what: str) -> str:
    value = os.environ.get(variable, "")
    if not value and (path := os.environ.get(f"{variable}_FILE")):
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Failed(f"{variable}_FILE: cannot read {path}: {error.strerror}", 2) from error
    if not value and not os.environ.get("MEDEVAC_URL"):
        file = running().get(f"{kind}_file")
        value = Path(file).read_text(encoding="utf-8").strip() if file and Path(file).exists() else ""
    if not value:
        raise Failed(f"who are you? Set {variable} (or {variable}_FILE) to {what}", 2)
    return value
