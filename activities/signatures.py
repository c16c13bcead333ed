"""The activities as workflows know them: name, input, output, and how each is called. One table, no implementation.

Implementations are methods decorated with `@activity.defn(name=X.name)`; the worker refuses to start when one of
these has none.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from activities.calling import DEMO as DEMO
from activities.calling import PRODUCTION as PRODUCTION
from activities.calling import TEST as TEST
from activities.calling import TIMINGS as TIMINGS
from activities.calling import Activity as Activity
from activities.calling import Queue as Queue
from activities.calling import Shape as Shape
from activities.calling import Timing as Timing
from activities.ports import CheckResult as CheckResult
from activities.ports import Mark as Mark
from activities.ports import Verb as Verb
from medevac.approvals.approval import ApprovalRequest, ApprovalResult, ApprovalView
from medevac.campaigns.progress import CampaignState
from medevac.cases.case import CaseState, Saying
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import FaultSet
from medevac.fleet.lease import Ask, Granted, LeaseRef, LeaseRequest
from medevac.fleet.node import Identity
from medevac.fleet.order import Order
from medevac.fleet.places import Offer, Source
from medevac.incident import IncidentView, Line, StepKey, StepResult
from medevac.model import Model
from medevac.policy.plan import Drain, Plan, Rung

# -- inputs and outputs ----------------------------------------------------------------------------------------


class Keyed(Model):
    """Input of a step that the ledger knows by its key."""

    key: StepKey


class PlanRequest(Model):
    incident: str
    n: int
    cluster: str
    node: str
    faults: FaultSet
    opened_at: datetime
    seen: bool = False
    """An earlier plan of this incident has read the node: where it is no more, it is gone."""
    asked_rungs: tuple[Rung, ...] = ()
    """Rungs that this run has begun, in order; the ledger may not have them yet."""
    failed: str = ""
    """Why the last rung did not do, in words, for the reasons of the next plan."""
    hand_over: str = ""
    """Set when the workflow already knows that a person must take it; the plan then says so."""
    asked: Source | None = None
    """Where a successor was asked for that may still come."""
    nothing_came: tuple[Offer, ...] = ()
    """Where one was asked for in this incident, in vain: nothing of it is left there."""
    under_way: Rung | None = None
    """Of `asked_rungs`, whose last attempt is still going on: it is judged by its end, not as tried in vain."""


class MarkRequest(Keyed):
    cluster: str
    node: str
    pool: str | None
    identity: Identity
    mark: Mark
    fault_class: FaultClass
    domains: dict[str, str]
    plan_hash: str
    view: IncidentView
    approval: str | None = None
    """A fleet-wide approval that allows a mark beyond the mark budget."""
    campaign: str | None = None
    """Whose list it covers, where a campaign wants this."""
    again: bool = False
    """The node is marked already, and the mark is to say something else. One that is gone is not made anew."""


class LiftRequest(Keyed):
    cluster: str
    node: str
    incident: str


class AcquireRequest(Keyed):
    lease: LeaseRequest


class AcquireResult(Model):
    granted: Granted | None = None
    ask: Ask | None = None


class ReleaseRequest(Keyed):
    lease_id: str


class Target(Model):
    """The machine that a step is about, as the plan knew it."""

    incident: str
    cluster: str
    node: str
    provider: str
    identity: Identity
    scopes: dict[str, str] = {}
    """Failure domains of the node, for fences."""


class Precondition(Target):
    """Re-read inside the activity right before each irreversible call; a difference refuses the step."""

    lease: LeaseRef
    plan_hash: str
    mark: bool = True
    """The plan's `mark`: whether our mark must be there."""
    foreign_cordon: str | None = None
    hands_off: str | None = None
    """As the plan saw them; another one than these refuses the step."""
    approvals: tuple[str, ...] = ()
    """What people have said yes to for this plan; counted again from the ledger, signatures and all."""
    order: Order | None = None
    """The campaign's, whose approval is counted again as well."""
    storage_probe: str | None = None
    """Must pass as the step begins."""


class EvacuateRequest(Keyed):
    pre: Precondition
    drain: Drain
    drain_s: float
    pod_grace_s: float
    budget_bypass: bool = False
    budget_waits: bool = True
    """False: what only a disruption budget holds isn't waited for until the deadline."""


class ActRequest(Keyed):
    """One physical call to a machine: look, intent, call. Its proof is another activity's."""

    pre: Precondition
    verb: Verb
    fault: str
    fault_class: FaultClass
    rung: Rung
    at: Offer | None = None
    """Where a successor is asked for; None: at the machine's own provider."""


class ProveRequest(Keyed):
    """Waits for the proof of the call made under `key`; never calls."""

    pre: Precondition
    verbs: tuple[Verb, ...]
    acted: StepKey
    deadline_s: float
    keep_late: bool = False
    """What was asked for isn't released when the time is over: people are asked then."""


