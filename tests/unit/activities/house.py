"""A small simulated fleet with a real ledger, and the activities on it, without Temporal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.testing import ActivityEnvironment

from activities import signatures as sig
from activities.approved import Approved
from activities.census import CensusTaker
from activities.failures import Bounded
from activities.guard.store import GuardStore
from activities.intended import SendOnce
from activities.ports import Mark, Verb
from activities.precondition import Look
from activities.registry import Registry
from activities.storage.campaigns import Campaigns
from activities.storage.database import Database
from activities.storage.fences import Fences
from activities.storage.intents import Intents
from activities.storage.ledger import Ledger
from activities.storage.policies import Policies
from medevac.faults.classes import FaultClass
from medevac.fleet.lease import Granted, LeaseRef, LeaseRequest
from medevac.fleet.node import Node
from medevac.incident import IncidentView, State, StepKey
from medevac.policy.loading import preset
from medevac.policy.plan import Drain, Rung
from simulation.build import Parts, parts
from simulation.layout import TEST, Layout
from simulation.world import World
from tests.votes import KEYS

T = TypeVar("T")
INCIDENT = "inc-1"
CLUSTER = "sim-a"


class House:
    def __init__(self, path: Path, layout: Layout | None = None, *, anew: bool = True) -> None:
        """Not `anew`: the one that another process has built there."""
        world = path / "world.sqlite"
        if anew:
            World.create(world, layout or Layout(nodes=16, durations=TEST), seed=7).close()
        self.parts: Parts = parts(world)
        self.world = self.parts.world
        self.db = Database(f"sqlite:///{path / 'ledger.sqlite'}", timeout_s=60.0)
        self.db.upgrade()
        self.ledger = Ledger(self.db)
        self.intents = Intents(self.db)
        self.fences = Fences(self.db)
        self.policies = Policies(self.db)
        if anew:
            self.activate(preset("demo"))
        self.guard = GuardStore(self.db, self.policies)
        self.bounded = Bounded(4)
        self.lease = LeaseRef(lease_id=INCIDENT, epoch=0)
        self.registry = Registry(
            clusters=self.parts.clusters,
            providers=self.parts.providers,
            chat=self.parts.chat,
            checks={c.name: self.parts.checks for c in self.parts.clusters},
            tickets={p.name: self.parts.tickets for p in self.parts.providers},
        )
        self.look = Look(
            self.registry, self.ledger, self.guard, self.fences, Approved(self.ledger, Campaigns(self.db), KEYS)
        )
        self.once = SendOnce(self.ledger, self.bounded)
        self.census = CensusTaker(self.registry, self.policies, self.bounded, fresh_s=0.0)

    def activate(self, policy: str) -> None:
        now = datetime.now(UTC)
        self.policies.activate(self.policies.propose(policy, "test", now), None, now)

    def close(self) -> None:
        self.bounded.close()
        self.world.close()
        self.db.engine.dispose()

    # -- arranging ---------------------------------------------------------------------------------------------

    def busy_node(self, provider: str | None = None) -> Node:
        """A ready node with workload pods on it."""
        cluster = self.registry.cluster(CLUSTER)
        for node in self.world.nodes(CLUSTER):
            if provider in (None, node.machine.provider) and any(p.tier == "workload" for p in cluster.pods(node.name)):
                return node
        raise AssertionError("no busy node")

    def idle_node(self, provider: str) -> Node:
        cluster = self.registry.cluster(CLUSTER)
        for node in self.world.nodes(CLUSTER):
            if node.machine.provider == provider and all(p.tier != "workload" for p in cluster.pods(node.name)):
                return node
        raise AssertionError("no idle node")

    def calm(self) -> None:
        """Takes back every scripted misfortune."""
        with self.world.write() as moment:
            moment.run("DELETE FROM scripts")

    def node(self, name: str) -> Node:
        found = self.world.node(name, CLUSTER)
        assert found is not None
        return found

    def marked(self, node: Node) -> Node:
        """Marked and leased by our incident, which the ledger knows."""
        mark = Mark(incident=INCIDENT, code="xid-79", faults=("xid/79",), reason="test")
        self.registry.cluster(CLUSTER).mark(node.name, mark)
        self.ledger.upsert_incident(self.view(node))
        answer = self.guard.acquire(self.lease_request(node), datetime.now(UTC), self.census.take(CLUSTER, 5))
        assert isinstance(answer, Granted), answer
        self.lease = LeaseRef(lease_id=answer.lease_id, epoch=answer.epoch)
        return self.node(node.name)

    def lease_request(self, node: Node, **changes: Any) -> LeaseRequest:
        given: dict[str, Any] = {
            "lease_id": INCIDENT,
            "incident": INCIDENT,
            "workflow_id": f"node/{CLUSTER}/{node.name}",
            "cluster": CLUSTER,
            "node": node.name,
            "pool": node.pool,
            "domains": node.domains,
            "fault": "xid/79",
            "fault_class": FaultClass.CRITICAL,
            "plan_hash": "abc",
            "asked_at": datetime.now(UTC),
            "job_running": False,
        }
        return LeaseRequest(**(given | changes))

    def view(self, node: Node, **changes: Any) -> IncidentView:
        now = datetime.now(UTC)
        given: dict[str, Any] = {
            "id": INCIDENT,
            "workflow_id": f"node/{CLUSTER}/{node.name}",
            "cluster": CLUSTER,
            "node": node.name,
            "machine_id": node.machine.id,
            "fault": "xid/79",
            "fault_class": FaultClass.CRITICAL,
            "state": State.EVACUATING,
            "opened_at": now,
            "updated_at": now,
        }
        return IncidentView(**(given | changes))

    def pre(self, node: Node, **changes: Any) -> sig.Precondition:
        given: dict[str, Any] = {
            "incident": INCIDENT,
            "cluster": CLUSTER,
            "node": node.name,
            "provider": node.machine.provider,
            "identity": node.identity,
            "lease": self.lease,
            "plan_hash": "abc",
            "scopes": node.domains,
        }
        return sig.Precondition(**(given | changes))

    def act_request(self, node: Node, verb: Verb = Verb.REBOOT, n: int = 1, **changes: Any) -> sig.ActRequest:
        return sig.ActRequest(
            key=StepKey(incident=INCIDENT, step=f"act-{verb}", n=n),
            pre=self.pre(node, **changes),
            verb=verb,
            fault="xid/79",
            fault_class=FaultClass.CRITICAL,
            rung=Rung.REPLACE if verb in (Verb.REQUEST, Verb.TERMINATE) else Rung(verb.value),
        )

    def evacuate_request(
        self, node: Node, drain: Drain = Drain.NOW, drain_s: float = 5.0, grace_s: float = 5.0, **changes: Any
    ) -> sig.EvacuateRequest:
        return sig.EvacuateRequest(
            key=StepKey(incident=INCIDENT, step="evacuate"),
            pre=self.pre(node),
            drain=drain,
            drain_s=drain_s,
            pod_grace_s=grace_s,
            **changes,
        )


def environment(
    *, attempt: int = 1, whole_s: float = 60.0, start_to_close_s: float = 10.0, ago_s: float = 0.0
) -> ActivityEnvironment:
    """An activity's surroundings: when it was first scheduled, and how long it may take."""
    env = ActivityEnvironment()
    env.info = dataclasses.replace(
        env.info,
        attempt=attempt,
        scheduled_time=datetime.now(UTC) - timedelta(seconds=ago_s),
        start_to_close_timeout=timedelta(seconds=start_to_close_s),
        schedule_to_close_timeout=timedelta(seconds=whole_s),
        heartbeat_timeout=timedelta(seconds=2),
    )
    return env


def run(fn: Callable[[Any], T], request: Any, **info: Any) -> T:
    return environment(**info).run(fn, request)
