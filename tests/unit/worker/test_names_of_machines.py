"""Names by which senders call machines, against nodes as their clouds make them: one node, or said to be unclear."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.kubernetes import nodes
from activities.kubernetes.options import Options
from medevac.events.event import HealthEvent
from medevac.events.registry import read
from medevac.fleet.inventory import Inventory as Facts
from medevac.fleet.inventory import InventoryError, Record
from medevac.fleet.names import host_and_domain, names_in
from medevac.fleet.node import Machine, Node
from tests.unit.events.payloads import UUID, an_alert, payload, webhook
from tests.unit.events.test_other_clouds import OCID, push, scheduled
from tests.unit.worker.test_inventory_and_fold import Listed, inventory, node
from worker.intake.inventory import Found, NotFound

SCALE_SET = "azure:///subscriptions/S-1/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachineScaleSets"
VM = "azure:///subscriptions/s-1/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/myvm"


def kubernetes(name: str, provider_id: str, *addresses: tuple[str, str], cluster: str = "a", **metadata: Any) -> Node:
    thing = {
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "spec": {"providerID": provider_id},
        "status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]},
    }
    return nodes.read(thing, cluster, Options())


def aks(number: int, suffix: str, group: str = "aks-gpu-12345678-vmss") -> Node:
    name = f"{group}{suffix}"
    return kubernetes(
        name, f"{SCALE_SET}/{group}/virtualMachines/{number}", ("InternalIP", f"10.224.0.{number}"), ("Hostname", name)
    )


GKE_ID = "7290437561937461234"
EKS = "ip-10-0-3-7.us-west-2.compute.internal"
FLEET = [
    kubernetes(EKS, "aws:///us-west-2a/i-0abc", ("InternalIP", "10.0.3.7"), ("InternalDNS", EKS), ("Hostname", EKS)),
    kubernetes(
        "ip-10-0-3-70.us-west-2.compute.internal", "aws:///us-west-2a/i-0abcd", ("InternalIP", "10.0.3.70"),
    ),
    aks(3, "000003"),
    aks(36, "000010"),
    aks(3, "000003", "aks-cpu-12345678-vmss"),
    kubernetes("worker-azure", VM, ("InternalIP", "10.1.0.4")),
    kubernetes(
        "gke-a3-pool-0001", "gce://proj/us-central1-a/gke-a3-pool-0001", ("InternalIP", "10.128.0.9"),
        ("InternalDNS", "gke-a3-pool-0001.us-central1-a.c.proj.internal"),
        annotations={"container.googleapis.com/instance_id": GKE_ID},
    ),
    kubernetes("10.0.10.5", OCID, ("InternalIP", "10.0.10.5"), labels={"hostname": "oke-gpu-n1"}),
    kubernetes("gd9f3a1", "coreweave://ORD1/gd9f3a1-serial", ("InternalIP", "10.176.1.2")),
    kubernetes("nb-gpu", "nebius://computeinstance-e00abc", ("InternalIP", "10.2.0.4")),
    kubernetes("lin-gpu", "linode://48151623", ("InternalIP", "192.168.130.2")),
    kubernetes("metal", "metal3://ns/host-7/0f0f-uid", ("InternalIP", "10.3.0.4")),
    kubernetes("gpu-1.example.internal", "", ("InternalIP", "10.4.0.1"), ("Hostname", "gpu-1.example.internal")),
    kubernetes("gpu-10", "", ("InternalIP", "10.4.0.10"), ("InternalIP", "fd00::a"), ("Hostname", "gpu-10")),
    kubernetes("gpu-11", "", ("InternalIP", "10.4.0.11"), annotations={"medevac.dev/gpus": f"{UUID}, 1320420012345"}),
]  # fmt: skip
AKS = "aks-gpu-12345678-vmss000003"


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        # Prometheus, dcgm-exporter, kubelet
        (EKS, EKS), ("ip-10-0-3-7", EKS), ("10.0.3.7:9400", EKS), ("10.0.3.7", EKS), (AKS, AKS), (AKS.upper(), AKS),
        ("gke-a3-pool-0001", "gke-a3-pool-0001"), ("10.0.10.5:9100", "10.0.10.5"), ("gd9f3a1", "gd9f3a1"),
        ("[fd00::a]:9400", "gpu-10"), ("fd00:0:0::000a", "gpu-10"), ("uid-gpu-10", "gpu-10"),
        # AWS: EventBridge, Health, CloudWatch; an id is no prefix of another
        ("i-0abc", EKS), ("aws:///us-west-2a/i-0abc", EKS), ("i-0abcd", "ip-10-0-3-70.us-west-2.compute.internal"),
        # Azure: scheduled events and Event Grid, resource ids in any case, the computer's name
        ("aks-gpu-12345678-vmss_3", AKS), ("AKS-GPU-12345678-VMSS_36", "aks-gpu-12345678-vmss000010"),
        ("aks-cpu-12345678-vmss_3", "aks-cpu-12345678-vmss000003"), ("myvm", "worker-azure"),
        (VM.removeprefix("azure://").upper(), "worker-azure"), (VM, "worker-azure"),
        (f"{SCALE_SET}/aks-gpu-12345678-vmss/virtualMachines/3", AKS),
        # Google: logs and metrics by number, agents with the zone's domain
        (GKE_ID, "gke-a3-pool-0001"), ("gke-a3-pool-0001.us-central1-a.c.proj.internal", "gke-a3-pool-0001"),
        # Oracle, neoclouds, Metal3
        (OCID, "10.0.10.5"), ("oke-gpu-n1", "10.0.10.5"), ("gd9f3a1-serial", "gd9f3a1"),
        ("computeinstance-e00abc", "nb-gpu"), ("48151623", "lin-gpu"), ("0f0f-uid", "metal"),
        # Slurm, syslog, node_exporter: with and without domain
        ("gpu-1", "gpu-1.example.internal"), ("GPU-1.example.internal:9100", "gpu-1.example.internal"),
        ("gpu-10", "gpu-10"), ("gpu-10.example.internal", "gpu-10"), (UUID, "gpu-11"), ("1320420012345", "gpu-11"),
    ],
)  # fmt: skip
def test_each_form_means_one_node(subject: str, name: str) -> None:
    found = inventory(Listed("a", FLEET)).resolve(subject, None, ["a"])
    assert isinstance(found, Found), found
    assert found.node.name == name


@pytest.mark.parametrize(
    "subject",
    ["aks-gpu-12345678-vmss_4", "aks-gpu-12345678-vmss", "3", "36", "gpu", "gpu-100", "gpu-1.elsewhere.internal",
     "gpu-10.elsewhere.internal", "ip-10-0-3-7.eu-west-1.compute.internal", "fd00::a:10", "fd00::", "10.0.3", "10",
     "10.0.3.7.example.internal", "oke", "ocid1", "7290437561937461", "host", "gke-a3-pool-0001.c.other.internal",
     VM.replace("/rg/", "/another-rg/"), f"{SCALE_SET}/another-vmss/virtualMachines/3",
     "gce://another/us-central1-a/gke-a3-pool-0001", "1320420012345:9400:1"],
)  # fmt: skip
def test_no_form_of_another_machine_means_a_node(subject: str) -> None:
    found = inventory(Listed("a", FLEET)).resolve(subject, None, ["a"])
    assert isinstance(found, NotFound), found
    assert not found.ambiguous


def test_what_fits_two_nodes_is_none() -> None:
    twice = [
        node("gpu-1.a.internal"), node("gpu-1.b.internal"), node("x", aliases=("10.0.3.7",)),
        node("y", aliases=("10.0.3.7",)),
    ]  # fmt: skip
    for subject in ("gpu-1", "10.0.3.7:9400"):
        found = inventory(Listed("a", twice)).resolve(subject, None, ["a"])
        assert isinstance(found, NotFound)
        assert len(found.ambiguous) == 2
    short = Listed("b", [node("gpu-1", "b")])
    both = inventory(Listed("a", twice[:1]), short).resolve("gpu-1", None, ["a", "b"])
    assert isinstance(both, NotFound), "a host's own name for itself has no domain"
    assert both.ambiguous == ("a/gpu-1.a.internal", "b/gpu-1")


def test_a_private_address_is_one_machines_within_one_cluster_alone() -> None:
    """Another cluster's pod, an exporter say, may have the address of a node here."""
    here = node("gpu-1", aliases=("10.0.3.7", "8.8.4.4"))
    two = inventory(Listed("a", [here]), Listed("b", [node("gpu-2", "b", gpu_ids=(UUID,))]))
    for look in (two.resolve, two.cached):
        assert not isinstance(look("10.0.3.7:9400", None, ["a", "b"]), Found)
        for found in (
            look("10.0.3.7:9400", "a", ["a", "b"]), look("10.0.3.7", None, ["a"]), look("8.8.4.4", None, ["a", "b"])
        ):  # fmt: skip
            assert isinstance(found, Found)
            assert found.node.name == "gpu-1"
    unclear = two.resolve("10.0.3.7", None, ["a", "b"])
    assert isinstance(unclear, NotFound)
    assert "no cluster is named; it would be: a/gpu-1" in unclear.text
    against = two.resolve("10.0.3.7", None, ["a", "b"], [UUID])
    assert isinstance(against, NotFound), "the node of that address doesn't hold that GPU"
    assert against.ambiguous == ("a/gpu-1", "b/gpu-2")
    for address in ("10.244.1.9", None):
        by_gpu = two.resolve(address, None, ["a", "b"], [UUID])
        assert isinstance(by_gpu, Found)
        assert by_gpu.node.name == "gpu-2"


