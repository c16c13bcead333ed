"""Puts an incident into a case with its provider: an open one about the same machine, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio import activity

from activities import signatures as sig
from activities.casefacts import CaseFacts
from activities.clock import Clock, utcnow
from activities.failures import Bounded, redact, unreadable, waits
from activities.ports import Discloses, Tickets, Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.cases import Cases, Provider
from activities.storage.ledger import Ledger
from activities.storage.policies import Policies
from medevac.cases import course
from medevac.cases.case import Case, CaseState
from medevac.cases.letter import SHARED, Letter, Share, compose, short, summary
from medevac.incident import Outcome, StepResult
from medevac.model import digest

GIVE_UP_SHARE = 0.8
"""Of the step's whole time, after which it no longer waits for the ticket: the case goes on by itself."""
Follow = Callable[[Case], None]
"""Starts the case's workflow, or wakes the one that runs; returns once Temporal holds it. Raises any error."""


class TicketActivities:
    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        cases: Cases,
        policies: Policies,
        follow: Follow,
        bounded: Bounded,
        clock: Clock = utcnow,
    ) -> None:
        self._registry = registry
        self._facts = CaseFacts(registry, ledger, bounded)
        self._cases = cases
        self._policies = policies
        self._follow = follow
        self._clock = clock

    @activity.defn(name=sig.TICKET.name, no_thread_cancel_exception=True)
    def ticket(self, request: sig.TicketRequest) -> StepResult:
        """`done` or `already` once there is a ticket, `blocked` while people or the ticket system are waited for,
        `failed` where there will be none. The case is followed by its own workflow, whatever becomes of this step."""
        try:
            tickets = self._registry.tickets(request.provider)
        except NotConfigured as error:
            return StepResult(outcome=Outcome.FAILED, reason=str(error), at=self._clock())
        try:
            case, new = self._joined(request, tickets)
        except Unreadable as error:
            raise unreadable("the ledger", error) from None
        if case.state.open:
            try:
                self._follow(case)
            except Exception as error:
                raise waits(f"{case.id} can't be followed now: {redact(str(error))}", 1.0) from None
        return self._answer(request, case, new)

    def _joined(self, request: sig.TicketRequest, tickets: Tickets) -> tuple[Case, bool]:
        now = self._clock()
        reasons = request.body.splitlines()
        facts, subject = self._facts.of(request.key.incident, request.provider, reasons, request.entities)
        share = shared(tickets)
        per_hour = self._policies.active().policy.tickets.per_hour
        system = name_of(tickets)

        def make(about: Provider, same: Case | None) -> Case:
            line = redact(short(facts, share), 300)
            if same is not None:
                return course.link(same, subject, line, now)
            many = about.lately >= per_hour
            if many and about.gathering is not None:
                return course.link(about.gathering, subject, line, now)
            asks = not tickets.simulated and not about.introduced
            made = Case(
                id=f"case-{digest(str(request.key))[:12]}",
                system=system,
                provider=request.provider,
                state=CaseState.ASKED if asks else CaseState.OPENING,
                why="the first ticket of a provider waits for a person's yes" if asks else "to be opened",
                summary=many,
                letter=_clean(summary([facts], share, request.provider) if many else compose(facts, share)),
                subjects=(subject,),
                opened_at=now,
                updated_at=now,
            )
            if many:
                text = f"more than {per_hour} cases with {request.provider} in an hour; the others are gathered in one"
                return made.saying(f"{made.id}: {text}", page=True)
            return made

        return self._cases.join(request.key.incident, subject.was.machine_id, request.provider, now, make)

    def _answer(self, request: sig.TicketRequest, case: Case, new: bool) -> StepResult:
        now = self._clock()
        if case.ticket is not None:
            ticket = case.ticket
            return StepResult(
                outcome=Outcome.DONE if case.incidents[0] == request.key.incident else Outcome.ALREADY,
                reason=f"{ticket.system} {ticket.id} ({case.id})",
                at=now,
                proof={"ticket": ticket.id, "system": ticket.system, "url": ticket.url, "case": case.id},
            )
        if not case.state.open:
            return StepResult(outcome=Outcome.FAILED, reason=f"{case.id}: {case.why}", at=now, proof={"case": case.id})
        info = activity.info()
        whole = info.schedule_to_close_timeout or timedelta(minutes=10)
        if case.state is CaseState.OPENING and now < info.scheduled_time + whole * GIVE_UP_SHARE:
            raise waits(f"{case.id}: {case.why}", 0.5 if new else 1.0)
        return StepResult(outcome=Outcome.BLOCKED, reason=f"{case.id}: {case.why}", at=now, proof={"case": case.id})


def shared(tickets: Tickets) -> Iterable[Share]:
    return tickets.share if isinstance(tickets, Discloses) else SHARED


def name_of(tickets: Tickets) -> str:
    """Of a ticket system, as it stands in references."""
    return str(getattr(tickets, "name", "") or getattr(tickets, "system", "") or "tickets")


def _clean(letter: Letter) -> Letter:
    return Letter(title=redact(letter.title, 200), body=redact(letter.body, 8_000))
