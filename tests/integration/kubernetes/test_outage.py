"""The API server is gone for half a minute in the middle of everything: nothing is lost, nothing is done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.exceptions import ApplicationError

from activities.kubernetes.nodes import notes
from activities.ports import MachineState, NotSent, Unclear, Unreadable
from medevac.incident import Outcome, StepResult
from medevac.policy.plan import Drain
from tests.integration.kubernetes.conftest import Connect, Plane
from tests.integration.kubernetes.gangs import Gang
from tests.integration.kubernetes.house import INCIDENT, MARK
from tests.integration.kubernetes.kubelet import dies
from tests.integration.kubernetes.power import PowerHouse
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until, written
from tests.integration.kubernetes.test_dead_node import FROZEN, OUT_OF_SERVICE, taints
from tests.unit.activities.house import run

T = TypeVar("T")
AWAY_S = 30.0
LONG_S = 900.0
"""A busy machine may take minutes until its API server is back."""


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[PowerHouse]:
    built = PowerHouse(tmp_path, connect())
    yield built
    built.close()


def as_temporal_would(step: Callable[[int], StepResult]) -> StepResult:
    """One attempt after the other, as long as they wait."""
    for attempt in range(1, 200):
        try:
            return step(attempt)
        except ApplicationError as waits:
            if waits.next_retry_delay is None:
                raise
            time.sleep(waits.next_retry_delay.total_seconds())
    raise AssertionError("no end after 200 attempts")


def until_it_works(call: Callable[[], T]) -> T:
    deadline = time.monotonic() + LONG_S
    while True:
        try:
            return call()
        except (NotSent, Unclear, Unreadable):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(2_000)
def test_half_a_minute_without_an_api_server(
    site: Site, house: PowerHouse, plane: Plane, proxy: Proxy, allowed: Callable[[str], None]
) -> None:
    if plane.started is None:
        pytest.skip("the API server of a cluster that isn't ours is not stopped")
    allowed("requeue")
    server = plane.started
    marks = [site.add_node() for _ in range(4)]
    gang_nodes = [site.add_node(), site.add_node()]
    dead = site.add_node()
    site.pod("lost", dead, annotations=FROZEN)
    full = site.add_node()
    for n in range(4):
        site.pod(f"train-{n}", full)
    gang = Gang(site, "JobSet", gang_nodes, pod={"held": True})
    stopping, emptying = house.marked(gang_nodes[0]), house.marked(full, "inc-2")
    house.cluster.mark(dead, MARK)
    off = house.read(dead)
    dies(site, dead)

    # In the middle: two marks are made, one of four pods is evicted, the gang is stopped and not started again, and the
    # word that the dead node's machine is off stands.
    for name in marks[:2]:
        house.cluster.mark(name, MARK)
    house.cluster.evict(house.cluster.pods(full)[0], 5)
    (work,) = house.cluster.workloads(gang_nodes[0])
    house.cluster.requeue(work, gang_nodes[0], INCIDENT)
    gang.control()
    house.cluster.free(off, gone=False)
    until("the word stands", lambda: OUT_OF_SERVICE in taints(site, dead))
    server.halt("kube-apiserver")
    began = time.monotonic()

    results: dict[str, Any] = {}

    def drain(name: str, node: Any, drain_s: float) -> None:
        request = house.request(node, Drain.SOON, drain_s, 5)
        results[name] = as_temporal_would(
            lambda attempt: run(
                house.drains.evacuate, request, attempt=attempt, ago_s=time.monotonic() - began,
                start_to_close_s=1_200, whole_s=1_200,
            )
        )  # fmt: skip

    def free() -> None:
        house.power.now = MachineState(exists=True, power="off")
        until("nothing is held", lambda: until_it_works(lambda: house.cluster.free(off, gone=False)) == [], 600)
        results["free"] = True

    def mark() -> None:
        results["mark"] = [until_it_works(lambda name=name: house.cluster.mark(name, MARK)) for name in marks]  # type: ignore[misc]

    flows = [threading.Thread(target=flow) for flow in (
        lambda: drain("gang", stopping, 900), lambda: drain("full", emptying, 900), free, mark,
    )]  # fmt: skip
    for flow in flows:
        flow.start()
    until("it was away for half a minute", lambda: time.monotonic() - began >= AWAY_S)
    assert not results, "nothing can have ended"
    server.restart("kube-apiserver")
    until("the held pods of the gang end", lambda: _release(site, gang), 600)
    for flow in flows:
        flow.join(900)

    assert results["mark"] == ["already", "already", "done", "done"]
    assert {written(site.node(name))["incident"] for name in marks} == {INCIDENT}
    assert results["gang"].outcome in (Outcome.DONE, Outcome.ALREADY), results["gang"]
    assert not gang.is_stopped()
    assert notes(site.get(gang.path) or {})["medevac.dev/requeued-by"] == INCIDENT
    assert house.read(gang_nodes[0]).requeuing == ()
    thrown = [
        call for call in proxy.calls if call.method == "PATCH" and "/jobsets/" in call.path and call.status == 200
    ]
    assert len(thrown) == 2, "stopped once, started once"
    assert results["full"].outcome is Outcome.DONE, results["full"]
    accepted = [call.path for call in proxy.calls if "/eviction" in call.path and call.status == 201]
    assert len(accepted) == len(set(accepted)) == 4
    assert house.read(full).marked_by == "inc-2"
    assert results["free"]
    assert OUT_OF_SERVICE not in taints(site, dead)
    assert site.pods() == []


def _release(site: Site, gang: Gang) -> bool:
    site.release()
    return not gang.pods()
