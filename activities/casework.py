"""One step of a case: the ticket opened, replies taken in, the machine looked at, the other side told, or chased.

What it knows stands in the ledger and is written before it is done; made again after a death, it goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.case_words import heard_of, left, question, reference
from activities.casefacts import CaseFacts
from activities.clock import Clock, utcnow
from activities.failures import redact, unreadable
from activities.heartbeat import Pulse
from activities.intended import Lost, Rejected, SendOnce
from activities.ports import HasThread, NotAllowed, NotSent, Thread, TicketRef, Unclear, Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.cases import BadPart, Cases, Gone
from activities.storage.fences import Fences
from activities.storage.ledger import Ledger
from activities.storage.policies import Policies
from activities.ticketing import name_of
from medevac.approvals.approval import ApprovalRequest
from medevac.cases import course, machines
from medevac.cases.case import Case, CaseState, Saying, Subject, Ticket
from medevac.cases.parts import known, sent_back
from medevac.incident import IncidentView, StepKey
from medevac.model import digest
from medevac.policy.policy import Policy

SOON_S = 30.0
LATE_S = 900.0
Confirm = Callable[[IncidentView, str, str, str], None]
"""Asks an incident to verify its machine: view, by whom, why, and a token that makes it once. Raises any error."""


class CaseActivities:
    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        cases: Cases,
        policies: Policies,
        fences: Fences,
        once: SendOnce,
        confirm: Confirm,
        clock: Clock = utcnow,
    ) -> None:
        self._registry = registry
        self._facts = CaseFacts(registry, ledger)
        self._cases = cases
        self._policies = policies
        self._fences = fences
        self._once = once
        self._confirm = confirm
        self._clock = clock

    @activity.defn(name=sig.CASE_STEP.name, no_thread_cancel_exception=True)
    def step(self, request: sig.CaseStepRequest) -> sig.CaseStepped:
        """Retried while the ledger can't be read. A ticket system that can't be reached is looked at again later."""
        with Pulse():
            try:
                return self._step(request)
            except Gone:
                text = f"the ledger has no {request.case} any more; look after its ticket by hand"
                saying = Saying(n=request.told + 1, text=text, page=True)
                return sig.CaseStepped(state=CaseState.FAILED, look_again_s=LATE_S, sayings=(saying,))
            except Unreadable as error:
                raise unreadable("the ledger", error) from None

    def _step(self, request: sig.CaseStepRequest) -> sig.CaseStepped:
        case = self._change(request.case, partial(course.heard_out, told=request.told))
        version = self._policies.active()
        policy = version.policy
        if request.decided is not None:
            yes, reason = request.decided, request.reason
            case = self._change(case.id, lambda c: course.decided(c, yes, reason, self._clock()))
        ask: ApprovalRequest | None = None
        if case.state is CaseState.ASKED:
            case, ask = self._asked(case, policy, version.version)
        if case.state is CaseState.OPENING:
            case = self._open(case)
        if case.state in (CaseState.WAITING, CaseState.CLOSING):
            case = self._follow(case, policy)
        look_again_s = self._look_again(case, policy)
        return sig.CaseStepped(state=case.state, look_again_s=look_again_s, sayings=case.sayings, ask=ask)

    def _change(self, case: str, how: Callable[[Case], Case]) -> Case:
        return self._cases.change(case, how, self._clock())

    def _look_again(self, case: Case, policy: Policy) -> float:
        every = policy.tickets.look_every
        if case.trouble_since is not None:
            # Slower the longer it lasts.
            lasted = (self._clock() - case.trouble_since).total_seconds()
            return min(LATE_S, every, max(SOON_S, lasted / 4))
        return every if case.state is CaseState.WAITING and not case.comments else min(every, SOON_S)

    # -- before there is a ticket ------------------------------------------------------------------------------

    def _asked(self, case: Case, policy: Policy, version: int) -> tuple[Case, ApprovalRequest | None]:
        """Of several that wait for the first yes, the oldest asks; the others go once it has a ticket. One that was
        denied asks again itself, whatever others were allowed."""
        if not case.denied:
            if why := self._needs_no_yes(case):
                return self._change(case.id, lambda c: course.decided(c, True, why, self._clock())), None
            if self._cases.first_of(case.provider) != case.id:
                return case, None
        return case, question(case, policy, version, self._clock())

    def _needs_no_yes(self, case: Case) -> str:
        """Why nobody has to be asked; empty where somebody has."""
        if self._cases.introduced(case.provider):
            return f"a person has let {case.provider} be written to"
        try:
            simulated = self._registry.tickets(case.provider).simulated
        except NotConfigured as error:
            return str(error)  # Nothing can be opened, which is said at once.
        return "its ticket system is simulated" if simulated else ""

    def _open(self, case: Case) -> Case:
        now = self._clock
        try:
            tickets = self._registry.tickets(case.provider)
        except NotConfigured as error:
            why = str(error)
            return self._change(case.id, lambda c: course.failed(c, why, now()))
        if why := self._frozen(case):
            return self._change(case.id, lambda c: course.frozen(c, why, now()))
        self._keep(case)
        letter = case.letter

        def send() -> TicketRef:
            # Since the first look, evidence was kept, the ticket looked for and the intent written.
            try:
                why = self._frozen(case)
            except Unreadable as error:
                raise NotSent(str(error)) from None
            if why:
                raise NotSent(why)
            return tickets.open(case.id, letter.title, letter.body, case.provider)

        try:
            ref, _ = self._once.send(
                StepKey(incident=case.id, step="open", n=case.tries),
                "ticket",
                find=lambda: tickets.find(case.id),
                send=send,
            )
        except (Rejected, Lost) as error:
            why = redact(str(error), 300)
            return self._change(case.id, lambda c: course.failed(c, why, now()))
        except ApplicationError as error:
            if error.type == "Unclear":
                raise  # It may have been sent: only looking for it again, in this very step, tells.
            if why := self._frozen(case):
                return self._change(case.id, lambda c: course.frozen(c, why, now()))
            why = error.message
            return self._change(case.id, lambda c: course.troubled(c, why, now()))
        ticket = Ticket(system=case.system, id=ref.id, url=ref.url)
        return self._change(case.id, lambda c: course.opened(c, ticket, now()))

    def _frozen(self, case: Case) -> str:
        """What holds its ticket back, by any of its machines; empty where nothing does. Raises `Unreadable`."""
        for subject in case.subjects:
            view, node = self._facts.view(subject.incident), self._facts.node(subject.cluster, subject.node)
            pool = view.pool if view is not None else None
            for provider in {case.provider, node.machine.provider if node else case.provider}:
                fence = self._fences.blocking(subject.cluster, subject.node, pool, provider)
                if fence is not None:
                    return f"{fence.said}; the ticket is opened once it is thawed"
        return ""

    def _keep(self, case: Case) -> None:
        """The whole bundle, beside what of it leaves the company. It holds nothing back."""
        store = self._registry.evidence
        if store is None:
            return
        try:
            for incident in case.incidents:
                facts, _ = self._facts.of(incident, case.provider)
                store.put(f"{incident}/{case.id}.json", facts.model_dump_json(indent=1).encode())
            store.put(f"{case.incidents[0]}/{case.id}.txt", f"{case.letter.title}\n\n{case.letter.body}".encode())
        except Unreadable as error:
            activity.logger.warning("the bundle of %s is not kept: %s", case.id, redact(str(error)))

    # -- while the other side has it ---------------------------------------------------------------------------

    def _follow(self, case: Case, policy: Policy) -> Case:
        thread, by_hand, why = self._system(case)
        case = self._look(case)
        if thread is not None:
            try:
                case = self._correspond(case, thread, policy)
            except ApplicationError:
                raise
            except Exception as error:
                return self._troubled(case, error)
        else:
            case = self._change(case.id, lambda c: self._alone(c, policy, why))
        if case.state is CaseState.CLOSING and not case.comments:
            case = self._close(case, thread, by_hand)
        return case

    def _system(self, case: Case) -> tuple[HasThread | None, bool, str]:
        """The system that has its ticket, where it can be read and answered; whether people must close it there; and
        why the configuration has it no more."""
        try:
            tickets = self._registry.tickets(case.provider)
        except NotConfigured as error:
            return None, True, str(error)
        other = name_of(tickets)
        if other != case.system:
            return None, True, f"its ticket is in {case.system}, and {case.provider} has {other} now"
        return (tickets, False, "") if isinstance(tickets, HasThread) else (None, not tickets.simulated, "")

    def _alone(self, case: Case, policy: Policy, why: str) -> Case:
        """Where nothing can be read or written there."""
        now = self._clock()
        case = course.troubled(case, why, now, lasts=True) if why else case
        going = course.settle(case, now) if why else self._go_on(case, policy, can_comment=False)
        return going.model_copy(update={"comments": ()})

    def _troubled(self, case: Case, error: Exception) -> Case:
        """What nobody has foreseen lasts, like a refusal: people hear of it at once."""
        known = isinstance(error, (Unreadable, NotSent, Unclear))
        why = redact(str(error) if known else f"{type(error).__name__}: {error}", 300)
        lasts = not known or isinstance(error, NotAllowed)
        return self._change(case.id, lambda c: course.troubled(c, why, self._clock(), lasts=lasts))

    def _go_on(self, case: Case, policy: Policy, *, can_comment: bool) -> Case:
        now = self._clock()
        care = course.Patience(patience_s=policy.tickets.patience, chases=policy.tickets.chases)
        return course.settle(course.chase(course.reached(case), care, can_comment, now), now)

    def _look(self, case: Case) -> Case:
        """At the machines; incidents whose machine is another one now are asked to verify it."""
        seen: dict[str, machines.Seen | None] = {}

        def see(subject: Subject) -> machines.Seen | None:
            if subject.incident not in seen:
                seen[subject.incident] = self._facts.seen(subject)
            return seen[subject.incident]

        after, confirms = machines.look(case, see, self._clock())
        self._remember(case, after, seen)
        case = self._change(case.id, lambda c: machines.look(c, see, self._clock())[0])
        for confirm in confirms:
            view = self._facts.view(confirm.incident)
            if view is None:
                continue
            token = f"{case.id}:{digest(confirm.key)[:16]}"
            try:
                self._confirm(view, case.id, confirm.why, token)
            except Exception as error:
                activity.logger.warning("%s can't be asked to verify: %s", confirm.incident, redact(str(error)))
                continue
            case = self._change(case.id, lambda c, confirm=confirm: machines.asked(c, confirm, self._clock()))  # type: ignore[misc]
        return case

    def _remember(self, before: Case, after: Case, seen: dict[str, machines.Seen | None]) -> None:
        """What has changed, and what has left, so that a part which comes back is known again. Before the case says
        that it is over: made again after a death, it says the same once more."""
        was = {subject.incident: subject.proof for subject in before.subjects}
        now = self._clock()
        for n, subject in enumerate(after.subjects, 1):
            there = seen.get(subject.incident)
            if there is None or not subject.proof or was.get(subject.incident):
                continue
            if text := machines.changed(subject, there):
                self._facts.write(subject.incident, n, f"{text} ({after.id})", now)
                self._facts.write(after.id, n, f"{subject.node}: {text}", now)
            were = subject.parts or known(subject.was.serial or "", ())
            parts = sent_back(were, there.parts, machine_left=left(subject, there))
            why = f"{subject.fault or 'a fault'}, {after.id}"
            self._cases.remember(
                BadPart(
                    serial=name,
                    incident=subject.incident,
                    part=part.kind,
                    machine_id=subject.was.machine_id,
                    why=why,
                    at=now,
                )
                for part in parts
                for name in part.names
            )

    def _correspond(self, case: Case, tickets: HasThread, policy: Policy) -> Case:
        """Raises `Unreadable`, `NotSent`, `Unclear`."""
        ref = reference(case)
        thread = tickets.thread(ref, case.id)
        ours = "\n".join((case.ours, *(said.text for said in thread.said if said.ours)))
        heard = [heard_of(said, ours) for said in thread.said if not said.ours]
        now = self._clock()

        def take_in(case: Case) -> Case:
            case = course.hear(case, heard, now)
            return course.closed_over_there(case, now, closed=not thread.open)

        case = self._change(case.id, take_in)
        # Their claim may be what a look at the machine has waited for.
        case = self._look(case) if any(one.proposal.claims_done for one in case.heard) else case
        case = self._change(case.id, lambda c: self._go_on(c, policy, can_comment=True))
        if not course.due(case, now):
            return case
        for comment in case.comments:
            case = self._comment(case, tickets, ref, thread, comment.n, comment.text)
        return case

    def _comment(self, case: Case, tickets: HasThread, ref: TicketRef, thread: Thread, n: int, text: str) -> Case:
        token = f"{case.id}/c{n}"

        def find() -> bool | None:
            there = thread if not asked else tickets.thread(ref, case.id)
            asked.append(True)
            return True if any(f"[{token}]" in said.text for said in there.said) else None

        def send() -> bool:
            tickets.comment(ref, case.id, token, redact(text, 7_000))
            return True

        asked: list[bool] = []
        try:
            self._once.send(StepKey(incident=case.id, step="comment", n=n), "comment", find=find, send=send)
        except (Rejected, Lost) as error:
            why = redact(str(error), 300)
            return self._change(case.id, lambda c: course.uncommented(c, n, why, self._clock()))
        except ApplicationError as error:
            if error.type == "Unclear":
                raise
            raise NotSent(error.message) from None
        return self._change(case.id, lambda c: course.commented(c, n, text, self._clock()))

    def _close(self, case: Case, thread: HasThread | None, by_hand: bool) -> Case:
        """With the proof. A ticket that can't be closed is left to people; the case is over all the same."""
        why = ""
        if thread is not None and not case.over_there:
            try:
                thread.close(reference(case), case.id)
            except Exception as error:
                if not isinstance(error, NotSent) or not error.final:
                    return self._troubled(case, error)
                by_hand, why = True, redact(str(error), 300)

        def close(case: Case) -> Case:
            if by_hand and case.ticket is not None:
                case = case.saying(
                    f"{case.id}: close {case.ticket.id} by hand, its machines are proved. {why}".rstrip()
                )
            if case.closed_by:
                return course.close(case, case.closed_by, case.why, self._clock())
            return course.close(case, "medevac", course.last_words(case), self._clock())

        return self._change(case.id, close)
