"""Other remediators on a real API server: found by what they leave and what runs, believed when switched off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.kubernetes.client import STRATEGIC, Object
from activities.kubernetes.cluster import KubernetesCluster
from activities.ports import HasOthers, Mark
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator, Switch
from tests.integration.kubernetes.conftest import Connect, Plane
from tests.integration.kubernetes.site import Site, until
from tests.integration.kubernetes.test_audit import calls
from tests.integration.kubernetes.test_workloads import define

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")
APPS = ("apis", "apps", "v1")
FAULT_QUARANTINE = "ghcr.io/nvidia/nvsentinel/fault-quarantine:v1.4.0"
KARPENTER = "public.ecr.aws/karpenter/controller:1.8.0@sha256:0123"


@pytest.fixture
def others(site: Site) -> Iterator[Site]:
    """Whatever a test lets run is gone at its end: the next one's nodes have no such neighbour."""
    yield site
    for plural in ("deployments", "daemonsets"):
        for thing in list(site.admin.list(site.within(plural, api=APPS))):
            path = site.within(plural, thing["metadata"]["name"], api=APPS)
            site.send("DELETE", path)
            until(f"{path} is gone", lambda path=path: site.get(path) is None)  # type: ignore[misc]


def runs(site: Site, name: str, image: str, *, kind: str = "Deployment", **container: Any) -> str:
    """Its pods fit no node, so nothing of it ever starts. The path of the thing."""
    tags = {"app": name}
    body: Object = {
        "selector": {"matchLabels": tags},
        "template": {
            "metadata": {"labels": tags},
            "spec": {
                "nodeSelector": {"test.medevac.dev/none": "such"},
                "containers": [{"name": "main", "image": image, **container}],
            },
        },
    }
    plural = kind.lower() + "s"
    site.create(
        site.within(plural, api=APPS),
        {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body},
    )
    return site.within(plural, name, api=APPS)


def read(cluster: KubernetesCluster, name: str) -> Node:
    node = cluster.node(name)
    assert node is not None
    return node


def found(connect: Connect, name: str, **options: Any) -> dict[str, Remediator]:
    """By an adapter that has asked nothing before."""
    cluster = connect("observe", **options)
    assert isinstance(cluster, HasOthers)
    return {one.name: one for one in cluster.remediators(read(cluster, name))}


# -- on nodes --------------------------------------------------------------------------------------------------

LEFT: dict[str, tuple[Object, Object]] = {
    "NVSentinel": (
        {
            "metadata": {
                "annotations": {"quarantineHealthEvent": "[{}]", "quarantineHealthEventIsCordoned": "True"},
                "labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"},
            },
            "spec": {"unschedulable": True},
        },
        {},
    ),
    "Karpenter": ({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}, {}),
    "medik8s": (
        {"spec": {"taints": [{"key": "medik8s.io/remediation", "value": "x", "effect": "NoSchedule"}]}},
        {},
    ),
    "AKS node auto-repair": (
        {"spec": {"taints": [{"key": "remediator.kubernetes.azure.com/unschedulable", "effect": "NoSchedule"}]}},
        {},
    ),
    "aws-node-termination-handler": (
        {"spec": {"taints": [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]}},
        {},
    ),
    "cluster-autoscaler": (
        {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]}},
        {},
    ),
    "draino": (
        {},
        {"conditions": [{"type": "DrainScheduled", "status": "True", "message": "Drain activity scheduled 2026"}]},
    ),
    "kured": ({"metadata": {"annotations": {"weave.works/kured-reboot-in-progress": "2026-05-01T00:00:00Z"}}}, {}),
}


