"""What a question of many nodes knows: all that one reading tells of all of them, and no silence about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from activities.failures import Bounded
from activities.ports import Unreadable
from activities.registry import Registry
from medevac.approvals.approval import ApprovalView
from medevac.fleet.census import Census
from medevac.fleet.node import Node
from medevac.incident import End, State
from medevac.telling.asking import approval_card
from medevac.telling.card import plain
from medevac.telling.facts import Links
from tests.unit.worker.conftest import view_of
from tests.unit.worker.test_orders import asked
from worker.facts import MOST, FactsTaker
from worker.stores import Stores

NOW = datetime.now(UTC)


def no_census(cluster: str) -> Census:
    raise Unreadable("nobody counts here")


@pytest.fixture
def taker(stores: Stores, registry: Registry) -> Iterator[FactsTaker]:
    bounded = Bounded(2)
    yield FactsTaker(registry, stores, bounded, no_census)
    bounded.close()


@pytest.fixture
def fleet(registry: Registry) -> list[Node]:
    return [node for cluster in registry.clusters() for node in cluster.nodes() if node.gpus]


def question(stores: Stores, fleet: list[Node]) -> ApprovalView:
    """For all of them, each with a year of trouble behind it."""
    waiters = []
    for n, node in enumerate(fleet):
        machine, fault = node.machine.id, {"fault": "xid/79", "faults": ("xid/79",), "machine_id": node.machine.id}
        stores.ledger.upsert_incident(view_of(node, id=f"inc-{n}", rung="reboot", **fault))
        ended = {"state": State.ENDED, "end": End.RETURNED, "machine_id": machine, "fault": "xid/119"}
        old = view_of(node, id=f"old-{n}", opened_at=NOW - timedelta(days=2), **ended)
        stores.ledger.upsert_incident(old)
        changed = {"incident": f"inc-{n}", "cluster": node.cluster, "node": node.name}
        waiters.append(asked().waiters[0].model_copy(update=changed))
    return asked(waiters=tuple(waiters), fleet_wide=True)


def test_all_nodes_of_a_fleet_are_known_by_rack_machine_and_past(
    stores: Stores, taker: FactsTaker, fleet: list[Node]
) -> None:
    assert len(fleet) > MOST
    view = question(stores, fleet)
    found = taker.of(view, NOW)
    assert len(found) == len(fleet)
    for waiter, node in zip(view.waiters, fleet, strict=True):
        facts = found[waiter.incident]
        assert (facts.rack, facts.provider) == (node.topology["rack"], node.machine.provider)
        assert (facts.machine_id, facts.fault, facts.rung) == (node.machine.id, "xid/79", "reboot")
        assert facts.past == (f"{NOW - timedelta(days=2):%Y-%m-%d} xid/119: returned",)
    said = plain(approval_card(view, found, Links()))
    assert "?" not in said.partition("Where: ")[2].partition("\n")[0]
    assert f"Jobs hit: {len(fleet) - MOST} nodes not read" in said
    assert f"Last 30 days: {fleet[0].name}: " in said


def test_a_cluster_that_cannot_be_listed_leaves_what_the_ledger_knows(
    stores: Stores, taker: FactsTaker, fleet: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: object) -> list[Node]:
        raise Unreadable("no answer")

    view = question(stores, fleet)
    monkeypatch.setattr("simulation.adapters.SimulatedCluster.nodes", fails)
    found = taker.of(view, NOW)
    last = found[view.waiters[-1].incident]
    assert (last.rack, last.machine_id) == ("", fleet[-1].machine.id)
    assert last.past
