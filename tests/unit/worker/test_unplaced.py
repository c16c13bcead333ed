"""A grave fault of a machine that nobody knows is answered 202 and opens nothing: somebody is told its name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from activities.failures import Bounded
from activities.folding import Folding
from activities.registry import Registry
from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import FaultClass
from simulation.adapters import SimulatedChat
from simulation.world import World
from tests.unit.worker import test_doctor as doctors
from tests.unit.worker.conftest import StubEngine
from worker.meanwhile import Meanwhile
from worker.settings import Settings
from worker.stores import Stores
from worker.sweep import Sweep
from worker.threads import Threads
from worker.unplaced import unplaced

examined = doctors.examined
NOW = datetime.now(UTC)
UNKNOWN = "unknown_node: no node is known as aks-gpu-vmss_3 in sim-a"


def heard(subject: str | None, ago: timedelta = timedelta(hours=1), **more: object) -> HealthEvent:
    event = HealthEvent(
        source="azure", sender="azure", id=f"e-{subject}", dedupe_key="k", kind=Kind.FAULT, fault="xid/79",
        fault_class=FaultClass.CRITICAL, subject=subject, received_at=NOW - ago,
    )  # fmt: skip
    return event.model_copy(update=more)


def test_the_names_are_listed_until_the_event_is_brought_to_its_node(stores: Stores) -> None:
    notice = {"kind": Kind.PLANNED, "fault": "maintenance/Redeploy", "fault_class": FaultClass.PLANNED, "id": "n"}
    gpu = heard(None, id="g", entities=("gpu:4", "gpu-uuid:GPU-1"))
    stores.ledger.see_events(
        [
            (heard("aks-gpu-vmss_3"), None, f"from the inbox: {UNKNOWN}, for as long as it was tried"),
            (heard("aks-gpu-vmss_3", **notice), None, UNKNOWN),
            (gpu, None, "unknown_node: the event names no machine, and no node is known to hold GPU GPU-1 in sim-a"),
            (heard("joining", timedelta(minutes=1)), None, "unknown_node: no node; tried again for 15 minutes"),
            (heard("joined"), None, "unknown_node: no node; tried again for 15 minutes"),
            (heard("joined", timedelta(minutes=50)), "gpu-7", "from the inbox: accepted"),
            (heard("app", fault_class=FaultClass.APPLICATION), None, UNKNOWN),
            (heard("long ago", timedelta(hours=7)), None, UNKNOWN),
            (heard("refused"), None, "refused: the sender may not speak for cluster b"),
        ]
    )
    found = {one.name: one for one in unplaced(stores.ledger, NOW)}
    assert set(found) == {"aks-gpu-vmss_3", "GPU-1"}
    assert set(found["aks-gpu-vmss_3"].faults) == {"xid/79", "maintenance/Redeploy"}
    assert "no node is known as aks-gpu-vmss_3" in found["aks-gpu-vmss_3"].text


async def test_the_doctor_names_them_and_says_where_to_add_them(examined: Settings, stores: Stores) -> None:
    assert (await doctors.findings(examined))["machines"].ok
    stores.ledger.see_events([(heard("aks-gpu-vmss_3"), None, UNKNOWN)])
    said = (await doctors.findings(examined))["machines"]
    assert not said.ok
    assert "aks-gpu-vmss_3 (xid/79 by azure" in said.text
    assert "docs/inventory.md" in said.fix


@pytest.mark.parametrize("known", [False, True])
async def test_the_sweep_counts_them_for_the_alert(
    stores: Stores, engine: StubEngine, registry: Registry, world: World, known: bool
) -> None:
    stores.ledger.see_events([(heard("aks-gpu-vmss_3"), None, UNKNOWN)])
    if known:
        stores.ledger.see_events([(heard("aks-gpu-vmss_3"), "aks-gpu-vmss000003", "accepted")])
    folding, meanwhile = Folding(stores.ledger, Bounded()), Meanwhile(registry, stores.ledger)
    sweep = Sweep(stores, engine, SimulatedChat(world), folding, meanwhile, Threads(2), 30.0, lambda: NOW)
    await sweep.once()
    counted = REGISTRY.get_sample_value("medevac_unplaced_machines", {"sender": "azure"})
    assert counted == (None if known else 1)