def test_what_they_leave_on_a_node_says_who_has_it(site: Site, connect: Connect) -> None:
    name, cluster = site.add_node(), connect("observe")
    fresh = site.node(name)
    assert read(cluster, name).foreign_cordon is None
    for who, (thing, status) in LEFT.items():
        if thing:
            site.patch(site.node_path(name), thing, manager="other")
        if status:
            site.patch(site.node_path(name, "status"), {"status": status}, manager="other", kind=STRATEGIC)
        assert read(cluster, name).foreign_cordon == who
        site.patch(site.node_path(name), {
            "metadata": {
                "annotations": dict.fromkeys((thing.get("metadata") or {}).get("annotations", {})),
                "labels": dict.fromkeys((thing.get("metadata") or {}).get("labels", {})),
            },
            "spec": {"taints": fresh["spec"].get("taints"), "unschedulable": None},
        }, manager="other")  # fmt: skip
        if status:
            over = {"type": "DrainScheduled", "status": "True", "message": "Drain activity scheduled | Completed: 2026"}
            site.patch(site.node_path(name, "status"), {"status": {"conditions": [over]}}, kind=STRATEGIC)
        assert read(cluster, name).foreign_cordon is None, f"{who} is done with it"


def test_a_cordon_that_another_counts_as_its_own_outlives_our_mark(site: Site, connect: Connect) -> None:
    name, cluster = site.add_node(), connect()
    cluster.mark(name, MARK)
    site.patch(site.node_path(name), LEFT["NVSentinel"][0], manager="fault-quarantine")
    assert read(cluster, name).foreign_cordon == "NVSentinel"
    cluster.lift(name, "inc-1")
    node = read(cluster, name)
    assert (node.marked_by, node.schedulable, node.foreign_cordon) == (None, False, "NVSentinel")


def test_who_cordoned_it_before_is_kept_in_the_mark(site: Site, connect: Connect) -> None:
    name, cluster = site.add_node(), connect()
    site.patch(site.node_path(name), LEFT["NVSentinel"][0], manager="fault-quarantine")
    cluster.mark(name, MARK)
    site.patch(site.node_path(name), {"metadata": {"annotations": {"quarantineHealthEvent": None}, "labels": {
        "dgxc.nvidia.com/nvsentinel-state": None,
    }}})  # fmt: skip
    assert read(cluster, name).foreign_cordon == "NVSentinel"


# -- in the API ------------------------------------------------------------------------------------------------


def test_programs_are_found_while_they_are_switched_on(others: Site, connect: Connect) -> None:
    name = others.add_node()
    assert found(connect, name) == {}
    quarantine = runs(others, "quarantine", FAULT_QUARANTINE)
    runs(others, "draino", "planetlabs/draino:e0d5277", command=["/draino", "--dry-run"])
    runs(others, "looks-like-karpenter", "example.com/karpenter-dashboards:1")
    there = found(connect, name)
    assert set(there) == {"NVSentinel"}
    assert there["NVSentinel"].switch is Switch.ON
    command = f"kubectl -n {others.run} scale deployment quarantine --replicas=0"
    assert there["NVSentinel"].off == command
    others.patch(quarantine, {"spec": {"replicas": 0}})
    assert found(connect, name) == {}, "its own command switches it off"


def test_a_node_that_is_opted_out_is_nobody_elses(others: Site, connect: Connect) -> None:
    mine = others.add_node(labels={"k8saas.nvidia.com/ManagedByNVSentinel": "false"})
    runs(others, "quarantine", FAULT_QUARANTINE)
    assert found(connect, mine) == {}
    assert set(found(connect, others.add_node())) == {"NVSentinel"}


def test_karpenter_repairs_where_its_gate_is_open_and_only_its_own_nodes(others: Site, connect: Connect) -> None:
    define(others, "NodePool")
    its, other = others.add_node(labels={"karpenter.sh/nodepool": "train"}), others.add_node()
    path = runs(others, "karpenter", KARPENTER, env=[{"name": "FEATURE_GATES", "value": "NodeRepair=false,X=true"}])
    assert found(connect, its) == {}
    gate = {"name": "main", "env": [{"name": "FEATURE_GATES", "value": "X=true,NodeRepair=true"}]}
    others.patch(path, {"spec": {"template": {"spec": {"containers": [gate]}}}}, kind=STRATEGIC)
    assert set(found(connect, its)) == {"Karpenter"}
    assert found(connect, other) == {}


def test_kured_and_its_pause(others: Site, connect: Connect) -> None:
    name = others.add_node()
    tolerant = {"test.medevac.dev/none": None, "test.medevac.dev/run": others.run}
    path = runs(others, "kured", "ghcr.io/kubereboot/kured:1.17.0", kind="DaemonSet")
    others.patch(path, {"spec": {"template": {"spec": {"nodeSelector": tolerant}}}})
    until("its pods are counted", lambda: set(found(connect, name)) == {"kured"})
    paused = {"metadata": {"annotations": {"weave.works/kured-node-lock": '{"nodeID":"manual"}'}}}
    others.patch(path, paused)
    assert found(connect, name) == {}


