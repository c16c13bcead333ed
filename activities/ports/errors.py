"""How a call to an outside system may fail."""

from __future__ import annotations


class NotSent(Exception):
    """The call surely had no effect (refused, throttled, validation). Safe to make again.

    `retry_after_s` is the system's own wish; `final` means that trying again can't help.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None, final: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.final = final


class Unclear(Exception):
    """The call may have had its effect (time-out, connection lost). Never made again; its proof is waited for."""


class Unreadable(Exception):
    """The world can't be read. A destructive step takes this as a no; a protective one may retry."""


class NotAllowed(Unreadable):
    """It can't be read, and asking again can't help: wrong credentials, a missing right, an unknown region."""
