"""What people are shown of budgets is what the guard holds to: its floor of one, its gangs, its machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.failures import Bounded
from activities.registry import Registry
from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.lease import LeaseRequest
from medevac.fleet.node import Node
from medevac.policy.loading import load, preset
from medevac.policy.policy import Policy
from simulation.world import World
from tests.unit.worker.conftest import view_of
from tests.unit.worker.test_orders import asked
from worker.console.guard import Used, in_use
from worker.facts import FactsTaker
from worker.stores import Stores

NOW = datetime.now(UTC)
WAS = "    cluster: {count: 6, percent: 0}\n"
IS = "    cluster: {count: 0, percent: 1}\n    provider: {count: 9, percent: 0}\n"


@pytest.fixture
def policy(stores: Stores) -> Policy:
    """One percent of a small cluster is less than a node; a provider's limit is about machines."""
    text = preset("demo").replace(WAS, IS)
    found = load(text)
    stores.policies.activate(stores.policies.propose(text, "setup", NOW), None, NOW)
    return found


@pytest.fixture
def gang(stores: Stores, policy: Policy, world: World) -> list[Node]:
    """Two nodes of one job, both under repair."""
    nodes = [policy.place(one) for one in world.nodes("sim-a")]
    census = Census.of("sim-a", nodes, domains=policy.domains)
    two = [one for one in nodes if one.pool == "train"][:2]
    for n, one in enumerate(two, 1):
        request = LeaseRequest(
            lease_id=f"inc-{n}", incident=f"inc-{n}", workflow_id=f"node/sim-a/{one.name}", cluster="sim-a",
            node=one.name, pool=one.pool, domains=policy.domains(one), gang="job-7", fault="xid/79",
            fault_class=FaultClass.CRITICAL, plan_hash="h", asked_at=NOW, job_running=False,
        )  # fmt: skip
        assert stores.guard.acquire(request, NOW, census).kind == "granted"
    return two


def test_the_consoles_table(stores: Stores, policy: Policy, world: World, gang: list[Node]) -> None:
    nodes = [policy.place(one) for one in world.nodes("sim-a")]
    found = {one.domain: one for one in in_use(policy, stores.guard.leases(), nodes)}
    assert found["cluster:sim-a"] == Used("cluster:sim-a", 1, 1, len(nodes)), "a gang is one, and one is allowed"
    assert sum(one.used for domain, one in found.items() if domain.startswith("provider:")) == 2, "machines are two"


def test_the_card_of_a_question(
    stores: Stores, registry: Registry, policy: Policy, world: World, gang: list[Node]
) -> None:
    bounded = Bounded(2)
    nodes = [policy.place(one) for one in world.nodes("sim-a")]
    taker = FactsTaker(registry, stores, bounded, lambda name: Census.of(name, nodes, domains=policy.domains))
    stores.ledger.upsert_incident(view_of(gang[0], opened_at=NOW - timedelta(minutes=1)))
    budgets = {one.domain: one for one in taker.of(asked(), NOW)["inc-1"].budgets}
    bounded.close()
    assert (budgets["cluster sim-a"].used, budgets["cluster sim-a"].limit) == (1, 1)
    provider = gang[0].machine.provider
    assert budgets[f"provider {provider}"].used == sum(one.machine.provider == provider for one in gang)
