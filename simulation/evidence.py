"""What a verdict is made from: the ledger as it was written, the world as it is, and its log of effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from activities.ports import Verb
from activities.storage.database import Database
from activities.storage.ledger import Ledger
from activities.storage.tables import intents
from medevac.approvals.approval import ApprovalView
from medevac.fleet.node import Capability, Node
from medevac.incident import IncidentView, Line, StepKey
from medevac.model import Model
from simulation.reading import Billed, Injected, Logged
from simulation.world import World

EVERYTHING = 1_000_000


class Intended(Model):
    """The stored word that a call was about to be made."""

    key: StepKey
    verb: Verb
    machine_id: str
    at: datetime
    void: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    incidents: Mapping[str, IncidentView] = field(default_factory=dict)
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    """By incident, in the order of their times."""
    intents: Sequence[Intended] = ()
    approvals: Sequence[ApprovalView] = ()
    effects: Sequence[Logged] = ()
    faults: Sequence[Injected] = ()
    bills: Sequence[Billed] = ()
    nodes: Sequence[Node] = ()
    capabilities: Mapping[str, frozenset[Capability]] = field(default_factory=dict)
    """By machine id."""

    def incident_of(self, fault: Injected) -> IncidentView | None:
        """The newest incident of the fault's machine: by the request that launched it, or by its node's name."""
        tag = next((bill.requested_by for bill in self.bills if bill.machine_id == fault.machine_id), None)
        if tag and tag in self.incidents:
            return self.incidents[tag]
        found = [i for i in self.incidents.values() if (i.cluster, i.node) == (fault.cluster, fault.node)]
        by_tag = {
            effect.tag for effect in self.effects if effect.node == fault.node and effect.cluster == fault.cluster
        }
        found += [self.incidents[tag] for tag in by_tag if tag in self.incidents]
        return max(found, key=lambda incident: incident.opened_at, default=None)

    def until(self, machine_id: str) -> datetime | None:
        return next((bill.until for bill in self.bills if bill.machine_id == machine_id), None)


def gather(db: Database, world: World) -> Evidence:
    ledger = Ledger(db)
    incidents = {view.id: view for view in ledger.incidents(open_only=False, limit=EVERYTHING)}
    with db.reading() as connection:
        rows = connection.execute(sa.select(intents).order_by(intents.c.at)).all()
    bills = world.billing()
    kinds = world.layout.providers
    return Evidence(
        incidents=incidents,
        lines={incident: ledger.lines(incident) for incident in incidents},
        intents=[
            Intended(
                key=StepKey(incident=row.incident, step=row.step, n=row.n), verb=row.verb,
                machine_id=row.machine_id, at=row.at, void=row.void_at is not None,
            )
            for row in rows
        ],
        approvals=ledger.approvals(pending_only=False, limit=EVERYTHING),
        effects=world.effects(),
        faults=world.faults(),
        bills=bills,
        nodes=[node for cluster in world.layout.clusters for node in world.nodes(cluster)],
        capabilities={bill.machine_id: kinds[bill.provider].capabilities for bill in bills},
    )  # fmt: skip
