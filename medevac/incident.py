"""Words of an incident: its states, its ends, how a step ended, and the keys that make effects once-only."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from medevac.faults.classes import FaultClass
from medevac.fleet.node import Identity
from medevac.model import Model


class State(StrEnum):
    HEARD = "heard"
    PLANNED = "planned"
    MARKED = "marked"
    WATCHING = "watching"
    WAITING_LEASE = "waiting_lease"
    WAITING_APPROVAL = "waiting_approval"
    EVACUATING = "evacuating"
    ACTING = "acting"
    PROVING = "proving"
    VERIFYING = "verifying"
    PROBATION = "probation"
    HELD = "held"
    OBSERVED = "observed"
    HANDED_OVER = "handed_over"
    ENDED = "ended"


class End(StrEnum):
    RETURNED = "returned"
    REPLACED = "replaced"
    DISPOSED = "disposed"
    WITHDRAWN = "withdrawn"


class Outcome(StrEnum):
    """How a step ended. Cancelled is not done."""

    DONE = "done"
    ALREADY = "already"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"
    """Evacuation only: whatever must leave was told to, and the silent node can't be seen to end it. Not drained: the
    machine may be rebooted or taken away, but nothing that ran on it may be taken for dead before it is proved off."""
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """The world is not what the plan was made for: plan again."""
    FAILED = "failed"

    @property
    def ok(self) -> bool:
        """Whether the plan may go on to its next step."""
        return self in (Outcome.DONE, Outcome.ALREADY, Outcome.UNREACHABLE)


class StepKey(Model):
    """Chosen by the workflow; independent of Temporal's attempt. The ledger and every intent are keyed by it."""

    incident: str
    step: str
    n: int = 1

    def __str__(self) -> str:
        return f"{self.incident}/{self.step}/{self.n}"


class StepResult(Model):
    outcome: Outcome
    reason: str = ""
    who: str = ""
    """Who stands in the way, for `blocked`; who vetoed, for `refused`."""
    identity: Identity | None = None
    """Of the machine as read at the end of the step."""
    successor: str | None = None
    """Node name that took this one's place."""
    at: datetime | None = None
    proof: dict[str, JsonValue] = {}
    unwritten: bool = False
    """The ledger did not take this step's line in time; the workflow hands it to the next `record`."""

    def line(self, key: StepKey, step: str, at: datetime) -> Line:
        """The step's line. The interceptor and the workflow make the same one, so that it never stands twice."""
        result = self.model_dump(mode="json", exclude={"at", "unwritten"}, exclude_defaults=True)
        text = f"{step}: {self.outcome}{f': {self.reason}' if self.reason else ''}"
        return Line(key=key, at=self.at or at, kind="step", text=text, data={"step": step, "result": result})


class Line(Model):
    """One line of the ledger. Same key and digest: no second line. Other digest: both kept and flagged."""

    key: StepKey
    at: datetime
    kind: str
    """`step`, `decision`, `event`, `vote`, `hold`, `message`, `state`, `end`, …"""
    text: str
    data: dict[str, JsonValue] = {}


class Hold(Model):
    owner: str
    reason: str
    until: datetime
    via: str = ""
    """By what way the word came; empty in what older releases wrote."""

    @property
    def by(self) -> str:
        return said_by(self.owner, self.via)


def said_by(who: str, via: str) -> str:
    """Who gave a word, and by what way where that is known."""
    return f"{who} ({via})" if via else who


class Stop(Model):
    """A person's word, an abort or a no, that took effect: the plan at hand went no further."""

    by: str
    reason: str = ""
    acted: bool = False
    """A campaign's order had been carried out by then, or may have been: its call was sent."""


class IncidentView(Model):
    """The incident as people see it: one row of the ledger, upserted at phase changes."""

    id: str
    workflow_id: str
    run_id: str = ""
    cluster: str
    node: str
    pool: str | None = None
    machine_id: str | None = None
    fault: str | None = None
    fault_class: FaultClass | None = None
    faults: tuple[str, ...] = ()
    state: State
    end: End | None = None
    opened_at: datetime
    updated_at: datetime
    step: str = ""
    due_at: datetime | None = None
    """When the running step must have ended; past it the sweep pages."""
    waiting_for: str = ""
    owner: str = ""
    hold: Hold | None = None
    stopped: Stop | None = None
    """The last one, whatever the incident has done since."""
    order_sent: bool = False
    """The act that a campaign ordered has been sent to the machine."""
    drained: bool = False
    """A drain has begun in it that may have evicted work, whatever came of that."""
    rung: str | None = None
    plan_hash: str | None = None
    policy_version: int | None = None
    summary: str = ""
    rev: int = 0
    """Grows with each upsert; an older one never overwrites a newer."""

    @property
    def touched(self) -> bool:
        """An order's act was sent, or work may have been evicted for it."""
        return self.order_sent or self.drained
