"""Tells people in chat, once for a key."""

from __future__ import annotations

from temporalio import activity

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.failures import redact
from activities.folding import Folding
from activities.intended import Lost, Rejected, SendOnce
from activities.ports import Board
from activities.quietly import Quietly
from activities.registry import Registry
from medevac.incident import Outcome, StepResult

MAX_TEXT = 3_900
"""Chat systems cut or refuse near 4,000 characters."""
PAGE = "@here "
HANDOVER = "medevac-handover"
"""Thread of hand-overs."""


class MessageActivities:
    def __init__(
        self,
        registry: Registry,
        once: SendOnce,
        folding: Folding,
        clock: Clock = utcnow,
        quietly: Quietly | None = None,
    ) -> None:
        self._registry = registry
        self._once = once
        self._folding = folding
        self._clock = clock
        self._quietly = quietly

    def _folds(self, request: sig.NotifyRequest) -> bool:
        given = (request.key, request.topic, request.text, request.page)
        return self._folding.folds(*given, self._clock(), activity.info().attempt)

    @activity.defn(name=sig.NOTIFY.name, no_thread_cancel_exception=True)
    def notify(self, request: sig.NotifyRequest) -> StepResult:
        """A ledger that is down doesn't silence it: then a crash at the wrong moment may say it twice."""
        key, chat = str(request.key), self._registry.chat
        if request.shown and isinstance(chat, Board):
            return StepResult(outcome=Outcome.DONE, reason="its own message says so", at=self._clock())
        if request.topic and self._quietly and (why := self._quietly.of(request.key.incident, self._clock())):
            return StepResult(outcome=Outcome.DONE, reason=f"nobody was told: {why}", at=self._clock())
        if request.topic and self._folds(request):
            return StepResult(outcome=Outcome.DONE, reason="told together with others", at=self._clock())
        called = (PAGE if request.page else "") + "".join(f"@{group} " for group in request.mention)
        text = called + redact(request.text, MAX_TEXT)
        try:
            ref, new = self._once.send(
                request.key,
                "message",
                find=lambda: chat.find(key),
                send=lambda: chat.post(key, request.thread, text),
                unintended=True,
            )
        except Rejected as error:
            return StepResult(outcome=Outcome.FAILED, reason=str(error), at=self._clock())
        except Lost as error:
            return StepResult(outcome=Outcome.TIMED_OUT, reason=str(error), at=self._clock())
        return StepResult(outcome=Outcome.DONE if new else Outcome.ALREADY, at=self._clock(), proof={"message": ref})
