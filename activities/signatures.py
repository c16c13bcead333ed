"""The activities as workflows know them: name, input, output, time-outs. One table, no implementation.

Implementations are methods decorated with `@activity.defn(name=X.name)`; the worker refuses to start when one of
these has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from temporalio.common import RetryPolicy

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

In = TypeVar("In", bound=Model)
Out = TypeVar("Out")


class Queue(StrEnum):
    """Task queues; one for each rate-limited outside system."""

    MAIN = "medevac"
    MACHINES = "medevac-machines"
    CHAT = "medevac-chat"


class Timing(Model):
    """Time-outs of a workflow's activities in seconds; travels in its input so that a replay sees the same."""

    short_s: float = 3.0
    """Start-to-close of quick activities that don't heartbeat (mark, lift, lease, record)."""
    heartbeat_s: float = 5.0
    retry_s: float = 0.5
    retry_max_s: float = 10.0
    give_up_s: float = 600.0
    """Schedule-to-close of quick activities; its end is an outcome of the step."""
    lease_wait_s: float = 86_400.0
    echo_grace_s: float = 300.0
    """How long after a remedy's proof an old statement may still arrive as an echo."""
    dwell_s: float = 60.0
    """How long a clear must stand before it counts."""
    fold_s: float = 60.0
    """Repeats of an open fault are folded at the edge to one signal per node in this time."""


PRODUCTION = Timing()
DEMO = Timing(give_up_s=60, lease_wait_s=300, echo_grace_s=20, dwell_s=3, fold_s=5)
TEST = Timing(
    short_s=3.0,
    heartbeat_s=4.0,
    retry_s=0.1,
    retry_max_s=1.0,
    give_up_s=30,
    lease_wait_s=120,
    echo_grace_s=20,
    dwell_s=0.5,
    fold_s=0.5,
)
"""The documented profile of tests that kill processes: short time-outs, nothing else."""
TIMINGS = {"production": PRODUCTION, "demo": DEMO, "test": TEST}


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
    """Groups of people who are called by name, where the chat knows them."""
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


STEADY_S = 60.0
CALL_S = 30.0


class Shape(StrEnum):
    LOCAL = "local"
    QUICK = "quick"
    """Short start-to-close, no heartbeat."""
    CALL = "call"
    """One call to a slow outside system: heartbeats from a background task, and half a minute at most."""
    STEADY = "steady"
    """Up to a minute's reading and telling, with heartbeats; made again as a whole when its worker dies."""
    LONG = "long"
    """Heartbeats from a background task; its own deadline is in its input."""


@dataclass(frozen=True, slots=True)
class Activity(Generic[In, Out]):
    name: str
    takes: type[In]
    gives: type[Out]
    shape: Shape = Shape.QUICK
    queue: Queue = Queue.MAIN
    attempts: int = 0
    """0 = until `give_up_s`."""

    def options(self, timing: Timing, deadline_s: float = 0.0) -> dict[str, Any]:
        """Keyword arguments for `workflow.start_activity` (or the local one)."""
        retry = RetryPolicy(
            initial_interval=timedelta(seconds=timing.retry_s),
            maximum_interval=timedelta(seconds=timing.retry_max_s),
            maximum_attempts=self.attempts,
        )
        if self.shape is Shape.LOCAL:
            return {"retry_policy": retry, "start_to_close_timeout": timedelta(seconds=timing.short_s * 2)}
        common: dict[str, Any] = {"retry_policy": retry, "task_queue": self.queue.value}
        if self.shape is Shape.LONG:
            return {
                **common,
                "heartbeat_timeout": timedelta(seconds=timing.heartbeat_s),
                "schedule_to_close_timeout": timedelta(seconds=deadline_s + 4 * timing.heartbeat_s + 30),
            }
        if self.shape is Shape.CALL:
            return {
                **common,
                "start_to_close_timeout": timedelta(seconds=CALL_S),
                "heartbeat_timeout": timedelta(seconds=timing.heartbeat_s),
                "schedule_to_close_timeout": timedelta(seconds=deadline_s or timing.give_up_s),
            }
        if self.shape is Shape.STEADY:
            return {
                **common,
                "start_to_close_timeout": timedelta(seconds=STEADY_S),
                "heartbeat_timeout": timedelta(seconds=timing.heartbeat_s),
            }
        return {
            **common,
            "start_to_close_timeout": timedelta(seconds=timing.short_s),
            "schedule_to_close_timeout": timedelta(seconds=deadline_s or timing.give_up_s),
        }


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