def test_machine_health_checks_are_found_until_they_are_paused(others: Site, connect: Connect) -> None:
    api, path = define(others, "MachineHealthCheck")
    name = others.add_node()
    others.create(path, {
        "apiVersion": api, "kind": "MachineHealthCheck", "metadata": {"name": "gpu"},
        "spec": {
            "clusterName": "train", "selector": {"matchLabels": {"pool": "gpu"}},
            "checks": {"nodeStartupTimeoutSeconds": 600},
        },
    })  # fmt: skip
    assert found(connect, name) == {}, "the node is no Machine's"
    owned = {"metadata": {"annotations": {"cluster.x-k8s.io/machine": "train-1"}}}
    others.patch(others.node_path(name), owned)
    seen = found(connect, name)["MachineHealthCheck"]
    assert (seen.switch, f"{others.run}/gpu" in seen.seen) == (Switch.ON, True)
    others.patch(f"{path}/gpu", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": "true"}}})
    paused = found(connect, name)["MachineHealthCheck"]
    assert paused.switch is Switch.OUTSIDE, "a management cluster elsewhere may have others"


@pytest.mark.parametrize(
    ("labels", "who", "switch"),
    [
        ({"eks.amazonaws.com/nodegroup": "train"}, "EKS node auto repair", Switch.OUTSIDE),
        ({"eks.amazonaws.com/compute-type": "auto"}, "EKS node auto repair", Switch.ON),
        ({"cloud.google.com/gke-nodepool": "train"}, "GKE node auto-repair", Switch.OUTSIDE),
        ({"kubernetes.azure.com/agentpool": "train"}, "AKS node auto-repair", Switch.ON),
    ],
)
def test_a_clouds_own_repair_is_known_by_whose_node_it_is(
    site: Site, connect: Connect, labels: dict[str, str], who: str, switch: Switch
) -> None:
    there = found(connect, site.add_node(labels=labels))
    assert {one.name: one.switch for one in there.values()} == {who: switch}
    assert there[who].off


# -- rights and cost -------------------------------------------------------------------------------------------


def test_what_the_account_may_not_list_counts_as_there_and_is_named(site: Site, connect: Connect, plane: Plane) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": site.run},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}],
    }  # fmt: skip
    binding = {
        "apiVersion": role["apiVersion"], "kind": "ClusterRoleBinding", "metadata": {"name": site.run},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": site.run},
        "subjects": [{"kind": "ServiceAccount", "name": site.run, "namespace": "medevac"}],
    }  # fmt: skip
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": site.run}}
    site.create("/api/v1/namespaces/medevac/serviceaccounts", account)
    site.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    site.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    name = site.add_node()
    cluster = connect("observe", token=site.token(site.run))
    node = until("its rights are known", lambda: _may_read(cluster, name))
    there = cluster.remediators(node)
    assert {one.switch for one in there} == {Switch.UNREADABLE}
    assert any("deployment" in one.seen for one in there)
    assert "list daemonsets.apps" in cluster.missing_rights()


def _may_read(cluster: KubernetesCluster, name: str) -> Node | None:
    try:
        return cluster.node(name)
    except Exception:
        return None


def test_many_questions_cost_one_look(site: Site, connect: Connect, plane: Plane) -> None:
    from datetime import UTC, datetime

    if plane.started is None:
        pytest.skip("the audit log of a cluster that isn't ours is not ours to read")
    cluster, name, since = connect("observe"), site.add_node(), datetime.now(UTC)
    node, log = read(cluster, name), Path(plane.started.audit_log)
    for _ in range(50):
        cluster.remediators(node)
    until("the audit log has it", lambda: calls(log, "medevac-observe", since)["list", "daemonsets"] >= 1)
    counted = calls(log, "medevac-observe", since)
    assert (counted["list", "deployments"], counted["list", "daemonsets"]) == (1, 1)
    assert {verb for verb, _ in counted} <= {"get", "list"}
