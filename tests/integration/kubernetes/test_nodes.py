"""What is read of a real Node object, and what its re-creation looks like."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities import signatures as sig
from activities.census import CensusTaker
from activities.kubernetes.nodes import metadata
from activities.planning import PlanActivities
from activities.ports import Mark, NotSent, Unreadable
from medevac.events.event import HealthEvent, Kind
from medevac.faults import catalogue
from medevac.faults.faultset import FaultSet
from medevac.policy.plan import Action
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import RealHouse
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site
from tests.unit.activities.house import run

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")


ACTS = """
version: 1
name: test
pools: {train: {clusters: [real], select: {nodes: [NODE]}, mode: approve, coexist: own}}
rules: [{name: critical, match: {classes: [critical]}, do: repair, drain: soon}]
"""


def test_a_node_is_read_with_its_machine_and_place(site: Site, connect: Connect) -> None:
    name = site.add_node(labels={
        "eks.amazonaws.com/nodegroup": "train", "topology.kubernetes.io/region": "eu-west-1",
        "topology.k8s.aws/network-node-layer-3": "nn-1", "example.com/rack": "r12",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "node-role.kubernetes.io/worker": "",
    })  # fmt: skip
    thing = site.node(name)
    node = connect("observe", topology={"rack": ["example.com/rack"]}, providers={"aws": "aws-eu"}).node(name)
    assert node is not None
    assert node.identity.uid == metadata(thing)["uid"]
    assert node.machine.provider == "aws-eu"
    assert node.machine.id == thing["spec"]["providerID"].rpartition("/")[2]
    assert node.machine.boot_id == thing["status"]["nodeInfo"]["bootID"]
    assert (node.pool, node.gpus, node.sku) == ("train", 8, "NVIDIA-H100-80GB-HBM3")
    assert node.roles == ("worker",)
    assert node.topology == {"rack": "r12", "image": "Test OS 1", "region": "eu-west-1", "switch": "nn-1"}
    assert thing["spec"]["providerID"] in node.aliases


def test_a_node_made_anew_under_its_name_is_another_one(site: Site, connect: Connect) -> None:
    name = site.add_node()
    cluster = connect()
    cluster.mark(name, MARK)
    old = cluster.node(name)
    site.must(site.send("DELETE", site.node_path(name)))
    site.add_node(name)
    new = cluster.node(name)
    assert old is not None
    assert new is not None
    assert new.identity.uid != old.identity.uid
    assert new.identity.machine_id != old.identity.machine_id
    assert new.marked_by is None
    assert cluster.lift(name, "inc-1") == "already"


def test_nodes_that_run_medevac_are_known_by_their_pods_and_asked_for_once(
    site: Site, connect: Connect, proxy: Proxy
) -> None:
    ours, free = site.add_node(), site.add_node()
    site.pod("gateway", ours, labels={"app.kubernetes.io/part-of": "medevac"})
    site.set_of("DaemonSet", "agent")
    site.running(3)
    cluster = connect("observe", own_pods=["app.kubernetes.io/part-of=medevac", "app=agent"])
    assert [cluster.runs_medevac(name) for name in (ours, free, ours)] == [True, False, True]
    listings = [call.path for call in proxy.calls if call.path.startswith("/api/v1/pods?")]
    assert len(listings) == 2, "one for each selector, whoever asks"
    assert all("labelSelector=" in path for path in listings)


def test_what_medevac_stands_on_is_known_by_its_usual_labels(site: Site, connect: Connect) -> None:
    name = "app.kubernetes.io/name"
    server, ledger, foreign, free = (site.add_node() for _ in range(4))
    etcd = {"component": "etcd", "tier": "control-plane"}
    site.pod("etcd-one", free, labels={"component": "etcd"})
    cluster = connect("observe")
    assert cluster.own_unknown() == ("Temporal", "PostgreSQL")
    site.pod("db-0", ledger, labels={name: "postgresql"})
    assert not connect("observe").runs_medevac(ledger), "somebody's"
    site.pod("temporal-history-0", server, labels={name: "temporal"})
    site.pod("etcd-two", foreign, labels=etcd)
    site.running(4)
    cluster = connect("observe")
    assert [cluster.runs_medevac(node) for node in (server, ledger, foreign, free)] == [True, True, True, False]
    assert cluster.own_unknown() == ()


def test_the_operator_names_what_else_medevac_lives_on(site: Site, connect: Connect) -> None:
    name = site.add_node()
    site.pod("ledger", name, labels={"app": "postgres"})
    assert connect("observe", own_pods=["app=postgres", "app=temporal"]).runs_medevac(name)
    with pytest.raises(Unreadable):
        connect("observe", own_pods=["not a selector!"]).runs_medevac(name)


def test_a_node_that_runs_medevac_is_only_observed(site: Site, connect: Connect, tmp_path: Path) -> None:
    name = site.add_node(labels={"nvidia.com/gpu.present": "true"})
    house = RealHouse(tmp_path, connect("evict"))
    try:
        plans = PlanActivities(
            house.registry,
            house.ledger,
            house.policies,
            CensusTaker(house.registry, house.policies, house.bounded),
            house.bounded,
        )
        now = datetime.now(UTC)
        house.policies.activate(house.policies.propose(ACTS.replace("NODE", name), "ada", now), "bob", now)
        event = HealthEvent(source="kmsg", id="e", dedupe_key="k", kind=Kind.FAULT, fault="xid/79")
        open_now = FaultSet().observe(catalogue.classify(event), datetime.now(UTC)).faults
        request = sig.PlanRequest(
            incident="inc-1", n=1, cluster="real", node=name, faults=open_now, opened_at=datetime.now(UTC)
        )
        assert "medevac: never disrupted" not in " ".join(run(plans.plan, request).reasons)
        site.pod("worker", name, labels={"app.kubernetes.io/part-of": "medevac"})
        house.cluster._own._until = float("-inf")
        plan = run(plans.plan, request)
        assert plan.action is Action.OBSERVE
        assert f"{name} is medevac: never disrupted" in " ".join(plan.reasons)
    finally:
        house.close()


def test_pages_of_nodes_are_all_read(site: Site, connect: Connect) -> None:
    names = {site.add_node() for _ in range(5)}
    assert names <= {node.name for node in connect("observe", page=2).nodes()}


def test_an_unreachable_api_server_was_never_sent_to(site: Site, connect: Connect) -> None:
    nobody = "http://127.0.0.1:9"
    with pytest.raises(NotSent) as refusal:
        connect(server=nobody).mark(site.add_node(), MARK)
    assert not refusal.value.final
