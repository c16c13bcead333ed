"""Opens the provider's ticket, one for a key."""

from __future__ import annotations

from temporalio import activity

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.failures import redact
from activities.intended import Lost, Rejected, SendOnce
from activities.registry import NotConfigured, Registry
from medevac.incident import Outcome, StepResult


class TicketActivities:
    def __init__(self, registry: Registry, once: SendOnce, clock: Clock = utcnow) -> None:
        self._registry = registry
        self._once = once
        self._clock = clock

    @activity.defn(name=sig.TICKET.name, no_thread_cancel_exception=True)
    def ticket(self, request: sig.TicketRequest) -> StepResult:
        key = str(request.key)
        try:
            tickets = self._registry.tickets(request.provider)
            ref, new = self._once.send(
                request.key,
                "ticket",
                find=lambda: tickets.find(key),
                send=lambda: tickets.open(
                    key, redact(request.title, 200), redact(request.body, 20_000), request.provider
                ),
            )
        except (NotConfigured, Rejected) as error:
            return StepResult(outcome=Outcome.FAILED, reason=str(error), at=self._clock())
        except Lost as error:
            return StepResult(outcome=Outcome.TIMED_OUT, reason=str(error), at=self._clock())
        return StepResult(
            outcome=Outcome.DONE if new else Outcome.ALREADY,
            reason=f"{ref.system} {ref.id}",
            at=self._clock(),
            proof={"ticket": ref.id, "system": ref.system, "url": ref.url},
        )
