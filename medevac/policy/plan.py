"""`Plan`: what will be done next to one node and why; and what a plan is made from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Identity
from medevac.fleet.order import Order
from medevac.fleet.places import Source
from medevac.model import Model, digest


class Mode(StrEnum):
    """How far a pool or rule lets medevac go. Ordered by `reach`."""

    OBSERVE = "observe"
    APPROVE = "approve"
    AUTO = "auto"

    @property
    def reach(self) -> int:
        return list(Mode).index(self)


class Rung(StrEnum):
    """One remedy of a ladder."""

    WAIT = "wait"
    RESTART_AGENT = "restart_agent"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    REINSTALL = "reinstall"
    REPLACE = "replace"
    TERMINATE = "terminate"
    RMA = "rma"
    ESCALATE = "escalate"

    @property
    def destructive(self) -> bool:
        return self not in (Rung.WAIT, Rung.ESCALATE)


class Action(StrEnum):
    """What the workflow does with the plan."""

    RECORD = "record"
    """A ledger line, nothing more; the incident ends."""
    OBSERVE = "observe"
    """Touch nothing, say once what would be done, wait."""
    WATCH = "watch"
    """Mark, wait `watch_s`, plan again: the fault may clear by itself."""
    ACT = "act"
    """Mark, lease, ask, evacuate, apply `rung`, prove, verify, return."""
    HAND_OVER = "hand_over"
    """A person has it: no rung left, refused, vetoed, stuck."""
    WITHDRAW = "withdraw"
    """Nothing is wrong any more: lift our marks and end."""


class Drain(StrEnum):
    """How long work may take to leave, by class; the times are the policy's."""

    NOW = "now"
    SOON = "soon"
    CHECKPOINT = "checkpoint"
    JOB_END = "job_end"


class AtBudget(StrEnum):
    """What becomes of a drain whose pods a disruption budget still refuses to let go. The most careful first."""

    HAND_OVER = "hand_over"
    """A person has it as soon as nothing else is left to wait for."""
    WAIT = "wait"
    """Tried until the drain's deadline, then a person has it."""
    ASK = "ask"
    """Tried until the deadline, then people are asked whether those pods may be deleted."""
    DELETE = "delete"
    """Tried until the deadline, then they are deleted with their grace."""


class AtJobEnd(StrEnum):
    """What becomes of jobs that still run when the time of a `job_end` drain is over. The most careful first."""

    HAND_OVER = "hand_over"
    """They run on, and a person has it."""
    ASK = "ask"
    """People are asked whether they may be evicted before their end."""
    EVICT = "evict"
    """They are evicted with their grace."""


_NOT_HASHED = {
    "n", "made_at", "reasons", "passed_over", "destroys", "would", "gang", "job_running",
    "drain_s", "wait_s", "watch_s", "step_s",
}  # fmt: skip
"""When it was made, the words, and what shrinks or grows by mere waiting (bounded by policy and world alike)."""


class PassedOver(Model):
    rung: Rung
    why: str


class Reminder(Model):
    """What becomes of a question that is still open after a while."""

    after_s: float
    then: tuple[str, ...] = ()
    """Groups that are told from then on, and may vote as well."""
    page: bool = False
    """Somebody is woken."""


class ApprovalNeed(Model):
    """Who must say yes, copied from the policy so that a later change alters nothing retroactively."""

    groups: tuple[str, ...]
    """A voter must be in one of these."""
    threshold: int = 1
    """Distinct people, not counting the requester."""
    one_of: str | None = None
    """At least one of the voters must be in this group."""
    expires_s: float
    """Expiry is a no."""
    why: tuple[str, ...]
    reminder: Reminder | None = None
    """None: once, after half the time, to the same groups."""

    @property
    def unsaid(self) -> set[str]:
        """What is left out of digests, so that they are those of questions asked before the field was there."""
        return {"reminder"} if self.reminder is None else set()

    def lacks(self, yes: Sequence[Collection[str]], may: Iterable[str]) -> str:
        """What is missing where people of these groups have said yes, each once, and members of `may` still can; empty
        where nothing is."""
        missing = []
        if (more := self.threshold - len(yes)) > 0:
            missing.append(f"{more} more of {', '.join(may)}")
        if self.one_of is not None and not any(self.one_of in groups for groups in yes):
            missing.append(f"one of {self.one_of}")
        return " and ".join(missing)


