"""A case as the ledger holds it: whom it is about, what was said on both sides, and where it stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from medevac.cases.letter import Letter
from medevac.cases.parts import Part
from medevac.cases.replies import Proposal
from medevac.model import Model

MOST_HEARD = 50
"""Replies that are kept; the whole correspondence is in the ticket system."""
MOST_TOLD = 20
"""Comments of ours that are kept, so that their echo is known."""


class CaseState(StrEnum):
    ASKED = "asked"
    """Waits for a person's yes: the first of its provider on this installation."""
    OPENING = "opening"
    WAITING = "waiting"
    """The provider has it."""
    CLOSING = "closing"
    """Every machine of it is proved; the ticket is told so."""
    CLOSED = "closed"
    FAILED = "failed"
    """There is no ticket and there will be none by itself: a person must open it, or mend what `why` says."""

    @property
    def open(self) -> bool:
        return self not in (CaseState.CLOSED, CaseState.FAILED)


POSSIBLE_IN = {
    "comment": (CaseState.WAITING,),
    "close": (CaseState.ASKED, CaseState.OPENING, CaseState.WAITING, CaseState.FAILED),
    "retry": (CaseState.FAILED,),
}
"""A person's order → the states in which it can be given."""


class Ticket(Model):
    system: str
    id: str
    url: str = ""


class Known(Model):
    """What tells one machine, or one boot of it, from another."""

    machine_id: str = ""
    serial: str | None = None
    boot_id: str | None = None

    def other_machine(self, now: Known) -> str:
        """In words, how this differs from a machine seen later; empty where it is the same one."""
        if self.serial and now.serial and self.serial != now.serial:
            return f"serial {self.serial} is now {now.serial}"
        if self.machine_id and now.machine_id and self.machine_id != now.machine_id:
            return f"machine {self.machine_id} is now {now.machine_id}"
        return ""

    def other_boot(self, now: Known) -> bool:
        return bool(self.boot_id and now.boot_id and self.boot_id != now.boot_id)


class Subject(Model):
    """One incident's machine in the case."""

    incident: str
    cluster: str
    node: str
    fault: str = ""
    was: Known
    """As it was when the case was opened."""
    parts: tuple[Part, ...] = ()
    """As they were then."""
    asked_for: str = ""
    """Machine and boot that its incident was asked to verify; each is asked for once."""
    asked_at: datetime | None = None
    failed_for: str = ""
    """Machine and boot of which the ticket was told that the check fails."""
    proof: str = ""
    """Why nothing is left to do about it; empty while something is."""
    withdrawn: bool = False
    """Its incident ended without a check: a person decides about the ticket."""


class Heard(Model):
    """One reply of the other side."""

    id: str
    at: datetime
    author: str = ""
    text: str = ""
    """Without secrets, cut."""
    proposal: Proposal = Proposal.READ
    quote: str = ""
    """The words that the proposal stands on."""


class Saying(Model):
    """Something that people must hear; said once, whatever dies."""

    n: int
    text: str
    page: bool = False


class Comment(Model):
    """Something that the ticket must be told; sent once."""

    n: int
    text: str


class Case(Model):
    id: str
    system: str
    """Ticket system by its name in the configuration."""
    provider: str
    state: CaseState
    why: str = ""
    summary: bool = False
    """Gathers machines beyond what a provider is told singly within an hour."""
    letter: Letter
    """What is, or will be, in the ticket: the only thing of it that leaves the company."""
    subjects: tuple[Subject, ...]
    opened_at: datetime
    updated_at: datetime
    ticket: Ticket | None = None
    tries: int = 1
    """Of opening it; a person may ask for another."""
    denied: bool = False
    """People have said no to this very letter, or nobody has said yes: it leaves only by a yes of its own."""
    trouble_since: datetime | None = None
    """The ticket system has not been reached since."""
    trouble_told: bool = False
    last_word_at: datetime | None = None
    """Of ours in the ticket."""
    last_reply_at: datetime | None = None
    """Of theirs. An automatic reply is none."""
    due_at: datetime | None = None
    """When the policy's patience ends, or ended, since their word has been waited for; None while it isn't."""
    chased: int = 0
    """Since their last reply."""
    gave_up_chasing: bool = False
    over_there: bool = False
    """The other side has closed the ticket."""
    heard: tuple[Heard, ...] = ()
    sayings: tuple[Saying, ...] = ()
    """Not yet said."""
    comments: tuple[Comment, ...] = ()
    """Not yet sent."""
    told: tuple[str, ...] = ()
    """Those that were sent."""
    said: int = 0
    """Sayings and comments so far; the number of the newest."""
    closed_by: str = ""

    @property
    def ours(self) -> str:
        """All that we have written, so that its echo isn't taken for news."""
        tokens = (f"[{self.id}/c{n}]" for n in range(1, self.said + 1))
        return "\n".join((self.letter.title, self.letter.body, *self.told, *tokens))

    @property
    def settled(self) -> bool:
        return all(subject.proof for subject in self.subjects)

    @property
    def stands(self) -> bool:
        """Whether a fault of it still does."""
        return any(not subject.proof and not subject.withdrawn for subject in self.subjects)

    def overdue(self, now: datetime) -> bool:
        """Whether the other side should have answered by now. Asking again makes it no less so."""
        return self.state is CaseState.WAITING and self.due_at is not None and now >= self.due_at

    @property
    def incidents(self) -> tuple[str, ...]:
        return tuple(subject.incident for subject in self.subjects)

    def saying(self, text: str, *, page: bool = False) -> Case:
        n = self.said + 1
        return self.model_copy(update={"said": n, "sayings": (*self.sayings, Saying(n=n, text=text, page=page))})

    def commenting(self, text: str) -> Case:
        n = self.said + 1
        return self.model_copy(update={"said": n, "comments": (*self.comments, Comment(n=n, text=text))})
