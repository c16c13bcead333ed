"""Leases: waiting costs no history and says for whom, and what can't be counted isn't granted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities import signatures as sig
from activities.census import CensusTaker, count
from activities.failures import Bounded
from activities.guarding import LeaseActivities
from activities.holding import Holding
from activities.ports import Mark, Unreadable
from activities.storage.silences import Silences
from medevac.fleet.node import Node
from medevac.incident import Outcome, StepKey
from medevac.policy.silences import Holds, Matcher, Silence
from simulation.layout import TEST, Layout
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Large enough that one rack is a small share of the cluster."""
    built = House(tmp_path, Layout(nodes=64, durations=TEST))
    yield built
    built.close()


@pytest.fixture
def leases(house: House) -> LeaseActivities:
    return LeaseActivities(house.guard, house.census, house.ledger, house.bounded)


def acquire_request(house: House, node: Node, incident: str = INCIDENT) -> sig.AcquireRequest:
    lease = house.lease_request(node, lease_id=incident, incident=incident)
    return sig.AcquireRequest(key=StepKey(incident=incident, step="acquire"), lease=lease)


def one_rack(house: House) -> list[Node]:
    first = house.world.nodes(CLUSTER)[0]
    return [n for n in house.world.nodes(CLUSTER) if n.domains["rack"] == first.domains["rack"]]


def test_a_full_rack_waits_names_its_holders_and_goes_on_after_a_release(house: House, leases: LeaseActivities) -> None:
    nodes = one_rack(house)
    limit = house.policies.active().policy.limits.at_once["rack"].count
    for i, node in enumerate(nodes[:limit]):
        assert run(leases.acquire, acquire_request(house, node, f"inc-{i}")).granted
    last = nodes[limit]
    house.ledger.upsert_incident(house.view(last, id="inc-last"))
    with pytest.raises(ApplicationError) as caught:
        run(leases.acquire, acquire_request(house, last, "inc-last"))
    error = caught.value
    assert (error.type, error.category) == ("Waiting", ApplicationErrorCategory.BENIGN)
    assert error.next_retry_delay is not None
    assert "rack" in str(error)
    assert "inc-0" in str(error) or nodes[0].name in str(error)
    view = house.ledger.incident("inc-last")
    assert view is not None
    assert "rack" in view.waiting_for
    released = run(leases.release, sig.ReleaseRequest(key=StepKey(incident="inc-0", step="release"), lease_id="inc-0"))
    assert released.outcome is Outcome.DONE
    assert run(leases.acquire, acquire_request(house, last, "inc-last"), attempt=2).granted
    view = house.ledger.incident("inc-last")
    assert view is not None
    assert view.waiting_for == ""


def test_what_it_waits_for_is_written_again_where_something_else_was_written_meanwhile(house: House) -> None:
    ahead = timedelta()
    leases = LeaseActivities(
        house.guard, house.census, house.ledger, house.bounded, clock=lambda: datetime.now(UTC) + ahead
    )
    nodes = one_rack(house)
    limit = house.policies.active().policy.limits.at_once["rack"].count
    for i, node in enumerate(nodes[:limit]):
        assert run(leases.acquire, acquire_request(house, node, f"inc-{i}")).granted
    last = nodes[limit]
    for _ in range(2):
        house.ledger.upsert_incident(house.view(last, id="inc-last", waiting_for="a lease"))
        with pytest.raises(ApplicationError):
            run(leases.acquire, acquire_request(house, last, "inc-last"))
        view = house.ledger.incident("inc-last")
        assert view is not None
        assert "rack" in view.waiting_for
        ahead += timedelta(seconds=20)


def test_the_same_lease_twice_is_one(house: House, leases: LeaseActivities) -> None:
    node = house.busy_node()
    first = run(leases.acquire, acquire_request(house, node)).granted
    again = run(leases.acquire, acquire_request(house, node), attempt=2).granted
    assert first is not None
    assert again is not None
    assert first.epoch == again.epoch


def test_releasing_what_was_never_held_is_done(house: House, leases: LeaseActivities) -> None:
    request = sig.ReleaseRequest(key=StepKey(incident=INCIDENT, step="release"), lease_id="never")
    assert run(leases.release, request).outcome is Outcome.DONE


