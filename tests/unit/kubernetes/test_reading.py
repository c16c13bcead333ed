"""Node and Pod objects as the domain reads them; no API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.kubernetes import marking, nodes, pods
from activities.kubernetes.options import Options
from activities.ports import Mark
from activities.providers.cluster_managed.cluster_api import ClusterApi
from activities.providers.cluster_managed.karpenter import Karpenter
from medevac.fleet.node import Node

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="gone")
MINE = {"manager": "medevac", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
ALICES = {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}


def thing(**parts: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7", **parts.pop("metadata", {})},
        "spec": parts.pop("spec", {}),
        "status": parts.pop("status", {}),
    }


def read(**parts: Any) -> Node:
    return nodes.read(thing(**parts), "c", Options())


def patched(node: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7386), as the API server applies it."""
    result = dict(node)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = patched(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


# -- machines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider_id", "provider", "machine"),
    [
        ("aws:///us-east-1a/i-0abc", "aws", "i-0abc"),
        ("gce://project/us-central1-a/gke-1", "gce", "project/us-central1-a/gke-1"),
        (
            "azure:///subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/v",
            "azure",
            "subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/v",
        ),
        ("metal3://ns/host/uid", "metal3", "ns/host/uid"),
    ],
)
def test_the_machine_is_named_as_its_provider_names_it(provider_id: str, provider: str, machine: str) -> None:
    node = read(spec={"providerID": provider_id})
    assert (node.machine.provider, node.machine.id) == (provider, machine)
    assert provider_id in node.aliases


def test_bare_metal_is_known_by_its_system_uuid() -> None:
    node = nodes.read(thing(status={"nodeInfo": {"systemUUID": "4C4C"}}), "c", Options(provider="dc1"))
    assert (node.machine.provider, node.machine.id, node.machine.virtual) == ("dc1", "4C4C", False)


def test_a_metal_instance_of_a_cloud_is_bare_metal() -> None:
    tags = {"node.kubernetes.io/instance-type": "p5.48xlarge-metal"}
    assert not read(metadata={"labels": tags}, spec={"providerID": "aws:///a/i-1"}).machine.virtual
    assert read(spec={"providerID": "aws:///a/i-1"}).machine.virtual


def test_a_dead_device_plugin_does_not_make_a_node_without_gpus() -> None:
    """Nodes without GPUs are never disrupted: a plugin that lost its GPUs must not hide them so."""
    status = {"capacity": {"nvidia.com/gpu": "0"}, "allocatable": {"nvidia.com/gpu": "0"}}
    assert read(metadata={"labels": {"nvidia.com/gpu.count": "8"}}, status=status).gpus == 8
    assert read(status={"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}}).gpus == 8


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"ownerReferences": [{"kind": "NodeClaim", "name": "default-x7"}]}, "NodeClaim/default-x7"),
        ({"annotations": {"cluster.x-k8s.io/machine": "m-3"}}, "Machine/m-3"),
        ({}, ""),
    ],
)
def test_whose_machine_it_is(metadata: dict[str, Any], owner: str) -> None:
    assert read(metadata=metadata).owner == owner


@pytest.mark.parametrize(
    ("label", "owner"),
    [
        ({"eks.amazonaws.com/nodegroup": "train"}, "NodeGroup/train"),
        ({"alpha.eksctl.io/nodegroup-name": "own"}, "NodeGroup/own"),
        ({"cloud.google.com/gke-nodepool": "a3"}, "NodeGroup/a3"),
        ({"kubernetes.azure.com/agentpool": "h100"}, "NodeGroup/h100"),
        ({"team": "a"}, ""),
    ],
)
def test_a_clouds_node_group_owns_its_nodes_and_is_no_object_of_the_cluster(label: dict[str, str], owner: str) -> None:
    node = read(metadata={"labels": label})
    assert node.owner == owner
    api: Any = None
    assert not Karpenter(api).owns(node), "there is no NodeClaim to delete"
    assert not ClusterApi(api, "delete", "").owns(node), "nor a Machine"


def test_an_object_that_keeps_the_machine_goes_before_its_node_group() -> None:
    group = {"eks.amazonaws.com/nodegroup": "train"}
    claim = [{"kind": "NodeClaim", "name": "x7", "controller": True}]
    assert read(metadata={"labels": group, "ownerReferences": claim}).owner == "NodeClaim/x7"
    machine = {"cluster.x-k8s.io/machine": "m-3"}
    assert read(metadata={"labels": group, "annotations": machine}).owner == "Machine/m-3"


def test_roles_are_labels_of_kubernetes_and_of_the_configuration() -> None:
    tags = {"node-role.kubernetes.io/master": "", "disk": "ceph"}
    options = Options(roles={"storage": {"disk": "ceph"}, "etcd": {}})
    assert nodes.read(thing(metadata={"labels": tags}), "c", options).roles == ("control-plane", "storage")


