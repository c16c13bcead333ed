"""How a case goes on: news, replies, chasing, proof. Pure; the clock is passed in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import Field

from medevac.cases.case import MOST_HEARD, MOST_TOLD, Case, CaseState, Heard, Subject, Ticket
from medevac.cases.replies import Proposal
from medevac.model import Model

TROUBLE_IS_TOLD = timedelta(hours=1)
NEWS_PACE = timedelta(minutes=10)
"""Between two comments of a case that gathers many machines."""
ALSO = "Also affected:"
GOOD = "A check of ours has passed, the fault is gone. Thank you; please close this ticket."
MOST_AT_ONCE = 6_000


class Patience(Model):
    """As the policy says it; in seconds."""

    patience_s: float = Field(default=86_400.0, gt=0)
    """Silence of the other side after which it is asked again."""
    chases: int = Field(default=3, ge=0)
    """How often it is asked before a person is called."""


# -- before there is a ticket -----------------------------------------------------------------------------------


def link(case: Case, subject: Subject, line: str, now: datetime) -> Case:
    """One more incident of the same matter. Linked twice it is linked once; the ticket is told `line` of it."""
    if subject.incident in case.incidents:
        return case
    linked = case.model_copy(update={"subjects": (*case.subjects, subject), "updated_at": now})
    last = case.comments[-1] if case.comments else None
    if last and last.text.startswith(ALSO) and len(last.text) < MOST_AT_ONCE:
        # Of a storm the ticket gets one comment, not one a machine.
        longer = last.model_copy(update={"text": f"{last.text}\n- {line}"})
        return linked.model_copy(update={"comments": (*case.comments[:-1], longer)})
    return linked.commenting(f"{ALSO}\n- {line}")


def decided(case: Case, yes: bool, why: str, now: datetime) -> Case:
    if case.state is not CaseState.ASKED:
        return case
    if yes:
        changes = {"state": CaseState.OPENING, "why": why, "denied": False, "updated_at": now}
        return case.model_copy(update=changes)
    refused = {"state": CaseState.FAILED, "why": f"no ticket: {why}", "denied": True, "updated_at": now}
    failed = case.model_copy(update=refused)
    return failed.saying(f"{case.id}: no ticket is opened with {case.provider}: {why}", page=True)


def opened(case: Case, ticket: Ticket, now: datetime) -> Case:
    # A person may have closed it while it was being opened.
    state = CaseState.WAITING if case.state is CaseState.OPENING else CaseState.CLOSING
    changes = {
        "state": state,
        "why": f"with {case.provider}" if state is CaseState.WAITING else case.why,
        "ticket": ticket,
        "last_word_at": now,
        "updated_at": now,
    }
    return (
        reached(case)
        .model_copy(update=changes)
        .saying(
            f"{case.id}: ticket {ticket.id} is open with {case.provider} ({case.letter.title}) {ticket.url}".rstrip()
        )
    )


def failed(case: Case, why: str, now: datetime) -> Case:
    """No ticket, and none will come by trying again."""
    ended = case.model_copy(update={"state": CaseState.FAILED, "why": why, "updated_at": now})
    return ended.saying(f"{case.id}: no ticket with {case.provider}: {why}; a person must open it", page=True)


def frozen(case: Case, why: str, now: datetime) -> Case:
    """Its ticket waits for a thaw: nobody's trouble, and no try of opening it."""
    return case if case.why == why else case.model_copy(update={"why": why, "updated_at": now})


def troubled(case: Case, why: str, now: datetime, *, lasts: bool = False) -> Case:
    """The ticket system can't be reached now. A person hears of it once it has lasted, or at once where it `lasts`
    until somebody mends it."""
    since = case.trouble_since or now
    case = case.model_copy(update={"trouble_since": since, "why": why, "updated_at": now})
    if case.trouble_told or not (lasts or now - since >= TROUBLE_IS_TOLD):
        return case
    told = case.model_copy(update={"trouble_told": True})
    return told.saying(f"{case.id}: {case.system} has not been reached since {since:%H:%M} UTC: {why}", page=True)


def reached(case: Case) -> Case:
    if case.trouble_since is None:
        return case
    return case.model_copy(update={"trouble_since": None, "trouble_told": False, "why": ""})


# -- while the other side has it --------------------------------------------------------------------------------


def hear(case: Case, replies: Iterable[Heard], now: datetime) -> Case:
    """New replies, shown to people with what they seem to propose. They change nothing else."""
    known = {heard.id for heard in case.heard}
    for reply in replies:
        # Of a long correspondence the oldest aren't kept, and aren't new for that.
        forgotten = len(case.heard) >= MOST_HEARD and reply.at <= case.heard[0].at
        if reply.id in known or forgotten:
            continue
        known.add(reply.id)
        automatic = reply.proposal is Proposal.NOTHING
        case = case.model_copy(
            update={
                "heard": (*case.heard, reply)[-MOST_HEARD:],
                "updated_at": now,
                **(
                    {}
                    if automatic
                    else {"last_reply_at": min(reply.at, now), "chased": 0, "due_at": None, "gave_up_chasing": False}
                ),
            }
        )
        if not automatic:
            asks = reply.proposal in (Proposal.ANSWER, Proposal.REFUSED)
            case = case.saying(f"{case.id}: {told(case, reply)}", page=asks)
    return case


