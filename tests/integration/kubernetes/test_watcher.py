"""The watcher on a real API server, under the account that it ships with: resumes, lists anew, says each thing once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from activities.kubernetes.client import STRATEGIC, Client, Object
from activities.kubernetes.cluster import KubernetesCluster
from activities.kubernetes.options import Options
from activities.ports import Mark
from medevac.policy.loading import preset
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import DEPLOY, PLACES, Connect, Plane, _apply
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import PATIENCE_S, Site
from tests.unit.worker.conftest import StubEngine
from worker.intake.delivery import Deliveries
from worker.intake.drainer import Drainer
from worker.intake.fold import Fold
from worker.intake.held import UNKNOWN_EVERY
from worker.intake.inventory import Inventory
from worker.intake.leading import Lead
from worker.intake.pipeline import Intake
from worker.intake.watching import Watcher
from worker.speakers import Watcher as WatcherConfig
from worker.stores import Stores, open_stores
from worker.threads import Threads

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")


def manifests() -> list[Object]:
    return list(YAML(typ="safe").load_all(DEPLOY / "watcher.yaml"))


@pytest.fixture
def account(plane: Plane, accounts: None) -> None:
    """The shipped one, exactly as it is."""
    admin = Client(Options(kubeconfig=plane.kubeconfig))
    for thing in manifests():
        if thing["kind"] in PLACES:
            _apply(admin, thing)
    admin.close()


@pytest.fixture
def cluster(account: None, connect: Connect) -> KubernetesCluster:
    return connect("watch")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = open_stores(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    stores.database.upgrade()
    now = datetime.now(UTC)
    stores.policies.activate(stores.policies.propose(preset("default"), "setup", now), None, now)
    yield stores
    stores.database.close()


class Watched:
    """A running watcher, and what reached the workflow engine by it."""

    def __init__(self, cluster: KubernetesCluster, stores: Stores, **config: Any) -> None:
        self.engine, self.threads = StubEngine(), Threads(8)
        # Read anew each time: a node that a test has just added is no stranger.
        inventory = Inventory(lambda: [cluster], max_age_s=0, clock=count(0, 60).__next__)
        intake = Intake(
            inventory=inventory,
            stores=stores,
            engine=self.engine,
            fold=Fold(0.0),
            threads=self.threads,
        )
        one = WatcherConfig(name="nodes", clusters=(cluster.name,), **{"relist_s": 3600, "joining_s": 0, **config})
        # A node may be watched a moment after its Event is heard, which waits in the inbox then.
        drainer = Drainer(
            intake, inventory, stores, self.threads, lambda: datetime.now(UTC) + UNKNOWN_EVERY, every_s=0.1
        )
        lead = Lead("watch/nodes/real", stores.leaders, self.threads)
        self.watcher = Watcher(
            one, cluster, Deliveries(intake, stores.dead_letters, self.threads), stores, self.threads, lead
        )
        self.stop = asyncio.Event()
        self.running = asyncio.create_task(self.watcher.run(self.stop))
        self.draining = asyncio.create_task(drainer.run())

    def said(self, node: str) -> list[tuple[str, str]]:
        heard = (*self.engine.reported, *self.engine.joined)
        ordered = sorted(heard, key=lambda one: one[2].received_at or datetime.now(UTC))
        return [(event.kind, str(event.fault)) for _, name, event in ordered if name == node]

    async def until(self, node: str, *expected: tuple[str, str]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.said(node) != list(expected):  # noqa: ASYNC110  of another server
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        self.stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await self.running
        self.draining.cancel()
        await asyncio.gather(self.draining, return_exceptions=True)
        self.threads.close()


@pytest.fixture
async def watched(cluster: KubernetesCluster, stores: Stores, proxy: Proxy) -> AsyncIterator[Watched]:
    watched = Watched(cluster, stores)
    async with asyncio.timeout(PATIENCE_S):
        while not (proxy.watched("nodes") and proxy.watched("events")):  # noqa: ASYNC110  of another server
            await asyncio.sleep(0.02)
    yield watched
    await watched.close()


def condition(site: Site, node: str, kind: str, status: str, reason: str = "Test", message: str = "by a test") -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    one = {"type": kind, "status": status, "reason": reason, "message": message}
    stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    site.patch(site.node_path(node, "status"), {"status": {"conditions": [{**one, **stamps}]}}, kind=STRATEGIC)


def event(site: Site, node: str, reason: str, message: str = "by a test", **more: Any) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return site.create("/api/v1/namespaces/default/events", {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": f"{node}.{secrets.token_hex(6)}", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node}, "reason": reason, "message": message,
        "type": "Warning", "count": 1, "source": {"component": "kernel-monitor"},
        "firstTimestamp": now, "lastTimestamp": now, **more,
    })  # fmt: skip


def lists(proxy: Proxy, what: str) -> int:
    return sum(f"/{what}?" in c.path and "watch=1" not in c.path and c.method == "GET" for c in proxy.calls)


BAD, GOOD = ("fault", "condition/KernelDeadlock"), ("recovered", "condition/KernelDeadlock")
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus."


async def test_conditions_and_events_are_heard(site: Site, watched: Watched, proxy: Proxy) -> None:
    node = site.add_node()
    condition(site, node, "KernelDeadlock", "True")
    await watched.until(node, BAD)
    condition(site, node, "KernelDeadlock", "True")  # a heartbeat
    event(site, node, "GPUFellOff", XID)
    await watched.until(node, BAD, ("fault", "xid/79"))
    condition(site, node, "KernelDeadlock", "False")
    await watched.until(node, BAD, ("fault", "xid/79"), GOOD)
    asked = [call.path for call in proxy.calls]
    assert all("fieldSelector=involvedObject.kind%3DNode" in path for path in asked if "/events" in path), asked
    assert not any("/pods" in path for path in asked), "a fleet's pods are never read"


async def test_events_of_the_newer_api_are_the_same(site: Site, watched: Watched) -> None:
    node = site.add_node()
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    site.create(path, {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": f"{node}.new", "namespace": "default"},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "type": "Warning",
        "reason": "NvidiaXID79Error", "note": "XID-79", "action": "Monitoring",
        "regarding": {"kind": "Node", "name": node},
        "reportingController": "eks-node-monitoring-agent", "reportingInstance": "agent-1",
    })  # fmt: skip
    await watched.until(node, ("fault", "xid/79"))


async def test_our_own_marks_are_never_heard(site: Site, watched: Watched, connect: Connect) -> None:
    node = site.add_node()
    ours = connect("mark")
    ours.mark(node, MARK)
    ours.lift(node, "inc-1")
    condition(site, node, "KernelDeadlock", "True")
    await watched.until(node, BAD)


async def test_a_broken_connection_loses_nothing_and_lists_nothing(site: Site, watched: Watched, proxy: Proxy) -> None:
    node = site.add_node()
    condition(site, node, "KernelDeadlock", "True")
    await watched.until(node, BAD)
    before = lists(proxy, "events")
    proxy.script("GET", "watch=1", Trouble.REFUSE, times=3)
    proxy.hang_up()
    condition(site, node, "KernelDeadlock", "False")
    event(site, node, "TaskHung")
    async with asyncio.timeout(PATIENCE_S):
        while len(watched.said(node)) < 3:  # noqa: ASYNC110  of another server
            await asyncio.sleep(0.02)
    assert set(watched.said(node)) == {BAD, GOOD, ("fault", "event/TaskHung")}
    assert lists(proxy, "events") == before, "it went on from where it was"


async def test_what_the_server_forgot_is_listed_and_said_once(site: Site, watched: Watched, proxy: Proxy) -> None:
    node = site.add_node()
    event(site, node, "TaskHung")
    await watched.until(node, ("fault", "event/TaskHung"))
    before = lists(proxy, "nodes") + lists(proxy, "events")
    proxy.forget(site.version)
    condition(site, node, "KernelDeadlock", "True")
    await watched.until(node, ("fault", "event/TaskHung"), BAD)
    event(site, node, "OtherTrouble")
    await watched.until(node, ("fault", "event/TaskHung"), BAD, ("fault", "event/OtherTrouble"))
    assert lists(proxy, "nodes") + lists(proxy, "events") >= before + 2


async def test_what_happened_while_nobody_watched_is_heard(
    site: Site, cluster: KubernetesCluster, stores: Stores
) -> None:
    sick, healed = site.add_node(), site.add_node()
    condition(site, healed, "KernelDeadlock", "True")
    first = Watched(cluster, stores)
    event(site, sick, "TaskHung")
    await first.until(healed, BAD)
    await first.until(sick, ("fault", "event/TaskHung"))
    await first.close()
    condition(site, healed, "KernelDeadlock", "False")
    condition(site, sick, "KernelDeadlock", "True")
    event(site, sick, "NewTrouble")
    second = Watched(cluster, stores)
    second.engine.live = first.engine.live
    await second.until(healed, GOOD)
    async with asyncio.timeout(PATIENCE_S):
        while len(second.said(sick)) < 2:  # noqa: ASYNC110  of another server
            await asyncio.sleep(0.02)
    assert set(second.said(sick)) == {BAD, ("fault", "event/NewTrouble")}
    await second.close()


async def test_a_condition_that_holds_is_stated_again_and_again(
    site: Site, cluster: KubernetesCluster, stores: Stores
) -> None:
    node = site.add_node()
    condition(site, node, "KernelDeadlock", "True")
    watched = Watched(cluster, stores, relist_s=1)
    async with asyncio.timeout(PATIENCE_S):
        while len(watched.said(node)) < 3:  # noqa: ASYNC110  of another server
            await asyncio.sleep(0.02)
    assert set(watched.said(node)) == {BAD}
    await watched.close()


def test_the_account_has_what_it_needs_and_no_more(site: Site, cluster: KubernetesCluster, connect: Connect) -> None:
    assert cluster.missing_rights() == []
    other = connect("observe").options.model_copy(update={"rights": "watch"})
    assert KubernetesCluster("real", other).missing_rights() == ["list events", "watch events"]
    for path in ("/api/v1/pods", "/api/v1/secrets", "/apis/coordination.k8s.io/v1/leases"):
        with pytest.raises(Exception, match="forbidden"):
            cluster._client.get(path)
    refused = cluster._client.write(
        "PATCH", site.node_path(site.add_node()), {"metadata": {"labels": {"a": "b"}}}, STRATEGIC
    )
    assert refused.code == 403


def test_the_deployment_is_one_that_an_api_server_takes(site: Site, account: None) -> None:
    (deployment,) = (thing for thing in manifests() if thing["kind"] == "Deployment")
    path = "/apis/apps/v1/namespaces/medevac/deployments"
    answer = site.admin._call(
        "POST", path, {"dryRun": "All", "fieldValidation": "Strict"}, deployment, "application/json", 1
    )
    assert answer.ok, answer.message
    spec = deployment["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "medevac-watch"
    assert spec["containers"][0]["args"] == ["watch"]