@pytest.mark.parametrize("said", ["ip-10-0-0-1", "ip-10-0-0-1.ec2.internal", "IP-10-0-0-1:9400", "10.0.0.1:9400"])
def test_a_host_name_that_is_made_of_an_address_is_no_surer_than_the_address(said: str) -> None:
    name = "ip-10-0-0-1.ec2.internal"
    here = kubernetes(name, "aws:///us-east-1a/i-0abc", ("InternalIP", "10.0.0.1"), ("Hostname", name))
    two = inventory(Listed("a", [here]), Listed("b", [node("gpu-2", "b", gpu_ids=(UUID,))]))
    unclear = two.resolve(said, None, ["a", "b"])
    assert isinstance(unclear, NotFound)
    assert f"no cluster is named; it would be: a/{name}" in unclear.text
    assert not isinstance(two.cached(said, None, ["a", "b"]), Found)
    for found in (two.resolve(said, "a", ["a", "b"]), two.resolve(said, None, ["a"])):
        assert isinstance(found, Found), "its cluster is known"
        assert found.node.name == name
    by_id = two.resolve("i-0abc", None, ["a", "b"])
    assert isinstance(by_id, Found), "an instance's id is one machine's alone"


# -- GPUs ------------------------------------------------------------------------------------------------------


def test_a_gpu_means_the_one_node_that_holds_it() -> None:
    one = Record(origins=("f:1",), cluster="a", node="gpu-1", gpus=(UUID, "1320420012345"))
    fleet = [
        Facts([one], ["a"]).enrich(node("gpu-1")),
        node("gpu-2", gpu_ids=("GPU-5",)),
        node("gpu-3", gpu_ids=("GPU-5",)),
    ]
    known = inventory(Listed("a", fleet))
    for gpus in ([UUID], [UUID.upper()], ["1320420012345"], [UUID, "GPU-unheard-of"]):
        found = known.resolve(None, None, ["a"], gpus)
        assert isinstance(found, Found), gpus
        assert found.node.name == "gpu-1"
    twice = known.resolve(None, None, ["a"], ["GPU-5"])
    assert isinstance(twice, NotFound)
    assert twice.ambiguous == ("a/gpu-2", "a/gpu-3")
    nobody = known.resolve(None, None, ["a"], ["GPU-6"])
    assert isinstance(nobody, NotFound)
    assert "names no machine, and no node is known to hold GPU GPU-6" in nobody.text
    moved = known.resolve("gpu-2", None, ["a"], [UUID])
    assert isinstance(moved, Found)
    assert moved.node.name == "gpu-2", "a name is the sender's own word"
    assert isinstance(known.resolve("gpu-9", None, ["a"], [UUID]), NotFound), "a new node may hold a GPU that moved"
    assert isinstance(known.resolve(None, None, ["a"], ["gpu-1"]), NotFound), "a node's name is no GPU's"


