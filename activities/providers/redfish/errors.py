"""What an error of a BMC means: surely not sent, perhaps sent, or never to be allowed. By code, never by wording."""

from __future__ import annotations

import re
from typing import Any

import requests
from sushy import exceptions as sushy  # type: ignore[import-untyped]
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from activities.ports import NotAllowed, NotSent, Unclear, Unreadable

BUSY_S = 10.0
"""Until a BMC that is busy is asked again, where it names no time itself."""
BUSY_CODES = frozenset({409, 429, 503})
BUSY_MESSAGES = re.compile(
    r"(?:^|\.)(?:ServiceTemporarilyUnavailable|ResourceInUse|ResourceInStandby|ServiceInUnknownState|SYS518"
    r"|InvalidOperationForSystemState|UnableToModifyDuringSystemPOST|ServerNotReady)$"
)
"""Last part of a message's id: the machine or its BMC is in the middle of something else."""


def of_a_write(error: Exception, what: str, retry_after_s: float | None = None) -> NotSent | Unclear:
    said = f"{what}: {words(error)}"
    if isinstance(error, sushy.HTTPError):
        return _answered(error, said, retry_after_s)
    if isinstance(error, sushy.ConnectionError):
        if _untrusted(error):
            return NotSent(said, final=True)
        return NotSent(said, retry_after_s=BUSY_S) if _never_left(error) else Unclear(said)
    if isinstance(error, sushy.SushyError):
        # It misses an action, or a value isn't allowed: sushy says so before anything is sent.
        return NotSent(said, final=True)
    return Unclear(said)


def of_a_read(error: Exception, what: str) -> Unreadable:
    said = f"{what}: {words(error)}"
    denied = isinstance(error, sushy.AccessError) or (isinstance(error, sushy.ConnectionError) and _untrusted(error))
    return NotAllowed(said) if denied else Unreadable(said)


def words(error: Exception) -> str:
    """Short, and without the address, in which nothing secret may stand but something long does."""
    if isinstance(error, sushy.HTTPError):
        return f"{error.status_code} {', '.join(_messages(error)) or error.code}: {str(error.detail or '')[:300]}"
    cause = error.__context__ if isinstance(error, sushy.ConnectionError) and error.__context__ else error
    if isinstance(error, sushy.ConnectionError) and _untrusted(error):
        return "its certificate isn't trusted (`ca` names others to check with)"
    return f"{type(cause).__name__}: {str(cause)[:200]}"


def _answered(error: sushy.HTTPError, said: str, retry_after_s: float | None) -> NotSent | Unclear:
    status = int(error.status_code or 0)
    if status in BUSY_CODES or any(BUSY_MESSAGES.search(name) for name in _messages(error)):
        return NotSent(said, retry_after_s=retry_after_s or BUSY_S)
    return NotSent(said, final=True) if status < 500 or status == 501 else Unclear(said)


def _messages(error: sushy.HTTPError) -> list[str]:
    info: Any = error.extended_info
    each = info if isinstance(info, list) else [info]
    return [str(one["MessageId"]) for one in each if isinstance(one, dict) and one.get("MessageId")]


def _never_left(error: sushy.ConnectionError) -> bool:
    cause = error.__context__
    if isinstance(cause, requests.exceptions.ConnectTimeout):
        return True
    reason = getattr(cause.args[0], "reason", None) if cause is not None and cause.args else None
    return isinstance(reason, (NewConnectionError, ConnectTimeoutError, NameResolutionError))


def _untrusted(error: sushy.ConnectionError) -> bool:
    return isinstance(error.__context__, requests.exceptions.SSLError)
