"""Once-only for systems that take no token: look for our key, write down the intent, send, never send again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import activity

from activities.clock import Clock, utcnow
from activities.failures import PROTECTIVE_BUDGET_S, Bounded, redact, unreadable, waits
from activities.ports import NotAllowed, NotSent, Unclear, Unreadable
from activities.storage.ledger import Ledger
from medevac.incident import Line, StepKey

Ref = TypeVar("Ref")

RETRY_S = 2.0
GIVE_UP_SHARE = 0.8
"""Share of the step's whole time after which the search for what may have been sent ends."""


class Rejected(Exception):
    """The system refuses for good."""


class Lost(Exception):
    """It may have been sent, and was not found in time. It isn't sent again."""


class SendOnce:
    """The intent is a ledger line whose key and text say which try it is; writing it first is the right to send."""

    def __init__(self, ledger: Ledger, bounded: Bounded, clock: Clock = utcnow) -> None:
        self._ledger = ledger
        self._bounded = bounded
        self._clock = clock

    def send(
        self,
        key: StepKey,
        what: str,
        *,
        find: Callable[[], Ref | None],
        send: Callable[[], Ref],
        unintended: bool = False,
    ) -> tuple[Ref, bool]:
        """What was sent under `key`, and whether this call sent it.

        `unintended` sends even where the intent can't be written: for messages that are worth a rare double.
        Raises `Rejected`, `Lost`, and a retryable error where a later attempt may know more.
        """
        if (found := _look(what, find)) is not None:
            return found, False
        turn: int | None = None
        # The step's own time, so that a second attempt writes the very same line.
        at = activity.info().scheduled_time
        try:
            if unintended:
                turn = self._bounded.call(PROTECTIVE_BUDGET_S, self._take_turn, key, what, at)
            else:
                turn = self._take_turn(key, what, at)
        except Unreadable as error:
            if not unintended:
                raise unreadable("the ledger", error) from None
        else:
            if turn is None:
                self._search_again(what)
                raise Lost(f"{what} may have been sent, but wasn't found; it is not sent again")
        try:
            return send(), True
        except NotSent as error:
            if turn is not None:
                self._give_turn_back(key, what, turn, at, str(error))
            if error.final:
                raise Rejected(redact(str(error))) from None
            raise waits(f"{what} was not taken: {error}", error.retry_after_s or RETRY_S, "NotSent") from None
        except Exception as error:
            # It may have been sent; only finding it tells.
            if (found := _look(what, find)) is not None:
                return found, True
            kind = "" if isinstance(error, Unclear) else f"{type(error).__name__}: "
            raise waits(
                f"unclear whether {what} was sent ({kind}{error}); looking for it", RETRY_S, "Unclear"
            ) from None

    def _take_turn(self, key: StepKey, what: str, at: datetime) -> int | None:
        """The number of this try, or None when one was begun whose end nobody knows."""
        for turn in range(1, 1_000):
            if self._ledger.add_lines([_line(key, at, "intent", f"{what}: try {turn}")]):
                return turn
            given_back = f"{what}: try {turn} surely not sent"
            lines = [line for line in self._ledger.lines(key.incident) if line.key == key and line.kind == "not_sent"]
            if not any(line.text == given_back for line in lines):
                return None
        return None

    def _give_turn_back(self, key: StepKey, what: str, turn: int, at: datetime, why: str) -> None:
        line = _line(key, at, "not_sent", f"{what}: try {turn} surely not sent", why=redact(why))
        self._ledger.add_lines([line])

    def _search_again(self, what: str) -> None:
        """Raises to be called again while the step's time lasts; returns when it is time to give up."""
        info = activity.info()
        whole = info.schedule_to_close_timeout or timedelta(minutes=10)
        if self._clock() < info.scheduled_time + whole * GIVE_UP_SHARE:
            raise waits(f"{what} may have been sent and isn't found yet; looking again", RETRY_S, "Unclear")


def _line(key: StepKey, at: datetime, kind: str, text: str, **data: str) -> Line:
    return Line(key=key, at=at, kind=kind, text=text, data=dict(data))


def _look(what: str, find: Callable[[], Ref | None]) -> Ref | None:
    try:
        return find()
    except NotAllowed as error:
        raise Rejected(redact(str(error))) from None
    except Exception as error:
        raise unreadable(f"the place to find {what}", error) from None
