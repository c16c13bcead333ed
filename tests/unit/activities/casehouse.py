"""The small fleet with a real ticket desk (a program), and the activities of cases on it, without Temporal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from activities import signatures as sig
from activities.casework import CaseActivities, Confirm
from activities.evidence_store import FolderStore
from activities.registry import Registry
from activities.storage.cases import Cases
from activities.ticketing import TicketActivities
from medevac.cases.case import Case, CaseState, Saying
from medevac.fleet.node import Node
from medevac.incident import IncidentView, Outcome, State, StepKey, StepResult
from simulation.layout import TEST, Layout
from tests.integration.tickets.rigs import CommandRig
from tests.unit.activities.house import CLUSTER, House, run

PROVIDER = "ironworks"


class Real:
    """A part of the simulation that says of itself that it is real."""

    simulated = False

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class CaseHouse(House):
    def __init__(self, path: Path, *, anew: bool = True, confirm: Confirm | None = None, **desk: Any) -> None:
        super().__init__(path, Layout(nodes=48, durations=TEST), anew=anew)
        self.desk = CommandRig(path / "desk", **desk)
        self.store = FolderStore(path / "evidence")
        self.registry = Registry(
            clusters=[Real(cluster) for cluster in self.parts.clusters],
            providers=[Real(provider) for provider in self.parts.providers],
            chat=Real(self.parts.chat),
            checks={c.name: Real(self.parts.checks) for c in self.parts.clusters},
            tickets={PROVIDER: self.desk.tickets},
            evidence=self.store,
        )
        self.ahead = timedelta(0)
        self.cases = Cases(self.db)
        self.followed: list[str] = []
        self.said: list[Saying] = []
        self.told: dict[str, int] = {}
        self.confirmed: list[tuple[str, str]] = []
        self.ticketing = TicketActivities(
            self.registry,
            self.ledger,
            self.cases,
            self.policies,
            lambda case: self.followed.append(case.id),
            self.bounded,
            self.now,
        )
        self.casework = CaseActivities(
            self.registry,
            self.ledger,
            self.cases,
            self.policies,
            self.fences,
            self.once,
            confirm or (lambda view, who, why, token: self.confirmed.append((view.id, token))),
            self.now,
        )

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def sick(self, n: int = 0, fault: str = "xid/79", state: State = State.HANDED_OVER) -> tuple[Node, str]:
        """The n-th node of the provider, and the incident that it is in."""
        cluster = self.registry.cluster(CLUSTER)
        node = [node for node in cluster.nodes() if node.machine.provider == PROVIDER][n]
        incident = f"inc-{n}"
        self.ledger.upsert_incident(self.view(node, id=incident, fault=fault, state=state, rev=1))
        return node, incident

    def moves(self, node: Node, incident: str, rev: int, **changes: Any) -> None:
        view: IncidentView = self.view(node, id=incident, rev=rev, **{"state": State.HANDED_OVER, **changes})
        self.ledger.upsert_incident(view)

    def ask(
        self,
        incident: str,
        n: int = 1,
        ago_s: float = 590.0,
        body: str = "because of job secret-run",
        entities: tuple[str, ...] = (),
    ) -> StepResult:
        """What the incident's step says; as late that it waits for nothing."""
        request = sig.TicketRequest(
            key=StepKey(incident=incident, step="ticket", n=n),
            provider=PROVIDER,
            title="t",
            body=body,
            entities=entities,
        )
        return run(self.ticketing.ticket, request, whole_s=600, ago_s=ago_s)

    def case(self, incident: str) -> Case:
        return next(case for case in self.cases.all(open_only=False) if incident in case.incidents)

    def step(self, incident: str, **given: Any) -> sig.CaseStepped:
        """As the workflow does it: what is said once isn't said again."""
        case = self.case(incident)
        request = sig.CaseStepRequest(case=case.id, n=1, told=self.told.get(case.id, 0), **given)
        stepped = run(self.casework.step, request, start_to_close_s=60)
        self.said += stepped.sayings
        self.told[case.id] = max((saying.n for saying in stepped.sayings), default=request.told)
        return stepped

    def opened(self, n: int = 0) -> tuple[Node, str]:
        node, incident = self.sick(n)
        self.ask(incident)
        if self.case(incident).state is CaseState.ASKED:
            self.step(incident, decided=True, reason="ada said yes")
        self.step(incident)
        assert self.ask(incident).outcome in (Outcome.DONE, Outcome.ALREADY)
        return node, incident

    def ticket(self, id: str = "T-1") -> dict[str, Any]:
        return self.desk.all()[id]

    def other_machine(self, node: Node) -> Node:
        self.world.swap(node.name)
        found = self.registry.cluster(CLUSTER).node(node.name)
        assert found is not None
        return found
