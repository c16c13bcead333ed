"""What is asked of the guard, and what it answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from medevac.faults.classes import FaultClass
from medevac.model import Model
from medevac.policy.plan import ApprovalNeed


class LeaseRequest(Model):
    """Permission to disrupt one node, in every failure domain it stands in. Idempotent by `lease_id`."""

    lease_id: str
    incident: str
    workflow_id: str
    cluster: str
    node: str
    pool: str | None
    domains: dict[str, str]
    gang: str | None = None
    """Nodes of one gang count as one: their job is down anyway."""
    edge: Literal["destructive", "mark"] = "destructive"
    fault: str
    fault_class: FaultClass
    plan_hash: str
    approval: str | None = None
    """An approval id that covers this request (looked up in the ledger, never believed)."""
    campaign: str | None = None
    """Whose list the approval covers, where a campaign wants this."""
    asked_at: datetime
    """When the incident first asked; ages the request so that nothing starves."""
    job_running: bool = True
    """Work that a disruption would end still runs on the node; then a spare must be there, where spares are known."""
    person_asked: bool = False
    """The plan waits for a person's yes before it destroys anyway, so that the guard needn't ask one for it alone."""
    asks: int = 0
    """Questions that the incident has left or found void so far: each of them is over, the next is another one."""

    @property
    def pool_name(self) -> str | None:
        """As the policy calls it: `pool` may be written with its cluster, as a domain is."""
        return (self.pool or "").removeprefix(f"{self.cluster}/") or None


class Granted(Model):
    kind: Literal["granted"] = "granted"
    lease_id: str
    epoch: int
    until: datetime


class Waiting(Model):
    kind: Literal["waiting"] = "waiting"
    reason: str
    """Names the limit and who holds it."""
    holders: tuple[str, ...] = ()
    position: int = 0
    retry_s: float = Field(default=5.0, gt=0)


class Ask(Model):
    """A person must agree first; everyone who waits for the same `approval` shares one question."""

    kind: Literal["ask"] = "ask"
    approval: str
    reason: str
    fleet_wide: bool = True
    """False: about this node alone, in a pool so small that one node is no small share."""
    need: ApprovalNeed
    """Who must say yes to a fleet-wide step, from the policy in force."""


LeaseAnswer = Granted | Waiting | Ask


class LeaseRef(Model):
    """Carried by each destructive step, checked against the row right before the call."""

    lease_id: str
    epoch: int
