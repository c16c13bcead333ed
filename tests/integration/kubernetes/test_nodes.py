"""What is read of a real Node object, and what its re-creation looks like."""

from __future__ import annotations

import pytest

from activities.kubernetes.nodes import metadata
from activities.ports import Mark, NotSent
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.site import Site

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")


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


def test_pages_of_nodes_are_all_read(site: Site, connect: Connect) -> None:
    names = {site.add_node() for _ in range(5)}
    assert names <= {node.name for node in connect("observe", page=2).nodes()}


def test_an_unreachable_api_server_was_never_sent_to(site: Site, connect: Connect) -> None:
    nobody = "http://127.0.0.1:9"
    with pytest.raises(NotSent) as refusal:
        connect(server=nobody).mark(site.add_node(), MARK)
    assert not refusal.value.final
