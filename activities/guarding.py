"""Asks the guard for permission to disrupt, and gives it back."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from temporalio import activity

from activities import signatures as sig
from activities.census import CensusTaker
from activities.clock import Clock, utcnow
from activities.failures import PROTECTIVE_BUDGET_S, Bounded, redact, unreadable, waits
from activities.guard.store import GuardStore
from activities.holding import Holding
from activities.storage.ledger import Ledger
from medevac.fleet.census import Census
from medevac.fleet.lease import Ask, Granted, LeaseRequest
from medevac.incident import Outcome, StepResult

REMEMBERED = 10_000
HELD_RETRY_S = 15.0
SAID_AGAIN_S = 15.0


class LeaseActivities:
    def __init__(
        self,
        guard: GuardStore,
        census: CensusTaker,
        ledger: Ledger,
        bounded: Bounded,
        clock: Clock = utcnow,
        holding: Holding | None = None,
    ) -> None:
        self._guard = guard
        self._census = census
        self._ledger = ledger
        self._bounded = bounded
        self._clock = clock
        self._holding = holding
        self._lock = threading.Lock()
        self._said: dict[str, tuple[str, datetime]] = {}

    @activity.defn(name=sig.ACQUIRE.name, no_thread_cancel_exception=True)
    def acquire(self, request: sig.AcquireRequest) -> sig.AcquireResult:
        """Granted, or a question to people. Waiting is a retryable error that names the limit and who holds it."""
        self._not_held(request.lease)
        census = self._count(request.lease)
        try:
            answer = self._guard.acquire(request.lease, self._clock(), census)
        except Exception as error:
            raise unreadable("the guard", error) from None
        if isinstance(answer, Granted):
            self._say(request.lease, "")
            return sig.AcquireResult(granted=answer)
        if isinstance(answer, Ask):
            return sig.AcquireResult(ask=answer)
        held = f"; held by {', '.join(answer.holders[:5])}" if answer.holders else ""
        self._say(request.lease, f"{answer.reason}{held}")
        raise waits(f"{answer.reason}{held}", answer.retry_s)

    @activity.defn(name=sig.RELEASE.name, no_thread_cancel_exception=True)
    def release(self, request: sig.ReleaseRequest) -> StepResult:
        """Always possible; who waits for the place asks again within seconds by itself."""
        try:
            woken = self._guard.release(request.lease_id, self._clock())
        except Exception as error:
            raise unreadable("the guard", error) from None
        return StepResult(outcome=Outcome.DONE, at=self._clock(), proof={"next": list(woken[:10])})

    def _not_held(self, lease: LeaseRequest) -> None:
        try:
            why = self._holding.why_not(lease, self._clock()) if self._holding else ""
        except Exception as error:
            raise unreadable("silences and windows", error) from None
        if why:
            self._say(lease, why)
            raise waits(why, HELD_RETRY_S)

    def _count(self, lease: LeaseRequest) -> Census | None:
        """None = can't be read; the guard then makes destruction wait."""
        try:
            return self._census.take(lease.cluster)
        except Exception as error:
            activity.logger.warning("cluster %s is not counted: %s", lease.cluster, redact(str(error)))
            return None

    def _say(self, lease: LeaseRequest, waiting_for: str) -> None:
        """What the incident waits for, written where people look when it changes.

        Looked at again while it lasts: the workflow's own line, written just then, knows only that it asked.
        """
        now = self._clock()
        with self._lock:
            said, at = self._said.get(lease.incident, ("", now))
            if said == waiting_for and (not said or now - at < timedelta(seconds=SAID_AGAIN_S)):
                return
            if len(self._said) > REMEMBERED:
                self._said.clear()
            self._said[lease.incident] = (waiting_for, now)
        try:
            self._bounded.call(PROTECTIVE_BUDGET_S, self._write, lease.incident, waiting_for)
        except Exception as error:
            activity.logger.warning("what %s waits for is not written: %s", lease.incident, redact(str(error)))

    def _write(self, incident: str, waiting_for: str) -> None:
        view = self._ledger.incident(incident)
        if view is not None and view.waiting_for != waiting_for:
            self._ledger.upsert_incident(view.model_copy(update={"waiting_for": waiting_for}))
