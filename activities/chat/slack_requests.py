"""Whether a request is Slack's own: signed over its raw bytes, within five minutes, for our app in our workspace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from slack_sdk.signature import SignatureVerifier

LONGEST_STAMP = 12


class NotSlack(Exception):
    """Who asks isn't told more than that."""


def verify(secret: str, body: bytes, headers: Mapping[str, str]) -> str:
    """What tells this request from every other, to find replays by. Raises `NotSlack`."""
    stamp = headers.get("x-slack-request-timestamp", "")
    signature = headers.get("x-slack-signature", "")
    try:
        # The SDK takes any number there is, and stumbles over one that no clock shows.
        number = stamp.isascii() and stamp.isdigit() and len(stamp) <= LONGEST_STAMP
        good = number and SignatureVerifier(secret).is_valid(body, stamp, signature)
    except (ValueError, TypeError):  # bytes that are no text
        good = False
    if not good:
        raise NotSlack
    return f"request/{hashlib.sha256(f'{stamp}:{signature}'.encode()).hexdigest()}"


def person_of(team: str, app: str, payload: Mapping[str, Any]) -> str:
    """The user's id, of someone who belongs to our workspace. Raises `NotSlack` for anything of another.

    People of other organisations appear in shared channels: their own workspace is what counts.
    """
    user = payload.get("user")
    found = payload.get("team")
    who = user.get("id") if isinstance(user, dict) else payload.get("user_id")
    home = user.get("team_id") if isinstance(user, dict) else None
    where = found.get("id") if isinstance(found, dict) else payload.get("team_id")
    if payload.get("api_app_id") != app or where != team or home not in (None, team) or not isinstance(who, str):
        raise NotSlack
    return who
