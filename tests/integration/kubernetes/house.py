"""The activities with a real ledger and guard, on a real API server, without Temporal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from activities import signatures as sig
from activities.approved import Approved
from activities.evacuation import EvacuationActivities
from activities.failures import Bounded
from activities.guard.store import GuardStore
from activities.kubernetes.cluster import KubernetesCluster
from activities.ports import Eviction, MachineState, Mark, NotSent, Pod, Verb
from activities.precondition import Look
from activities.registry import Registry
from activities.storage.campaigns import Campaigns
from activities.storage.database import Database
from activities.storage.fences import Fences
from activities.storage.ledger import Ledger
from activities.storage.policies import Policies
from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.lease import Granted, LeaseRef, LeaseRequest
from medevac.fleet.node import Capability, Node
from medevac.incident import IncidentView, State, StepKey
from medevac.policy.loading import preset
from medevac.policy.plan import Drain
from tests.votes import KEYS
from worker.parts import LogChat

INCIDENT = "inc-1"
MARK = Mark(incident=INCIDENT, code="xid-79", faults=("xid/79",), reason="GPU has fallen off the bus")


class NoMachines:
    """A provider that can do nothing: these tests never get so far."""

    name = "aws"
    simulated = False

    def capabilities(self, node: Node) -> frozenset[Capability]:
        return frozenset()

    def state(self, node: Node, tag: str) -> MachineState:
        return MachineState(exists=True)

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        raise NotSent("nothing can be done to this machine", final=True)


class RealHouse:
    def __init__(self, path: Path, cluster: KubernetesCluster, policies: type[Policies] = Policies) -> None:
        self.cluster = cluster
        self.db = Database(f"sqlite:///{path / 'ledger.sqlite'}", timeout_s=60.0)
        self.db.upgrade()
        self.ledger = Ledger(self.db)
        self.fences = Fences(self.db)
        self.policies = policies(self.db)
        now = datetime.now(UTC)
        self.policies.activate(self.policies.propose(preset("demo"), "test", now), None, now)
        self.guard = GuardStore(self.db, self.policies)
        self.bounded = Bounded(4)
        self.leases: dict[str, LeaseRef] = {}
        self.registry = Registry(clusters=[cluster], providers=[NoMachines()], chat=LogChat())
        self.look = Look(
            self.registry, self.ledger, self.guard, self.fences, Approved(self.ledger, Campaigns(self.db), KEYS)
        )
        self.passed = timedelta(0)
        self.drains = EvacuationActivities(self.registry, self.look, clock=lambda: datetime.now(UTC) + self.passed)

    def close(self) -> None:
        self.bounded.close()
        self.db.engine.dispose()

    def ends_after_an_eviction(self, patch: pytest.MonkeyPatch) -> None:
        """A drain's deadline is over as soon as the first eviction has its answer, however long that took."""
        evict = self.cluster.evict

        def answered(pod: Pod, grace_s: float) -> Eviction:
            answer = evict(pod, grace_s)
            self.passed = timedelta(hours=2)
            return answer

        patch.setattr(self.cluster, "evict", answered)

    def read(self, name: str) -> Node:
        node = self.cluster.node(name)
        assert node is not None
        return node

    def marked(self, name: str, incident: str = INCIDENT) -> Node:
        """Marked and leased by our incident, which the ledger knows."""
        self.cluster.mark(name, MARK.model_copy(update={"incident": incident}))
        node, now = self.read(name), datetime.now(UTC)
        workflow = f"node/{self.cluster.name}/{name}"
        self.ledger.upsert_incident(IncidentView(
            id=incident, workflow_id=workflow, cluster=self.cluster.name, node=name, machine_id=node.machine.id,
            fault="xid/79", fault_class=FaultClass.CRITICAL, state=State.EVACUATING, opened_at=now, updated_at=now,
        ))  # fmt: skip
        answer = self.guard.acquire(LeaseRequest(
            lease_id=incident, incident=incident, workflow_id=workflow, cluster=self.cluster.name, node=name,
            pool=node.pool, domains=node.domains, fault="xid/79", fault_class=FaultClass.CRITICAL, plan_hash="abc",
            asked_at=now, job_running=False,
        ), now, self.plenty(node))  # fmt: skip
        assert isinstance(answer, Granted), answer
        self.leases[name] = LeaseRef(lease_id=answer.lease_id, epoch=answer.epoch)
        return node

    def plenty(self, node: Node) -> Census:
        """The guard's limits are tested elsewhere: here it sees a fleet in which one node more or less is nothing."""
        fleet = [
            node.model_copy(update={"name": f"other-{n}", "marked_by": None, "schedulable": True}) for n in range(200)
        ]
        return Census.of(node.cluster, [node, *fleet])

    def request(
        self, node: Node, drain: Drain, drain_s: float, grace_s: float = 30, **more: Any
    ) -> sig.EvacuateRequest:
        incident = self.leases[node.name].lease_id
        return sig.EvacuateRequest(
            key=StepKey(incident=incident, step="evacuate"),
            pre=sig.Precondition(
                incident=incident, cluster=node.cluster, node=node.name, provider=node.machine.provider,
                identity=node.identity, lease=self.leases[node.name], plan_hash="abc", scopes=node.domains,
            ),
            drain=drain, drain_s=drain_s, pod_grace_s=grace_s, **more,
        )  # fmt: skip