def told(case: Case, reply: Heard) -> str:
    """What a person is shown of a reply: what it seems to say, its words, and what can be done."""
    nodes = ", ".join(dict.fromkeys(subject.node for subject in case.subjects))
    what = {
        Proposal.REPLACED: f"seems to say that it was replaced; look at {nodes}, then `medevac confirm`",
        Proposal.REPAIRED: f"seems to say that it works again; look at {nodes}, then `medevac confirm`",
        Proposal.ANSWER: f"asks something; answer with `medevac case comment {case.id} TEXT`",
        Proposal.REFUSED: "seems to refuse; a person must go on with it",
    }.get(reply.proposal, "has written; a person must read it")
    return f"{reply.author or case.provider} {what}: “{reply.quote}”"


def closed_over_there(case: Case, now: datetime, *, closed: bool = True) -> Case:
    """The other side has closed the ticket, which proves nothing, or opened it again."""
    if case.over_there == closed:
        return case
    if not closed:
        return case.model_copy(update={"over_there": False, "updated_at": now})
    case = case.model_copy(update={"over_there": True, "updated_at": now})
    if case.settled:
        return case
    left = ", ".join(subject.node for subject in case.subjects if not subject.proof)
    return case.saying(
        f"{case.id}: {case.provider} has closed the ticket, and no check of {left} has passed", page=True
    )


def chase(case: Case, patience: Patience, can_comment: bool, now: datetime) -> Case:
    """Asks again where nobody has answered for as long as the policy waits; then calls a person, once."""
    words = [at for at in (case.last_word_at, case.last_reply_at) if at is not None]
    if case.state is not CaseState.WAITING or not words or not case.stands or case.over_there:
        return case.model_copy(update={"due_at": None})
    silent_until = max(words) + timedelta(seconds=patience.patience_s)
    if not case.chased:
        case = case.model_copy(update={"due_at": silent_until})
    if now < silent_until or case.comments:
        return case
    if can_comment and case.chased < patience.chases:
        since = max(words)
        again = case.model_copy(update={"chased": case.chased + 1, "updated_at": now})
        return again.commenting(f"Is there any news? We have heard nothing since {since:%Y-%m-%d}; the fault stands.")
    if case.gave_up_chasing:
        return case
    quiet = case.model_copy(update={"gave_up_chasing": True, "updated_at": now})
    asked_times = f", asked {case.chased} times" if case.chased else ""
    return quiet.saying(
        f"{case.id}: {case.provider} has been silent since {max(words):%Y-%m-%d}{asked_times}", page=True
    )


def settle(case: Case, now: datetime) -> Case:
    """Every machine is proved: the ticket is closed with the proof."""
    if case.state is not CaseState.WAITING or not case.settled:
        return case
    closing = case.model_copy(update={"state": CaseState.CLOSING, "why": last_words(case), "updated_at": now})
    return closing if case.over_there else closing.commenting(GOOD)


def due(case: Case, now: datetime) -> bool:
    """Whether comments may go out now."""
    paced = case.summary and case.last_word_at is not None and case.state is CaseState.WAITING
    return not (paced and case.last_word_at and now - case.last_word_at < NEWS_PACE)


def commented(case: Case, n: int, sent: str, now: datetime) -> Case:
    """What was added to it while it was being sent is a comment of its own."""
    grown = next((one.text.removeprefix(sent) for one in case.comments if one.n == n), "")
    left = tuple(one for one in case.comments if one.n != n)
    told = (*case.told, sent[:MOST_AT_ONCE])[-MOST_TOLD:]
    case = case.model_copy(update={"comments": left, "told": told, "last_word_at": now, "updated_at": now})
    return case.commenting(f"{ALSO}{grown}") if grown else case


def uncommented(case: Case, n: int, why: str, now: datetime) -> Case:
    """It can't be told the other side; a person is told instead."""
    lost = next((one.text for one in case.comments if one.n == n), "")
    return commented(case, n, lost, now).saying(f"{case.id}: the ticket was not told “{lost[:200]}”: {why}", page=True)


def heard_out(case: Case, told: int) -> Case:
    """Without the sayings that people have heard."""
    return case.model_copy(update={"sayings": tuple(one for one in case.sayings if one.n > told)})


def last_words(case: Case) -> str:
    return "; ".join(dict.fromkeys(subject.proof for subject in case.subjects if subject.proof))


def close_by_person(case: Case, by: str, why: str, now: datetime) -> Case:
    """Their word is enough for the case and its ticket; it proves nothing of a machine."""
    if case.ticket is None:
        return close(case, by, why, now)
    closing = case.model_copy(update={"state": CaseState.CLOSING, "why": why, "closed_by": by, "updated_at": now})
    return closing if case.over_there else closing.commenting("We close this from our side. Thank you.")


def retried(case: Case, by: str, now: datetime) -> Case:
    """A person has seen to what stood in the way, and that there is no ticket yet. It takes the way of a new case: one
    operator's wish is no yes to a letter that nobody has agreed to."""
    changes = {"state": CaseState.ASKED, "why": f"to be opened again, by {by}", "tries": case.tries + 1, "sayings": ()}
    return reached(case).model_copy(update={**changes, "updated_at": now})


def close(case: Case, by: str, why: str, now: datetime) -> Case:
    """For good. `by`: a principal, or `medevac` with proof."""
    if case.state is CaseState.CLOSED:
        return case
    ended = case.model_copy(
        update={"state": CaseState.CLOSED, "why": why, "closed_by": by, "comments": (), "updated_at": now}
    )
    return ended.saying(f"{case.id}: closed by {by}: {why}")
