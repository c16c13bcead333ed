"""Slack's Web API: one call, with its time-out, and what its errors mean to us."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import Any

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from activities.chat.pacing import Paced, Pacing
from activities.ports import NotSent, Unclear, Unreadable

Answer = dict[str, Any]

PASSING = frozenset({"ratelimited", "rate_limited", "service_unavailable", "internal_error", "fatal_error",
                     "request_timeout", "team_added_to_org"})  # fmt: skip
MAY_HAVE_HAPPENED = frozenset({"internal_error", "fatal_error", "request_timeout", "service_unavailable"})
GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "channel_not_found",
                  "is_archived"})  # fmt: skip
RETRY_S = 5.0


class Gone(NotSent):
    """The message isn't there to be changed any more."""


class SlackApi:
    """Blocking; used from threads. Retries are the callers', who know what may be sent twice: the SDK's are off."""

    def __init__(self, token: str, base: str, timeout_s: float, pacing: Pacing | None = None) -> None:
        self._timeout_s = timeout_s
        self._base = base
        # Once: else every call reads all of the machine's certificates.
        self._ssl = ssl.create_default_context()
        self._client = WebClient(
            token=token, base_url=base, timeout=max(1, round(timeout_s)), ssl=self._ssl, retry_handlers=[]
        )
        self.pacing = pacing or Pacing()

    def send(self, method: str, *, patience_s: float = 0.0, **arguments: Any) -> Answer:
        """A call that people see; `patience_s` is how long it may wait for its turn. Raises `NotSent` or `Unclear`."""
        try:
            self.pacing.take(method, str(arguments.get("channel", "")), patience_s)
        except Paced as error:
            raise NotSent(f"{method}: {error}", retry_after_s=error.after_s) from None
        return self.now(method, **arguments)

    def read(self, method: str, *, patience_s: float = 0.0, **arguments: Any) -> Answer:
        """Raises `Unreadable`."""
        try:
            self.pacing.take(method, "", patience_s)
            # Reads take no JSON.
            return self._call(method, {}, params=arguments)
        except Paced as error:
            raise Unreadable(f"{method}: {error}") from None
        except SlackApiError as error:
            raise Unreadable(str(self._refused(method, error))) from None
        except (OSError, SlackClientError, ValueError) as error:
            raise Unreadable(f"{method}: {type(error).__name__}: {error}") from None

    def workspace(self) -> str:
        """Whose token this is. Raises `Unreadable`."""
        return str(self.read("auth.test").get("team_id", ""))

    def now(self, method: str, **arguments: Any) -> Answer:
        """An answer to a person who waits, unpaced: their tiers are high, their time is short. Raises as `send`."""
        try:
            return self._call(method, arguments)
        except SlackApiError as error:
            raise self._refused(method, error) from None
        except (OSError, SlackClientError, ValueError) as error:
            raise Unclear(f"{method}: {type(error).__name__}: {error}") from None

    def respond(self, url: str, text: str) -> None:
        """To a command, for its author's eyes only. Raises `Unclear`, and `NotSent` for a place that isn't Slack's."""
        home = "https://hooks.slack.com/" if self._base == "https://slack.com/api/" else self._base
        if not url.startswith(home):
            raise NotSent(f"an answer may not be sent to {url[:100]}", final=True)
        body = json.dumps({"response_type": "ephemeral", "text": text}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310  checked above
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._ssl):  # noqa: S310
                return
        except (OSError, ValueError) as error:
            raise Unclear(f"response_url: {type(error).__name__}: {error}") from None

    def _call(self, method: str, arguments: dict[str, Any], params: dict[str, Any] | None = None) -> Answer:
        if params is not None:
            answer = self._client.api_call(method, params=params).data
        else:
            answer = self._client.api_call(method, json=arguments).data
        return answer if isinstance(answer, dict) else {}

    def _refused(self, method: str, error: SlackApiError) -> NotSent | Unclear:
        answer: Any = error.response
        code = str(answer.get("error") or "")
        # What isn't JSON (a proxy's page) comes as a plain dictionary.
        plain = isinstance(answer, dict)
        status = int(answer.get("status", 0) if plain else answer.status_code)
        if status == 429 or code in ("ratelimited", "rate_limited"):
            after_s = _seconds(answer.get("headers", {}) if plain else answer.headers)
            self.pacing.hold(method, after_s)
            return NotSent(f"{method}: Slack asks to wait {after_s:g} s", retry_after_s=after_s)
        if status >= 500 or code in MAY_HAVE_HAPPENED:
            return Unclear(f"{method}: {code or f'status {status}'}")
        if code in GONE:
            return Gone(f"{method}: {code}", final=True)
        return NotSent(f"{method}: {code or f'status {status}'}; see docs/slack.md", final=code not in PASSING)


def _seconds(headers: Any) -> float:
    found = {str(key).lower(): value for key, value in dict(headers).items()}.get("retry-after", RETRY_S)
    try:
        return min(max(float(found[0] if isinstance(found, list) else found), 0.1), 600.0)
    except (TypeError, ValueError):
        return RETRY_S
