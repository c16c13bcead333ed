"""The real activities on a rig's machine: real ledger and intents, and of the looks only the one at the machine."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from temporalio.testing import ActivityEnvironment

from activities import signatures as sig
from activities.machines import MachineActivities
from activities.ports import Chat, Cluster, Verb
from activities.precondition import Look
from activities.registry import Registry
from activities.storage.database import Database
from activities.storage.intents import Intents
from activities.storage.ledger import Ledger
from medevac.faults.classes import FaultClass
from medevac.fleet.lease import LeaseRef
from medevac.fleet.node import Node
from medevac.incident import StepKey, StepResult
from medevac.policy.plan import Rung
from tests.contracts.rigs import ProviderRig

INCIDENT = "inc-1"


class RigCluster:
    """The cluster as far as machines are concerned: it shows the rig's nodes. Everything else isn't asked."""

    def __init__(self, rig: ProviderRig) -> None:
        self._rig = rig
        self.name = rig.node.cluster
        self.simulated = rig.provider.simulated

    def nodes(self) -> Iterable[Node]:
        return self._rig.nodes()

    def node(self, name: str) -> Node | None:
        return next((node for node in self._rig.nodes() if node.name == name), None)


class Silent:
    def __init__(self, simulated: bool) -> None:
        self.simulated = simulated


class MachineLook(Look):
    """Ledger, lease, votes and fences have tests of their own; here it is whether the machine is the planned one."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def renew(self, pre: sig.Precondition) -> None: ...

    def _ledger_agrees(self, pre: sig.Precondition) -> None: ...

    def _lease_is_ours(self, pre: sig.Precondition) -> None: ...

    def _no_fence(self, pre: sig.Precondition, node: Node) -> None: ...


class Desk:
    def __init__(self, rig: ProviderRig, ledger: Path, incident: str = INCIDENT) -> None:
        """A ledger that is there already is gone on with, as by the next worker."""
        self.rig = rig
        self.incident = incident
        if not ledger.exists():
            shutil.copy(_empty_ledger(), ledger)
        self.db = Database(f"sqlite:///{ledger}", timeout_s=60.0)
        self.intents = Intents(self.db)
        self.registry = Registry(
            clusters=[cast(Cluster, RigCluster(rig))],
            providers=[rig.provider],
            chat=cast(Chat, Silent(rig.provider.simulated)),
        )
        self._ledger = Ledger(self.db)
        self._machines = MachineActivities(self.registry, MachineLook(self.registry), self.intents, self._ledger)

    def close(self) -> None:
        self.db.engine.dispose()

    def key(self, verb: Verb, n: int = 1) -> StepKey:
        return StepKey(incident=self.incident, step=f"act-{verb}", n=n)

    def act(self, verb: Verb, n: int = 1, attempt: int = 1) -> StepResult:
        request = sig.ActRequest(
            key=self.key(verb, n),
            pre=self._pre(),
            verb=verb,
            fault="xid/79",
            fault_class=FaultClass.CRITICAL,
            rung=Rung.REPLACE if verb in (Verb.REQUEST, Verb.TERMINATE) else Rung(verb.value),
        )
        return environment(attempt).run(self._machines.act, request)

    def prove(self, *verbs: Verb, deadline_s: float = 120.0, n: int = 1) -> StepResult:
        """Of the last of `verbs`, and of those before it."""
        request = sig.ProveRequest(
            key=StepKey(incident=self.incident, step="prove", n=n),
            pre=self._pre(),
            verbs=verbs,
            acted=self.key(verbs[-1], n),
            deadline_s=deadline_s,
        )
        return environment().run(self._machines.prove, request)

    def _pre(self) -> sig.Precondition:
        """As the plan knew the machine, whatever stands under its name now."""
        node = self.rig.node
        given: dict[str, Any] = {
            "incident": self.incident,
            "cluster": node.cluster,
            "node": node.name,
            "provider": node.machine.provider,
            "identity": node.identity,
            "lease": LeaseRef(lease_id=self.incident, epoch=0),
            "plan_hash": "abc",
            "scopes": node.domains,
            "mark": False,
        }
        return sig.Precondition(**given)


@functools.cache
def _empty_ledger() -> Path:
    """Migrated once for all tests."""
    path = Path(tempfile.mkdtemp(prefix="medevac-ledger-")) / "empty.sqlite"
    db = Database(f"sqlite:///{path}")
    db.upgrade()
    db.engine.dispose()
    return path


def environment(attempt: int = 1) -> ActivityEnvironment:
    env = ActivityEnvironment()
    env.info = dataclasses.replace(
        env.info,
        attempt=attempt,
        scheduled_time=datetime.now(UTC),
        start_to_close_timeout=timedelta(seconds=300),
        schedule_to_close_timeout=timedelta(seconds=600),
        heartbeat_timeout=timedelta(seconds=5),
    )
    return env