class TakeBackRequest(Keyed):
    """Ends what was asked for and didn't become a node, where nobody waits for it any more."""

    of: Target
    at: Offer | None = None
    """Where it was asked for; None: at the machine's own provider."""


class VerifyRequest(Keyed):
    cluster: str
    node: str
    covers: tuple[Covers, ...]
    not_before: datetime
    """Proof must be newer than the remedy."""
    boot_id: str | None = None
    deadline_s: float


class VerifyResult(Model):
    step: StepResult
    check: CheckResult | None = None


class TicketRequest(Keyed):
    provider: str
    title: str
    body: str
    entities: tuple[str, ...] = ()
    """Of the faults that it is about; they name the parts at fault."""


class NotifyRequest(Keyed):
    thread: str
    text: str
    page: bool = False
    """True where a person must look now: handed over, expired approval, stuck."""
    mention: tuple[str, ...] = ()
    """Groups, or people by principal, who are called by name, where the chat knows them."""
    shown: bool = False
    """Said only where the chat keeps no message of its own that shows the same."""
    topic: str = ""
    """Many messages of one topic within a minute are told together; empty = always posted by itself."""


class AskRequest(Keyed):
    """Opens the approval or joins the one that is open; idempotent by (approval, incident, plan hash)."""

    request: ApprovalRequest
    timing: Timing = PRODUCTION


class RecordRequest(Keyed):
    """Upserts of an incident, its lines, and an approval; the only writer besides the steps' interceptor."""

    view: IncidentView | None = None
    lines: tuple[Line, ...] = ()
    approval: ApprovalView | None = None
    seen: tuple[ApprovalView, ...] = ()
    """Earlier lists of that approval, each as somebody saw it who voted on it."""


class Recorded(Model):
    lines: int


class CampaignStepRequest(Model):
    campaign: str
    n: int
    decided: bool | None = None
    """People's answer, once there is one."""
    reason: str = ""
    told: int = 0
    """Number of the last order that people were told of."""


class CampaignWord(Model):
    """An order that changes nothing which is told anyway."""

    n: int
    text: str


class CampaignStepped(Model):
    state: CampaignState
    why: str
    look_again_s: float
    words: tuple[CampaignWord, ...] = ()
    """To be told now, each once."""


CASE = "case"
"""Workflow type and id prefix of cases."""


def case_workflow_id(system: str, case: str) -> str:
    return f"{CASE}/{system}/{case}"


class CaseInput(Model):
    id: str
    system: str
    timing: Timing = PRODUCTION
    n: int = 0
    """Steps made by earlier runs."""
    told: int = 0
    """Number of the newest saying that people have heard."""
    asked: str = ""
    """The approval that was asked for."""


class CaseStepRequest(Model):
    case: str
    n: int
    told: int = 0
    decided: bool | None = None
    """People's answer, once there is one."""
    reason: str = ""


class CaseStepped(Model):
    state: CaseState
    look_again_s: float
    sayings: tuple[Saying, ...] = ()
    ask: ApprovalRequest | None = None
    """To be asked once; the answer comes with a later step."""


# -- the table -------------------------------------------------------------------------------------------------


PLAN = Activity("plan", PlanRequest, Plan, Shape.LOCAL)
MARK = Activity("mark", MarkRequest, StepResult)
LIFT = Activity("lift", LiftRequest, StepResult)
ACQUIRE = Activity("acquire", AcquireRequest, AcquireResult)
RELEASE = Activity("release", ReleaseRequest, StepResult)
EVACUATE = Activity("evacuate", EvacuateRequest, StepResult, Shape.LONG)
ACT = Activity("act", ActRequest, StepResult, Shape.CALL, Queue.MACHINES)
PROVE = Activity("prove", ProveRequest, StepResult, Shape.LONG)
TAKE_BACK = Activity("take_back", TakeBackRequest, StepResult, Shape.CALL, Queue.MACHINES)
VERIFY = Activity("verify", VerifyRequest, VerifyResult, Shape.LONG)
TICKET = Activity("ticket", TicketRequest, StepResult)
NOTIFY = Activity("notify", NotifyRequest, StepResult, queue=Queue.CHAT)
ASK = Activity("ask", AskRequest, StepResult)
RECORD = Activity("record", RecordRequest, Recorded)
CAMPAIGN_STEP = Activity("campaign_step", CampaignStepRequest, CampaignStepped, Shape.STEADY)
CASE_STEP = Activity("case_step", CaseStepRequest, CaseStepped, Shape.STEADY)

ALL: tuple[Activity[Any, Any], ...] = (
    PLAN, MARK, LIFT, ACQUIRE, RELEASE, EVACUATE, ACT, PROVE, TAKE_BACK, VERIFY, TICKET, NOTIFY, ASK, RECORD,
    CAMPAIGN_STEP, CASE_STEP,
)  # fmt: skip


# -- messages between workflows --------------------------------------------------------------------------------


class Decided(Model):
    """Signal `decided` to everyone who waited for an approval."""

    result: ApprovalResult
