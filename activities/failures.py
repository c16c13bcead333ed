"""How an activity says that it waits or refuses, and what of an error may leave the process."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import ParamSpec, TypeVar

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.ports import Unreadable

P = ParamSpec("P")
T = TypeVar("T")

MAX_MESSAGE = 500
UNREADABLE_RETRY_S = 2.0
PROTECTIVE_BUDGET_S = 0.5
"""What a protective step waits for storage, at most."""

_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.?[\w-]*"),
    re.compile(r"\bxox[a-z]-[\w-]{8,}|\bxapp-[\w-]{8,}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),
    re.compile(r"\bgh[opsur]_\w{16,}|\bglpat-[\w-]{16,}|\bsk-[\w-]{16,}"),
    re.compile(r"(?<=hooks\.slack\.com/services/)\S+"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )\S+|(?<=basic )[A-Za-z0-9+/=]{8,}"),
    re.compile(
        r"(?i)(?<![a-z])[\w.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|signature|credential)"
        r"[\w.-]*[\"']?\s*[=:]\s*(?:[\"'][^\"']*[\"']?|[^\s,;&\"'}]+)"
    ),
)


def redact(text: str, limit: int = MAX_MESSAGE) -> str:
    """Blanks what looks like a secret and cuts to `limit` characters: errors travel into histories and tickets."""
    for pattern in _SECRETS:
        text = pattern.sub("[redacted]", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Refused(Exception):
    """The world is not what the plan was made for. `who` is set only where a person said no by deed (a veto)."""

    def __init__(self, reason: str, who: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.who = who


def waits(reason: str, retry_s: float, kind: str = "Waiting") -> ApplicationError:
    """To be raised where a later attempt may go on: costs no history and no error metric.

    The delay is spread by a fifth, so that many who wait for one thing don't come back in one moment.
    """
    delay = retry_s * random.uniform(1.0, 1.2)  # noqa: S311 - spreads load, hides nothing
    return ApplicationError(
        redact(reason),
        type=kind,
        category=ApplicationErrorCategory.BENIGN,
        next_retry_delay=timedelta(seconds=delay),
    )


def unreadable(what: str, error: Exception) -> ApplicationError:
    """What can't be read counts as a no: the step waits until its own time is over."""
    detail = str(error) if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
    return waits(f"{what} can't be read, so nothing is done: {detail}", UNREADABLE_RETRY_S, "Unreadable")


class Slow(Unreadable):
    """No answer yet; the call goes on, and most likely ends well."""


class Bounded:
    """Calls that may not delay the caller: past their time it goes on without the answer.

    The call itself runs on to its own time-out, so it must be one that may happen late (an upsert, a read).
    """

    def __init__(self, workers: int = 32) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="bounded")

    def start(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(fn, *args, **kwargs)

    def call(self, timeout_s: float, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer, the call's own error, or `Slow` when it isn't there in time."""
        future = self.start(fn, *args, **kwargs)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            if future.done():  # the call's own error
                raise
            words = f"no answer within {timeout_s:g} s"
            raise (Unreadable if future.cancel() else Slow)(words) from error

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