# -- senders ---------------------------------------------------------------------------------------------------


def the(source: str, body: Any) -> HealthEvent:
    (event,) = read(source, payload(body)).events
    return event


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (the("azure", {
            "DocumentIncarnation": 1, "Events": [scheduled() | {"Resources": ["aks-gpu-12345678-vmss_3"]}],
        }), AKS),
        (the("gcp", push({
            "logName": "projects/p/logs/serialconsole.googleapis.com%2Fserial_port_1_output", "insertId": "1",
            "timestamp": "2026-03-01T08:00:00Z",
            "resource": {"type": "gce_instance", "labels": {"instance_id": GKE_ID}},
            "textPayload": "[   12.3] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        })), "gke-a3-pool-0001"),
        (the("alertmanager", webhook(an_alert(labels={"node": None, "pod": None}))), "gpu-11"),
        (the("generic", {"fault": "xid/79", "entities": [f"gpu-uuid:{UUID}"]}), "gpu-11"),
    ],
)  # fmt: skip
def test_what_a_sender_delivers_finds_its_node(event: HealthEvent, name: str) -> None:
    found = inventory(Listed("a", FLEET)).resolve(event.subject, event.cluster, ["a"], event.gpu_ids)
    assert isinstance(found, Found), found
    assert found.node.name == name
    assert event.actionable


def test_a_heartbeat_is_about_no_machine_whatever_its_rule_ran_on() -> None:
    assert the("alertmanager", webhook(an_alert(labels={"alertname": "Watchdog"}))).gpu_ids == ()


# -- parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider_id", "names"),
    [
        (f"{SCALE_SET}/pool/virtualMachines/35", ("pool_35", "pool00000z")),
        (f"{SCALE_SET}/pool/virtualMachines/pool_1a2b", ("pool_1a2b",)),
        (VM, ("myvm",)),
        ("kind://docker/kind/2", ()),
        ("", ()),
        ("aws:///z/i-1", ("i-1",)),
    ],
)
def test_names_within_a_provider_id(provider_id: str, names: tuple[str, ...]) -> None:
    assert names_in(provider_id) == names


@pytest.mark.parametrize("name", ["gpu-1", "10.0.3.7", "fd00::1", OCID, "node.1", "h100.west", "a..internal", ""])
def test_no_domain_is_seen_where_there_is_none(name: str) -> None:
    assert host_and_domain(name) is None


def test_rows_of_scale_sets_and_resource_groups_are_each_their_own_machines() -> None:
    rows = [
        Record(origins=(f"f:{n}",), provider_id=id, rack=f"r{n}")
        for n, id in enumerate(
            [
                f"{SCALE_SET}/one/virtualMachines/3",
                f"{SCALE_SET}/two/virtualMachines/3",
                VM,
                VM.replace("/rg/", "/rg2/"),
            ]
        )
    ]
    facts = Facts(rows, ["a"])
    for n, row in enumerate(rows):
        machine = Machine(provider="azure", id=nodes.machine_id(row.provider_id))
        assert facts.enrich(Node(cluster="a", name=f"n{n}", machine=machine)).topology == {"rack": f"r{n}"}
    with pytest.raises(InventoryError):
        Facts([rows[2], rows[2].model_copy(update={"rack": "r9", "provider_id": VM.upper()})], ["a"])


def test_other_names_of_the_inventory_bring_a_domain_to_their_cluster() -> None:
    facts = Facts([Record(origins=("f:1",), cluster="a", node="gpu-1", names=("gpu-1.dc.example", "h7"))], ["a"])
    known = inventory(Listed("a", [facts.enrich(node("gpu-1")), node("gpu-2")]))
    for subject, name in (("h7", "gpu-1"), ("gpu-1.dc.example", "gpu-1"), ("gpu-2.dc.example:9100", "gpu-2")):
        found = known.resolve(subject, None, ["a"])
        assert isinstance(found, Found), subject
        assert found.node.name == name
    assert isinstance(known.resolve("gpu-2.dc2.example", None, ["a"]), NotFound)


def test_the_generic_form_still_names_a_node_by_its_gpu() -> None:
    event = the("generic", json.dumps({"node": UUID, "fault": "xid/79"}))
    found = inventory(Listed("a", FLEET)).resolve(event.subject, None, ["a"])
    assert isinstance(found, Found)