def test_a_node_that_says_nothing_is_not_ready() -> None:
    node = read()
    assert not node.ready
    assert node.pool is None
    assert node.machine.boot_id is None


# -- cordons ---------------------------------------------------------------------------------------------------


def test_who_cordoned_it_is_whoever_set_it() -> None:
    assert read(metadata={"managedFields": [ALICES]}, spec={"unschedulable": True}).foreign_cordon == "kubectl-cordon"
    assert read(spec={"unschedulable": True}).foreign_cordon == "unknown"
    assert read(metadata={"managedFields": [ALICES]}).foreign_cordon is None


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"incident": 3}', '{"code": "x"}'])
def test_a_mark_that_cannot_be_read_is_not_ours(text: str) -> None:
    node = read(metadata={"annotations": {"medevac.dev/mark": text}}, spec={"unschedulable": True})
    assert (node.marked_by, node.foreign_cordon) == (None, "unknown")


def test_a_mark_of_a_later_version_is_still_ours() -> None:
    text = json.dumps({"incident": "inc-1", "code": "xid-79", "novelty": 1})
    assert read(metadata={"annotations": {"medevac.dev/mark": text}}).marked_by == "inc-1"


def test_marking_and_lifting_leave_the_node_as_it_was() -> None:
    theirs = {"key": "a", "effect": "NoExecute"}
    before = thing(metadata={"labels": {"x": "y"}, "annotations": {}}, spec={"taints": [theirs]})
    node = patched(before, marking.marking(before, None, MARK))
    assert node["spec"]["taints"][0] == theirs
    mark = nodes.marked(node)
    assert mark is not None
    assert patched(node, marking.lifting(node, mark)) == before


def test_a_cordon_from_before_survives_the_lift() -> None:
    before = thing(metadata={"managedFields": [ALICES]}, spec={"unschedulable": True})
    node = patched(before, marking.marking(before, None, MARK))
    mark = nodes.marked(node)
    assert mark is not None
    assert mark.before.cordoned_by == "kubectl-cordon"
    assert patched(node, marking.lifting(node, mark))["spec"]["unschedulable"]


def test_a_cordon_set_anew_by_another_survives_the_lift() -> None:
    before = thing(metadata={"managedFields": [MINE]})
    node = patched(before, marking.marking(before, None, MARK))
    mark = nodes.marked(node)
    assert mark is not None
    node["metadata"]["managedFields"] = [ALICES]
    assert nodes.foreign_cordon(node) == "kubectl-cordon"
    assert patched(node, marking.lifting(node, mark))["spec"]["unschedulable"]


# -- pods ------------------------------------------------------------------------------------------------------


def pod(**spec: Any) -> dict[str, Any]:
    owner = spec.pop("owner", None)
    meta = {"uid": "p1", "namespace": "team", "name": "p", "labels": spec.pop("labels", {})}
    return {"metadata": {**meta, "ownerReferences": [owner] if owner else []}, "spec": spec}


PINNED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        }
    }
}


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, False),
        ({"key": "medevac.dev/unhealthy", "operator": "Exists"}, False),  # the cordon's own taint isn't tolerated
        ({"key": "medevac.dev/unhealthy", "value": "xid-79"}, False),  # tolerates this fault, not the next one
    ],
)
def test_a_daemon_stays_only_if_it_would_come_back(toleration: dict[str, str], stays: bool) -> None:
    owner = {"kind": "DaemonSet", "name": "d", "controller": True}
    found = pods.read(pod(owner=owner, tolerations=[toleration]), "w", {}, Options())
    assert (found.tier, found.tolerates_mark) == ("daemon", stays)


def test_what_is_pinned_as_daemons_are_is_a_daemon_whatever_it_is_called() -> None:
    owner = {"kind": "NodeAgentSet", "name": "d", "controller": True}
    tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]
    assert pods.daemon_like(pod(owner=owner, affinity=PINNED, tolerations=tolerations))
    # A job that is pinned to a node, or that tolerates everything, is still a job.
    assert not pods.daemon_like(pod(owner=owner, affinity=PINNED))
    assert not pods.daemon_like(pod(owner=owner, tolerations=[{"operator": "Exists"}]))


@pytest.mark.parametrize(
    ("selector", "guards"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_budgets_select_as_the_api_server_does(selector: dict[str, Any] | None, guards: bool) -> None:
    budget = {"metadata": {"name": "b", "namespace": "team"}, "spec": {"selector": selector}}
    found = pods.read(pod(labels={"app": "a"}), "w", {"team": [budget]}, Options())
    assert found.budget == ("team/b" if guards else None)


def test_storage_and_monitoring_leave_last() -> None:
    assert pods.read(pod(), "w", {}, Options(last=("team",))).tier == "storage"