class Plan(Model):
    """A decision, recorded once. `hash` binds approvals and leases to what was decided, not to when."""

    incident: str
    n: int
    """1 for the incident's first plan."""
    cluster: str
    node: str
    policy_version: int
    policy_hash: str
    made_at: datetime
    mode: Mode
    action: Action
    cause: str | None = None
    """Code of the worst open fault."""
    fault_class: FaultClass | None = None
    faults: tuple[str, ...] = ()
    identity: Identity = Identity()
    domains: dict[str, str] = {}
    gang: str | None = None
    """Of the work on the node; nodes of one gang are one disruption, their job is down anyway."""
    job_running: bool = True
    mark: bool = False
    mark_after_approval: bool = False
    rung: Rung | None = None
    attempt: int = 0
    """Of this rung on this machine, counting this one, over the policy's window."""
    of: int = 0
    drain: Drain | None = None
    drain_s: float = 0.0
    pod_grace_s: float = 30.0
    budget_bypass: bool = False
    """Delete pods whose disruption budget still refuses at the deadline. Never a default."""
    budget_need: ApprovalNeed | None = None
    """Who may say yes to that, once, when the deadline has come; None: it isn't asked."""
    budget_waits: bool = True
    """False: what only a budget holds isn't waited for until the deadline."""
    job_end_evicts: bool = False
    """Evict jobs that still run when the time of `job_end` is over."""
    job_end_need: ApprovalNeed | None = None
    """Who may say yes to that, once, when it is over; None: it isn't asked."""
    request_first: bool = False
    """`replace` only: ask for the successor before the drain ends."""
    successor_need: ApprovalNeed | None = None
    """`replace` only: who may say yes to ending the machine though no successor came in its time. None, without
    `ask_at`: the machine of an older plan, which is ended once one was asked for."""
    ask_at: Source | None = None
    """`replace` only, where there is a choice; None: at the machine's own provider."""
    ticket: bool = False
    covers: tuple[Covers, ...] = ()
    """What the verifying check must cover."""
    approval: ApprovalNeed | None = None
    wait_s: float = 0.0
    """Before the rung."""
    watch_s: float = 0.0
    step_s: float = 600.0
    """Deadline for the remedy's proof."""
    verify_s: float = 120.0
    probation_s: float = 0.0
    quiet_s: float = 86_400.0
    """`observe` only: withdrawn after this long without a repeat. With `watch_s` it is planned anew meanwhile."""
    destroys: tuple[str, ...] = ()
    """What the rung destroys, with amounts as they are now, for people."""
    at_stake: tuple[str, ...] = ()
    """The same without amounts, which grow while one waits."""
    foreign_cordon: str | None = None
    hands_off: str | None = None
    """Who else keeps the node, as the plan saw it: what was known and asked about doesn't refuse the step."""
    storage_probe: str | None = None
    """What must still pass when the disruption begins, where the node serves storage."""
    order: Order | None = None
    """Whose wish this is, where it is a campaign's."""
    gone: bool = False
    """`withdraw` only: the node is no more, so the incident ends as disposed."""
    would: str = ""
    """`observe` only: what would have been done, in words."""
    reasons: tuple[str, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def by(self) -> str:
        """Whose machine is to come, to be said after the rung; empty where there was no choice."""
        return f" by {self.ask_at.offer}" if self.ask_at else ""

    @property
    def pool(self) -> str | None:
        """As the policy calls it; its domain is written with the cluster."""
        return self.domains.get("pool", "").partition("/")[2] or None

    @cached_property
    def hash(self) -> str:
        """Equal for plans that would do the same to the same machine for the same faults, whenever they are made."""
        # What was added later is left out where it says nothing, so that older plans keep their hash.
        later = ("order", "ask_at", "budget_need", "job_end_need", "successor_need", "storage_probe")
        unsaid = {name for name in later if getattr(self, name) is None}
        if not self.job_end_evicts:
            unsaid.add("job_end_evicts")
        if self.budget_waits:
            unsaid.add("budget_waits")
        left_out: dict[str, Any] = dict.fromkeys(_NOT_HASHED | unsaid, True)
        if self.approval is not None:
            left_out["approval"] = self.approval.unsaid
        if self.order is not None:
            left_out["order"] = self.order.unsaid
        return digest(self.model_dump(mode="json", exclude=left_out))[:16]

    def stays_within(self, approved: Plan) -> bool:
        """True when this plan does no more than `approved`, to the same machine: its permission still holds."""
        return self.hash == approved.hash or (
            self.action == approved.action
            and self.rung == approved.rung
            and self.identity == approved.identity
            and set(self.at_stake) <= set(approved.at_stake)
            and self.budget_bypass <= approved.budget_bypass
            and self.job_end_evicts <= approved.job_end_evicts
            and self.foreign_cordon == approved.foreign_cordon
            and self.hands_off == approved.hands_off
            and self.order == approved.order
            and self.ask_at == approved.ask_at
        )


UNCLEAR = "unclear"
"""Outcome of an attempt without proof whose caller died around the call: nobody knows whether it was made."""


class Attempt(Model):
    """A rung that was begun on a machine, from the ledger. `incident` tells this incident's from earlier ones."""

    incident: str
    rung: Rung
    fault_class: FaultClass
    fault: str
    at: datetime
    outcome: str


class PastIncident(Model):
    incident: str
    fault: str
    fault_class: FaultClass
    opened_at: datetime
    end: str | None = None
    ended_at: datetime | None = None


class Latch(Model):
    """A veto, reject or expiry: it holds for that machine and fault set until `until`."""

    why: str
    faults: tuple[str, ...]
    by: str
    until: datetime


class History(Model):
    """What the ledger knows about this node's machine; window: 30 days, attempts 7."""

    attempts: tuple[Attempt, ...] = ()
    incidents: tuple[PastIncident, ...] = ()
    latches: tuple[Latch, ...] = ()
    succeeds: PastIncident | None = None
    """Set when this machine came as the successor of one with that fault, within 24 h."""
    this_incident_ended: bool = False
    """True when the ledger says that the asking incident is over (a restored, older workflow store)."""
    spares: int | None = None
    """Known spares of the pool; None when nobody counts them."""
    bad_parts: tuple[str, ...] = ()
    """Of this machine's parts: those that were sent back before, in words."""
    frozen: str | None = None
