"""What workflows are started with, told, asked, and carry over continue-as-new."""

from __future__ import annotations

from datetime import datetime

from activities.signatures import PRODUCTION, AskRequest, Decided, Target, Timing
from medevac.approvals.approval import ApprovalRequest, ApprovalResult, ApprovalView
from medevac.campaigns.progress import CampaignState
from medevac.events.event import HealthEvent
from medevac.faults.faultset import FaultSet, Remedy
from medevac.fleet.lease import LeaseRef
from medevac.fleet.places import Offer, Source
from medevac.incident import Hold, Line, State, Stop, said_by
from medevac.model import Model
from medevac.policy.plan import Plan, Rung

NODE = "node"
APPROVAL = "approval"
CAMPAIGN = "campaign"


ANSWER_SLACK_S = 60.0
"""Past its expiry, an approval that still has not answered counts as expired."""


def node_workflow_id(cluster: str, node: str) -> str:
    """The id is the lock and the dedupe key: one incident at a time for each node."""
    return f"node/{cluster}/{node}"


def campaign_workflow_id(campaign: str) -> str:
    return f"campaign/{campaign}"


def approval_workflow_id(approval: str) -> str:
    return f"approval/{approval}"


class Carried(Model):
    """All that an incident remembers between two runs of its workflow."""

    incident: str
    opened_at: datetime
    state: State
    faults: FaultSet
    inbox: tuple[HealthEvent, ...] = ()
    seen: tuple[str, ...] = ()
    plan: Plan | None = None
    plan_n: int = 0
    steps: dict[str, int] = {}
    rev: int = 0
    owner: str = ""
    hold: Hold | None = None
    stopped: Stop | None = None
    marked: bool = False
    marked_as: str = ""
    """What the mark says: the worst fault's code, then all of them. Empty where an older release made the mark."""
    order_sent: bool = False
    drained: bool = False
    lease: LeaseRef | None = None
    lines: tuple[Line, ...] = ()
    asked_rungs: tuple[Rung, ...] = ()
    remedy: Remedy | None = None
    decisions: tuple[ApprovalResult, ...] = ()
    requested: bool = False
    """A successor was asked for and has not taken the node's place yet."""
    asked: Source | None = None
    """Where, if the plan had a choice."""
    asked_of: Target | None = None
    """For which machine."""
    came: str = ""
    """The node that it became, which didn't take the place after all."""
    taken_back: str = ""
    """What became of it once nobody waited for it any more, in words."""
    nothing_came: tuple[Offer, ...] = ()
    """Where one was asked for in vain; nothing of it is left there."""
    asks: int = 0
    """Questions that this incident has left unanswered or found void."""
    updates: dict[str, str] = {}
    """Answers to updates by their id: Temporal forgets them at continue-as-new, the caller may not."""
    said: tuple[str, ...] = ()
    """What this incident has already told people, so that a repeat is silent."""
    failed: str = ""
    hand_over: str = ""
    abort_by: str | None = None
    abort_why: str = ""
    confirm_by: str | None = None
    resume_by: str | None = None
    """What a person ordered and nothing has come of yet: a stop must not be lost to a long history."""
    subject: str = ""
    """Node that the incident is about now: the successor, once one was asked for."""


class NodeInput(Model):
    cluster: str
    node: str
    timing: Timing = PRODUCTION
    carried: Carried | None = None
    heard: tuple[HealthEvent, ...] = ()
    """Faults that came in while the incident before was ending; they open this one."""


class ApprovalInput(Model):
    id: str
    timing: Timing = PRODUCTION
    vote_keys: tuple[str, ...] = ()
    """Public keys of the gateways; a vote that none of them signed is declined."""
    carried: ApprovalView | None = None


class CampaignInput(Model):
    id: str
    timing: Timing = PRODUCTION
    question: ApprovalRequest | None = None
    """What people are asked first, always."""
    n: int = 0
    """Steps made by earlier runs."""
    told: int = 0
    """Number of the last order that people were told of."""
    state: CampaignState = CampaignState.ASKED


class Order(Model):
    """A person's word about one incident; declined when another one runs on the node by now."""

    incident: str = ""


class HoldRequest(Order):
    hold: Hold


class By(Order):
    """Who asks and why; `who` is the principal that the gateway signed in."""

    who: str
    reason: str = ""
    via: str = ""
    """By what way it came, as the gateway knows it."""

    @property
    def named(self) -> str:
        return said_by(self.who, self.via)


class AssignRequest(Order):
    owner: str
    by: By


class NodeAnswer(Model):
    """What is true after an update, in one line for the person who asked."""

    text: str


__all__ = [
    "ANSWER_SLACK_S",
    "APPROVAL",
    "CAMPAIGN",
    "NODE",
    "ApprovalInput",
    "AskRequest",
    "AssignRequest",
    "By",
    "CampaignInput",
    "Carried",
    "Decided",
    "HoldRequest",
    "NodeAnswer",
    "NodeInput",
    "Order",
    "approval_workflow_id",
    "campaign_workflow_id",
    "node_workflow_id",
]
