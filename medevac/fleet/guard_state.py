"""What the guard knows between two requests. Values only; every change makes a new `State`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from medevac.faults.classes import FaultClass
from medevac.fleet.census import TOPOLOGY, domain_key, node_key
from medevac.fleet.fence import Fence, scopes_of
from medevac.fleet.lease import LeaseRequest

K = TypeVar("K")
V = TypeVar("V")


def domains_of(request: LeaseRequest) -> dict[str, str]:
    """Kind → domain key. A domain of the topology that nobody named is one shared, strictest one."""
    pool = f"{request.cluster}/{request.pool_name or '-'}"
    named = {"cluster": request.cluster, "pool": pool, **request.domains}
    unknown = dict.fromkeys(TOPOLOGY, f"{request.cluster}/unknown")
    return {kind: domain_key(kind, value) for kind, value in {**unknown, **named}.items()}


def scopes_of_request(request: LeaseRequest) -> tuple[str, ...]:
    pool = domains_of(request)["pool"].removeprefix(f"pool:{request.cluster}/")
    return scopes_of(request.cluster, request.node, pool, request.domains.get("provider"))


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: str
    incident: str
    workflow_id: str
    cluster: str
    node: str
    gang: str | None
    domains: Mapping[str, str]
    fault_class: FaultClass
    plan_hash: str
    epoch: int
    granted_at: datetime
    until: datetime
    """Past it the lease still counts, until Temporal has said that its holder doesn't run."""

    @property
    def node_key(self) -> str:
        return node_key(self.cluster, self.node)

    @property
    def unit(self) -> str:
        """What counts as one: a gang's nodes are down together anyway."""
        return self.gang or self.node_key

    def expired(self, now: datetime) -> bool:
        return now >= self.until


@dataclass(frozen=True, slots=True)
class Queued:
    """A request that waits for a limit. It stays in line as long as it keeps asking."""

    lease_id: str
    incident: str
    workflow_id: str
    cluster: str
    node: str
    gang: str | None
    domains: Mapping[str, str]
    turn: datetime
    """Asked at, later by severity: the lowest goes first, and no newcomer can overtake for ever."""
    blocked: str
    """Domain whose limit refused it last; it stands in line there."""
    ours: bool
    """False when others' outages or missing spares block it: then it keeps nobody waiting."""
    gone_after: datetime

    @property
    def unit(self) -> str:
        return self.gang or node_key(self.cluster, self.node)


@dataclass(frozen=True, slots=True)
class Grant:
    """That something was allowed, for the sums over time; it outlives its lease."""

    epoch: int
    lease_id: str
    edge: str
    incident: str
    cluster: str
    pool: str
    node: str
    fault_class: FaultClass
    approval: str | None
    """The fleet-wide approval that it was granted under."""
    at: datetime

    @property
    def node_key(self) -> str:
        return node_key(self.cluster, self.node)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One incident's node showed a fault of this class, when the guard first heard of it."""

    fault_class: FaultClass
    cluster: str
    node: str
    incident: str
    at: datetime

    @property
    def node_key(self) -> str:
        return node_key(self.cluster, self.node)


LEVEL = "level"


@dataclass(frozen=True, slots=True)
class ClosingVote:
    """One person's word that a breaker may close, and when they looked."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stops new destructive steps in a cluster: for one fault class by rate, or for all by level."""

    cluster: str
    cause: str
    """A fault class, or `level`."""
    opened_at: datetime
    reason: str
    votes: tuple[ClosingVote, ...] = ()
    """The last of each person, also such as count no more; of a closed one, those that closed it."""
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """The one fleet-wide approval that is asked for now; what it is about decides who joins it."""

    approval: str
    opened_at: datetime
    about: Mapping[str, str]
    """Trigger → words: `pool:…`, `class:…`, `marks:…` draw in others of the same, `incident:…` only itself."""


@dataclass(frozen=True, slots=True)
class Approved:
    """People's yes that covers the request's incident and plan, read from the ledger."""

    approval: str
    fleet_wide: bool


@dataclass(frozen=True, slots=True)
class State:
    epoch: int = 0
    leases: Mapping[str, Lease] = field(default_factory=dict)
    queue: Mapping[str, Queued] = field(default_factory=dict)
    grants: Mapping[int, Grant] = field(default_factory=dict)
    sightings: Mapping[tuple[str, str, str], Sighting] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    """Incident → approval it was last told to wait for. Once told, it needs a yes, however much time passes."""
    breakers: Mapping[tuple[str, str], Breaker] = field(default_factory=dict)
    question: Question | None = None
    fences: tuple[Fence, ...] = ()
    thawed: Mapping[str, datetime] = field(default_factory=dict)

    def put(self, **changes: Any) -> State:
        return replace(self, **changes)


def with_item(items: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    return {**items, key: value}


def without(items: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {k: v for k, v in items.items() if k != key} if key in items else items
