"""Node conditions by their polarity, Events about nodes, watch frames, through the senders that share them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.event import Kind, Statement
from medevac.events.parsing import ParseError
from medevac.events.registry import detect
from tests.unit.events.payloads import forms, only, parsed, payload

BOOT = "3f1d2c4b-0000-4000-8000-00000000beef"


def condition(kind: str, status: str, reason: str = "Because", message: str = "it is so") -> dict[str, Any]:
    times = {"lastHeartbeatTime": "2026-03-01T08:10:00Z", "lastTransitionTime": "2026-03-01T08:00:00Z"}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def node(*conditions: dict[str, Any], name: str = "worker-3") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": "u-1"},
        "spec": {"providerID": "aws:///eu-north-1a/i-0aa11bb22"},
        "status": {"conditions": list(conditions), "nodeInfo": {"bootID": BOOT}},
    }


def event(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "worker-3.1", "uid": "e-1"},
        "involvedObject": {"kind": "Node", "name": "worker-3", "uid": "worker-3"},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": "2026-03-01T08:00:00Z",
        "lastTimestamp": "2026-03-01T08:00:00Z",
        **more,
    }


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("Ready", "True", "False"),
        ("Ready", "True", "Unknown"),
        ("MemoryPressure", "False", "True"),
        ("NetworkUnavailable", "False", "True"),
        ("KernelDeadlock", "False", "True"),
        ("ReadonlyFilesystem", "False", "True"),
        ("KubeletUnhealthy", "False", "True"),
        ("KernelReady", "True", "False"),
        ("GPUHealthy", "True", "False"),
        ("SomebodysOwnProblem", "False", "True"),
    ],
)
def test_polarity_is_by_the_conditions_type(kind: str, good: str, bad: str) -> None:
    fault = only("k8s_node", node(condition(kind, bad)))
    assert (fault["kind"], fault["fault"], fault["subject"]) == ("fault", f"condition/{kind}", "worker-3")
    assert fault["starts_at"] == "2026-03-01T08:00:00Z"
    clear = parsed("k8s_node", node(condition(kind, good))).events[0]
    assert clear.kind is Kind.RECOVERED
    assert clear.dedupe_key == parsed("k8s_node", node(condition(kind, bad))).events[0].dedupe_key
    assert clear.statement is Statement.LEVEL
    assert clear.boot_id == BOOT


def test_a_lost_kubelet_is_said_once() -> None:
    lost = [condition(k, "Unknown", "NodeStatusUnknown") for k in ("Ready", "MemoryPressure", "DiskPressure")]
    assert [e["fault"] for e in forms("k8s_node", node(*lost))] == ["condition/Ready"]


def test_an_eks_reason_says_which_xid_and_a_dcgm_error_is_the_monitors() -> None:
    bad = condition("AcceleratedHardwareReady", "False", "NvidiaXID95Error", "detected XID-95")
    found = only("eks_nma", node(bad, condition("KernelReady", "True")) | {"status": {"conditions": [bad]}})
    assert (found["fault"], found["severity"]) == ("xid/95", "critical")
    dcgm = only("eks_nma", node(condition("AcceleratedHardwareReady", "False", "DCGMError", "hostengine down")))
    assert dcgm["fault"] == "eks/DCGMError"


@pytest.mark.parametrize(
    ("reason", "message", "codes"),
    [
        ("DCGMHealthCode101", "XID error 79 detected; DCGM health code 101", {"eks/DCGMHealthCode101", "xid/79"}),
        ("NvidiaXID79Error", "XID error 79 detected; DCGM health code 101", {"eks/DCGMHealthCode101", "xid/79"}),
        ("NvidiaXID13Warning", "detected XID-13; detected XID-79; detected XID-74", {"xid/13", "xid/74", "xid/79"}),
        ("DCGMFieldError230", "DCGM field error 230; XID error 119", {"eks/DCGMFieldError230", "xid/119"}),
        ("DCGMHealthCode101", "DCGM health code 101", {"eks/DCGMHealthCode101"}),
    ],
)
def test_an_eks_condition_says_every_fault_of_its_message(reason: str, message: str, codes: set[str]) -> None:
    bad = node(condition("AcceleratedHardwareReady", "False", reason, message))
    found = parsed("eks_nma", bad).events
    assert {e.fault for e in found} == codes
    assert len({(e.id, e.dedupe_key) for e in found}) == len(codes), "told apart"
    good = parsed("eks_nma", node(condition("AcceleratedHardwareReady", "True"))).events[0]
    assert {e.series or e.dedupe_key for e in found} == {good.dedupe_key}, "its recovery takes back all of them"
    happened = event(reason, message, type="Warning", source={"component": "eks-node-monitoring-agent"})
    assert {e.fault for e in parsed("eks_nma", happened).events} == codes


def test_the_gravest_of_a_condition_stands_last_so_that_its_coming_is_a_change() -> None:
    bad = node(condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "XID error 79; XID error 13"))
    assert [e.fault for e in parsed("eks_nma", bad).events] == ["xid/13", "xid/79"]


def test_events_about_nodes_are_edges_and_others_say_nothing() -> None:
    hung = only("npd", event("TaskHung", "task x:1 blocked for more than 120 seconds."))
    assert (hung["kind"], hung["fault"], hung["severity"]) == ("fault", "event/TaskHung", "warning")
    assert forms("npd", event("Evicted", involvedObject={"kind": "Pod", "name": "p"})) == []
    assert only("k8s_node", event("Whatever", type="Normal"))["kind"] == "info"
    new = event("NvidiaXID31Warning", type="Warning", reportingController="eks-node-monitoring-agent")
    new |= {"regarding": new.pop("involvedObject"), "note": "detected unknown XID-31", "kind": "Event"}
    assert only("eks_nma", new)["fault"] == "xid/31"


def test_an_event_that_goes_on_for_long_speaks_of_its_latest_occurrence() -> None:
    brief = event("TaskHung", count=3, lastTimestamp="2026-03-01T08:05:00Z")
    assert only("npd", brief)["starts_at"] == "2026-03-01T08:00:00Z"
    assert only("npd", brief | {"lastTimestamp": "2026-03-01T11:00:00Z"})["starts_at"] == "2026-03-01T11:00:00Z"


def test_a_kernel_line_in_an_event_names_xid_and_pci() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    found = only("npd", event("GPUFellOff", line))
    assert (found["fault"], found["entities"]) == ("xid/79", ["pci:0000:3b:00"])


def test_a_reboot_is_lifecycle_and_carries_the_new_boot() -> None:
    found = parsed("k8s_node", event("Rebooted", f"Node worker-3 has been rebooted, boot id: {BOOT}")).events[0]
    assert (found.kind, found.boot_id) == (Kind.LIFECYCLE, BOOT)


def test_frames_lists_and_streams() -> None:
    bad = node(condition("Ready", "False"))
    assert only("k8s_node", {"type": "MODIFIED", "object": bad})["fault"] == "condition/Ready"
    assert only("k8s_node", {"type": "DELETED", "object": bad})["fault"] == "node/deleted"
    assert forms("k8s_node", {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {}}}) == []
    assert forms("k8s_node", {"type": "ERROR", "object": {"kind": "Status", "code": 410}}) == []
    items = [
        {k: v for k, v in node(condition("Ready", "False"), name=f"n-{i}").items() if k != "kind"} for i in range(3)
    ]
    assert [e["subject"] for e in forms("k8s_node", {"kind": "NodeList", "items": items})] == ["n-0", "n-1", "n-2"]
    stream = "\n".join(
        json.dumps({"type": "ADDED", "object": n}) for n in (bad, node(condition("KernelDeadlock", "True")))
    )
    assert [e["fault"] for e in forms("k8s_node", stream)] == ["condition/Ready", "condition/KernelDeadlock"]


def test_one_bad_node_in_a_list_is_refused_alone() -> None:
    nodes = [node(condition("Ready", "False"), name="../etc"), node(condition("Ready", "False"))]
    found = parsed("k8s_node", {"kind": "List", "items": nodes})
    assert [e.subject for e in found.events] == ["worker-3"]
    assert len(found.refused) == 1
    assert "../etc" in str(found.refused[0])


def test_our_own_conditions_and_events_are_echoes() -> None:
    own = parsed("k8s_node", node(condition("medevac.dev/Incident", "True"))).events[0]
    assert own.marker
    assert own.kind is Kind.INFO
    said = parsed("k8s_node", event("NodeMarked", source={"component": "medevac"})).events[0]
    assert said.marker


def test_planned_maintenance_of_aks_is_planned() -> None:
    assert only("k8s_node", node(condition("VMEventScheduled", "True")))["kind"] == "planned"


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("npd", node(condition("KernelDeadlock", "True"))),
        ("npd", event("OOMKilling", source={"component": "kernel-monitor"})),
        ("eks_nma", node(condition("StorageReady", "True"))),
        ("eks_nma", event("X", source={"component": "eks-node-monitoring-agent"})),
        ("k8s_node", node(condition("Ready", "True"))),
        ("k8s_node", event("X", source={"component": "kubelet"})),
    ],
)
def test_each_is_recognised(source: str, body: Any) -> None:
    assert source == detect(payload(body)).SOURCE


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ParseError, match="Pod"):
        parsed("k8s_node", {"kind": "Pod", "metadata": {"name": "x"}})
    with pytest.raises(ParseError, match="kind"):
        parsed("npd", {"a": 1})


def test_a_condition_or_event_about_xids_says_which_in_its_message() -> None:
    found = only("npd", node(condition("GPUXIDError", "True", "XIDErrorsArePresent", "XID 79 in the kernel's log")))
    assert (found["fault"], found["class"]) == ("xid/79", "critical")
    over = only("npd", node(condition("GPUXIDError", "False", "NoXIDErrors", "fine")))
    assert (over["kind"], over["dedupe_key"]) == ("recovered", found["dedupe_key"])
    assert only("npd", event("XidError", "Xid 79."))["fault"] == "xid/79"
    assert only("npd", node(condition("FanBroken", "True", "Hot", "as after Xid 79")))["fault"] == "condition/FanBroken"


def test_newer_events_of_the_detector_are_known_for_its() -> None:
    newer = event("TaskHung", reportingComponent="kernel-monitor", source={}, firstTimestamp=None, lastTimestamp=None)
    assert detect(payload({**newer, "eventTime": "2026-03-01T08:00:00.000000Z"})).SOURCE == "npd"
