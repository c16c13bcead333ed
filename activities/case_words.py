"""Between a case and its readers: a reply as it is kept, a ticket as its system knows it, the first question."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities import signatures as sig
from activities.failures import redact
from activities.ports import Said, TicketRef, Unreadable
from medevac.approvals.approval import ApprovalRequest, Waiter
from medevac.cases import machines, replies
from medevac.cases.case import Case, Heard, Subject
from medevac.incident import End
from medevac.model import digest
from medevac.policy.policy import Policy

MOST_TEXT = 4_000
"""Of a reply, as it is kept."""


MOST_ASKED = 2_000
"""Of a letter, in the question about it."""


def left(subject: Subject, seen: machines.Seen) -> bool:
    """Whether the machine that it was about is no longer there. Of one that was returned, and whose node is gone since,
    nobody knows."""
    if seen.now is None:
        return seen.end is not End.RETURNED
    return bool(subject.was.other_machine(seen.now))


def heard_of(said: Said, ours: str) -> Heard:
    reading = replies.read(said.text, ours, said.headers, said.subject)
    return Heard(
        id=said.id,
        at=said.at,
        author=redact(said.author, 100),
        text=redact(said.text, MOST_TEXT),
        proposal=reading.proposal,
        quote=redact(reading.quote, 400),
    )


def reference(case: Case) -> TicketRef:
    if case.ticket is None:
        raise Unreadable(f"{case.id} has no ticket")
    return TicketRef(system=case.ticket.system, id=case.ticket.id, url=case.ticket.url)


def question(case: Case, policy: Policy, version: int, now: datetime) -> ApprovalRequest:
    """Shows what would leave the company, word by word."""
    subject = case.subjects[0]
    again = ("people have not let this letter go before",) if case.denied else ()
    why = (f"the first ticket with {case.provider} on this installation", *again)
    text = f"{case.letter.title}\n{case.letter.body}"
    need = policy.need(policy.who_may.reboot, why)
    return ApprovalRequest(
        id=f"first-{case.id}" if case.tries == 1 else f"first-{case.id}-{case.tries}",
        title=f"write to {case.provider} for the first time: {case.letter.title}",
        need=need,
        requested_by="medevac",
        requested_at=now,
        expires_at=now + timedelta(seconds=need.expires_s),
        policy_version=version,
        waiter=Waiter(
            incident=case.id,
            workflow_id=sig.case_workflow_id(case.system, case.id),
            cluster=subject.cluster,
            node=subject.node,
            plan_hash=digest(case.letter),
            text=text if len(text) <= MOST_ASKED else f"{text[:MOST_ASKED]}…\nAll of it: `medevac case show {case.id}`",
        ),
    )
