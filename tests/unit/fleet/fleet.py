"""A fleet to ask a guard about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.guard import Guard
from medevac.fleet.guard_state import Approved, State
from medevac.fleet.lease import Ask, Granted, LeaseAnswer, LeaseRef, LeaseRequest, Waiting
from medevac.fleet.limits import Limits, Share
from medevac.fleet.node import Machine, Node
from medevac.policy.plan import ApprovalNeed

T0 = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
FLEET = ApprovalNeed(groups=("approver",), threshold=2, one_of="capacity-owners", expires_s=3600, why=())
ONE = ApprovalNeed(groups=("approver",), threshold=1, expires_s=3600, why=())
ROOMY = Limits(at_once={"cluster": Share(count=1000)}, fleet_nodes=1000, breaker_level_percent=20, grant_pace_s=0)
"""Limits that let everything through, for tests of one of the others."""


def node(i: int, cluster: str = "c", pool: str = "train", racks: int = 64, **more: object) -> Node:
    return Node(
        cluster=cluster,
        name=f"n{i}",
        pool=pool,
        gpus=8,
        machine=Machine(provider="cloud", id=f"m-{cluster}-{i}"),
        topology={"rack": f"r{i % racks}"},
        **more,  # type: ignore[arg-type]
    )


@dataclass
class Fleet:
    """Nodes, one guard with its state, and a clock that tests move."""

    nodes: list[Node]
    limits: Limits = field(default_factory=Limits)
    state: State = field(default_factory=State)
    now: datetime = T0
    spares: dict[str, int] | None = None
    out: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    _counted: dict[object, Census] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int, limits: Limits | None = None, **more: object) -> Fleet:
        return cls([node(i) for i in range(size)], limits or Limits(), **more)  # type: ignore[arg-type]

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def census(self, cluster: str = "c") -> Census:
        key = (cluster, self.out, self.marked, len(self.nodes), str(self.spares))
        if key not in self._counted:
            self._counted[key] = self._count(cluster)
        return self._counted[key]

    def _count(self, cluster: str) -> Census:
        seen = [
            n.model_copy(
                update={
                    "ready": n.name not in self.out,
                    "marked_by": f"i-{n.cluster}-{n.name}" if n.name in self.marked else None,
                }
            )
            for n in self.nodes
            if n.cluster == cluster
        ]
        return Census.of(cluster, seen, self.spares)

    @cached_property
    def _named(self) -> dict[tuple[str, str], Node]:
        return {(n.cluster, n.name): n for n in self.nodes}

    @property
    def guard(self) -> Guard:
        return Guard(self.limits, FLEET, ONE)

    def request(
        self,
        name: str,
        cluster: str = "c",
        fault_class: FaultClass = FaultClass.CRITICAL,
        incident: str | None = None,
        **more: object,
    ) -> LeaseRequest:
        found = self._named[cluster, name]
        incident = incident or f"i-{cluster}-{name}"
        values: dict[str, object] = {
            "lease_id": incident,
            "incident": incident,
            "workflow_id": f"node/{cluster}/{name}",
            "cluster": cluster,
            "node": name,
            "pool": found.pool,
            "domains": found.domains,
            "fault": "xid/79",
            "fault_class": fault_class,
            "plan_hash": "plan",
            "asked_at": self.now,
        }
        return LeaseRequest(**{**values, **more})  # type: ignore[arg-type]

    def ask(self, request: LeaseRequest, approved: Approved | None = None, readable: bool = True) -> LeaseAnswer:
        census = self.census(request.cluster) if readable else None
        self.state, answer = self.guard.decide(self.state, request, self.now, census, approved)
        return answer

    def acquire(self, name: str, **more: object) -> LeaseAnswer:
        return self.ask(self.request(name, **more))  # type: ignore[arg-type]

    def mark(self, name: str, **more: object) -> LeaseAnswer:
        return self.ask(self.request(name, edge="mark", **more))  # type: ignore[arg-type]

    def release(self, lease_id: str) -> tuple[str, ...]:
        self.state, wake = self.guard.release(self.state, lease_id)
        return wake

    def renew(self, granted: Granted) -> Granted | None:
        ref = LeaseRef(lease_id=granted.lease_id, epoch=granted.epoch)
        self.state, answer = self.guard.renew(self.state, ref, self.now)
        return answer

    def disrupted(self) -> set[str]:
        return {lease.node_key for lease in self.state.leases.values()}


def granted(answer: LeaseAnswer) -> Granted:
    assert isinstance(answer, Granted), answer
    return answer


def waiting(answer: LeaseAnswer) -> Waiting:
    assert isinstance(answer, Waiting), answer
    return answer


def asked(answer: LeaseAnswer) -> Ask:
    assert isinstance(answer, Ask), answer
    return answer


def kinds(answers: Iterable[LeaseAnswer]) -> list[str]:
    return [answer.kind for answer in answers]
