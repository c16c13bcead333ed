"""Machines whose provider only knows whether they are on, and the activities that act on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from activities import signatures as sig
from activities.kubernetes.cluster import KubernetesCluster
from activities.machines import MachineActivities
from activities.ports import MachineState, Verb
from activities.storage.intents import Intents
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Capability, Node
from medevac.incident import StepKey
from medevac.policy.plan import Rung
from tests.integration.kubernetes.house import INCIDENT, RealHouse

RUNGS = {Verb.REBOOT: Rung.REBOOT, Verb.TERMINATE: Rung.TERMINATE, Verb.RESET_GPU: Rung.RESET_GPU}


@dataclass
class Power:
    now: MachineState = field(default_factory=lambda: MachineState(exists=True, power="on"))
    calls: list[tuple[Verb, str]] = field(default_factory=list)
    name: str = "aws"
    simulated: bool = False

    def capabilities(self, node: Node) -> frozenset[Capability]:
        return frozenset((Capability.REBOOT, Capability.TERMINATE, Capability.RESET_GPU))

    def state(self, node: Node, tag: str) -> MachineState:
        return self.now

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        self.calls.append((verb, node.machine.id))
        return "accepted"


class PowerHouse(RealHouse):
    def __init__(self, path: Path, cluster: KubernetesCluster) -> None:
        super().__init__(path, cluster)
        self.power = Power()
        self.registry._providers[self.power.name] = self.power
        self.machines = MachineActivities(self.registry, self.look, Intents(self.db), self.ledger)

    def pre(self, node: Node) -> sig.Precondition:
        return sig.Precondition(
            incident=INCIDENT, cluster=node.cluster, node=node.name, provider=node.machine.provider,
            identity=node.identity, lease=self.leases[node.name], plan_hash="abc", scopes=node.domains,
        )  # fmt: skip

    def act(self, node: Node, verb: Verb) -> sig.ActRequest:
        return sig.ActRequest(
            key=StepKey(incident=INCIDENT, step=f"act-{verb}"), pre=self.pre(node), verb=verb, fault="xid/79",
            fault_class=FaultClass.CRITICAL, rung=RUNGS[verb],
        )  # fmt: skip

    def proof(self, node: Node, verb: Verb, deadline_s: float) -> sig.ProveRequest:
        return sig.ProveRequest(
            key=StepKey(incident=INCIDENT, step="prove"), pre=self.pre(node), verbs=(verb,),
            acted=StepKey(incident=INCIDENT, step=f"act-{verb}"), deadline_s=deadline_s,
        )  # fmt: skip