def test_nothing_is_granted_in_a_cluster_that_cannot_be_counted(
    house: House, leases: LeaseActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise Unreadable("api server is gone")

    node = house.busy_node()
    monkeypatch.setattr(house.registry.cluster(CLUSTER), "nodes", unreadable)
    with pytest.raises(ApplicationError, match="can't be read"):
        run(leases.acquire, acquire_request(house, node))


def test_nothing_is_granted_by_a_guard_that_is_down(
    house: House, leases: LeaseActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise Unreadable("disk is full")

    monkeypatch.setattr(house.guard, "acquire", down)
    with pytest.raises(ApplicationError, match="the guard can't be read") as caught:
        run(leases.acquire, acquire_request(house, house.busy_node()))
    assert not caught.value.non_retryable


def test_others_out_of_service_and_free_spares_are_counted(house: House) -> None:
    policy = house.policies.active().policy
    cluster = house.registry.cluster(CLUSTER)
    before = count(cluster, policy)
    spare = next(n for n in house.world.nodes(CLUSTER) if "medevac.dev/spare" in n.labels)
    pool = f"pool:{spare.domains['pool']}"
    assert before.spares[pool] > 0
    cluster.mark(spare.name, Mark(incident=INCIDENT, code="x", faults=(), reason=""))
    other = next(
        n
        for n in house.world.nodes(CLUSTER)
        if "medevac.dev/spare" not in n.labels and n.domains["pool"] == spare.domains["pool"]
    )
    house.world.cordon(other.name, "ada", CLUSTER)
    after = count(cluster, policy)
    assert after.spares[pool] == before.spares[pool] - 1
    assert f"{CLUSTER}/{other.name}" in after.out[pool]
    assert f"{CLUSTER}/{spare.name}" in after.marked[pool]


def test_many_who_ask_at_once_share_one_reading(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = 0
    nodes = house.registry.cluster(CLUSTER).nodes

    def counted() -> object:
        nonlocal readings
        readings += 1
        return nodes()

    monkeypatch.setattr(house.registry.cluster(CLUSTER), "nodes", counted)
    bounded = Bounded(4)
    taker = CensusTaker(house.registry, house.policies, bounded, fresh_s=60)
    askers = Bounded(8)
    futures = [askers.start(taker.take, CLUSTER, 5.0) for _ in range(8)]
    assert len({id(f.result(10)) for f in futures}) == 1
    assert readings == 1
    bounded.close()
    askers.close()


def test_a_window_or_silence_that_began_while_one_waited_in_line_holds_it(house: House) -> None:
    node, now = house.busy_node(), datetime.now(UTC)
    silences = Silences(house.db)
    silences.add(
        Silence(
            id="s-1", by="otto", reason="we debug it", at=now - timedelta(hours=1), until=now + timedelta(hours=1),
            matcher=Matcher(node=node.name), holds=(Holds.DESTRUCTIVE,),
        )
    )  # fmt: skip
    holding = Holding(house.policies, silences)
    leases = LeaseActivities(house.guard, house.census, house.ledger, house.bounded, holding=holding)
    with pytest.raises(ApplicationError) as caught:
        run(leases.acquire, acquire_request(house, node))
    assert "we debug it" in str(caught.value)
    assert not house.guard.leases()
    silences.end("s-1", "otto", now)
    assert run(leases.acquire, acquire_request(house, node), attempt=2).granted


@pytest.mark.parametrize("asks", [False, True], ids=["holds", "asks"])
def test_a_window_of_a_pool_holds_what_was_planned_before_it_began(house: House, asks: bool) -> None:
    """Also one that asks: a plan from before it has asked nobody."""
    node = house.busy_node()
    window = {"cron": "0 0 * * *", "lasts": "1d", "zone": "UTC", "pools": [node.pool], "asks": asks, "reason": "work"}
    active = house.policies.active().policy.model_dump(mode="json")
    house.activate(json.dumps(active | {"windows": {"office": window}}))
    holding = Holding(house.policies, Silences(house.db))
    leases = LeaseActivities(house.guard, house.census, house.ledger, house.bounded, holding=holding)
    request = acquire_request(house, node)
    # As a workflow names it: the domain, within its cluster.
    lease = request.lease.model_copy(update={"pool": node.domains["pool"]})
    with pytest.raises(ApplicationError, match="window `office`"):
        run(leases.acquire, request.model_copy(update={"lease": lease}))
    agreed = lease.model_copy(update={"person_asked": True})
    if asks:
        assert run(leases.acquire, request.model_copy(update={"lease": agreed})).granted
    else:
        with pytest.raises(ApplicationError, match="window `office`"):
            run(leases.acquire, request.model_copy(update={"lease": agreed}))
