"""Requests, votes and results of approvals."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from medevac.model import Model
from medevac.policy.plan import ApprovalNeed


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class Waiter(Model):
    """Who waits for the answer: one incident (or campaign) with the plan it asked for."""

    incident: str
    workflow_id: str
    cluster: str
    node: str
    plan_hash: str
    text: str
    """What would be done, in words; what the voter is shown."""
    destroys: tuple[str, ...] = ()


class ApprovalRequest(Model):
    id: str
    title: str
    need: ApprovalNeed
    fleet_wide: bool = False
    requested_by: str
    """Principal that may not vote, e.g. who started it; `medevac` when nobody did."""
    requested_at: datetime
    expires_at: datetime
    policy_version: int
    waiter: Waiter


class Vote(Model):
    """One principal's word. `groups` and `voter` come from the gateway's own records, never from the client."""

    approval: str
    voter: str
    groups: tuple[str, ...]
    verdict: Verdict
    reason: str = ""
    shown_hash: str
    """Digest of what the voter was shown (`ApprovalView.shown_hash`); a changed list voids the vote."""
    via: str
    """`cli`, `api`, `console`, `slack`."""
    at: datetime
    signature: str = Field(default="", max_length=200)
    """The gateway's, over all the rest (`medevac.approvals.signing`)."""


class Voided(Model):
    """A vote that was taken and counts no longer, and why."""

    vote: Vote
    at: datetime
    why: str


class ApprovalResult(Model):
    id: str
    state: ApprovalState
    by: tuple[str, ...] = ()
    reason: str = ""
    decided_at: datetime
    covers: dict[str, str] = {}
    """Incident → plan hash that the decision covers. Whom it doesn't cover asks anew."""

    def answers(self, waiter: Waiter, asked: str) -> tuple[bool, str]:
        """Whether it is a yes to what this waiter asked for, which `asked` names, and what was said, in words."""
        if self.covers.get(waiter.incident) != waiter.plan_hash:
            return False, f"the yes was not to this {asked}"
        by = f" by {' and '.join(self.by)}" if self.by else ""
        reason = f"{self.state}{by}{f': {self.reason}' if self.reason else ''}"
        return self.state is ApprovalState.APPROVED, reason


class ApprovalView(Model):
    """An approval as people see it (ledger row and workflow query)."""

    id: str
    workflow_id: str
    title: str
    state: ApprovalState
    fleet_wide: bool
    need: ApprovalNeed
    requested_by: str
    also_requested_by: tuple[str, ...] = ()
    """Others whose requests joined; none of them may vote either."""
    requested_at: datetime
    expires_at: datetime
    waiters: tuple[Waiter, ...]
    votes: tuple[Vote, ...] = ()
    voided: tuple[Voided, ...] = ()
    """Votes that a changed list made void, oldest first. They decide nothing, and stay in the ledger for good."""
    joined: dict[str, datetime] = {}
    """Incident → since when it is asked for. One that isn't in it waits since `requested_at`."""
    shown_hash: str
    result: ApprovalResult | None = None
    rev: int = 0
    """Grows with each change; an older one never overwrites a newer."""
