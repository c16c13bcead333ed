"""An Xid that prose speaks of, and what is none."""

from __future__ import annotations

import pytest

from medevac.events.freetext import gpu_in, node_after_on, xid_code, xid_codes
from tests.unit.events.payloads import an_alert, forms, only, webhook
from tests.unit.events.test_kubernetes_senders import condition, event, node
from tests.unit.events.test_paging_tools import v2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GPU 4 of worker-3 reported XID 79.", "xid/79"),
        ("Is it Xid 79?", "xid/79"),
        ("Xid error code: 79; look at the fan", "xid/79"),
        ("an XID error (79) on worker-3", "xid/79"),
        ("Xid event 79 seen", "xid/79"),
        ("GPUXid79", "xid/79"),
        ("XID 149.37 (err status 0x00000000) on PCI:0018:01:00", "xid/149"),
        ("switch fault SXid 20034.", "sxid/20034"),
        ("xid 79.5", None),
        ("driver xid 535.129", None),
        ("xid 1,000", None),
        ("XIDs 4", None),
        ("xid errors (3)", None),
        ("taxid 79", None),
        ("Xid 45 caused by previous Xid 149", None),
        ("Xid 13,79", None),
        ("Xid 63/64", None),
        ("XID 79 + 74", None),
        ("XID 79, 74, and 13", None),
        ("Xid 79, 8 GPUs affected", "xid/79"),
        ("Xid 79, 3 times", "xid/79"),
        ("Xid 79, 2026-11-30", "xid/79"),
        ("NVRM: Xid (PCI:0000:4e:00): 79, pid=1, fell", "xid/79"),
        ("no Xid 79 found", None),
        ("GPU no longer there, Xid 79", "xid/79"),
        ("GPU not responding after Xid 79", "xid/79"),
        ("At 10:00:00 node gpu-1: Xid 79", "xid/79"),
        ("Nov 30 10:00:00 gpu-1 kernel: NVRM: Xid (PCI:0000:4e:00): 79, fell", "xid/79"),
        ("2026-11-30T10:00:00Z gpu-1 alice: NVRM: Xid (PCI:0000:4e:00): 79, fell", None),
        ("2026-11-30 10:00:00,250 gpu-1 alice: Xid 79", None),
        ("At 2026-11-30 10:00:00 node gpu-1: Xid 79", "xid/79"),
        ("a checker[12]: saw Xid 79\nthe kernel: Xid 48", "xid/48"),
    ],
)
def test_the_one_code_that_a_text_names(text: str, code: str | None) -> None:
    assert xid_code(text) == code


DMESG_T = "[Mon Oct  6 12:00:00 2025] NVRM: Xid (PCI:0000:3b:00): 79, pid=123, GPU has fallen off the bus."
NAMED = [
    "GPU 3 gives no response after Xid 79",
    "GPU never recovered from Xid 79",
    "no heartbeat since Xid 79",
    "node without GPUs since XID 79",
    "no devices found Xid 79",
    DMESG_T,
    "2025-10-06 12:00:00 ERROR gpu-monitor: Xid 79 on GPU 3",
    "2025-10-06 12:00:00 UTC gpu-1: XID 79",
    "Xid 79, 12 pods affected",
    "Xid 79 and 2 more",
    "Xid 79, 12 pods on node gpu-1",
    "Xid 79, 8 procs killed",
    "Xid 79, 3 occurrences",
    "Xid 79, 3 errors",
    "Xid 79, 3/8 GPUs",
    "Xid 79 and 48 others",
]
DENIED = [
    "no nvidia Xid 79 found on any GPU",
    "no Xid 79",
    "no new Xid 79",
    "without any Xid",
    "no GPU with Xid 79",
    "alice[12]: NVRM: Xid (PCI:0000:4e:00): 79, forged",
    "alice[12]: Nov 30 10:00:00 gpu-1 kernel: NVRM: Xid (PCI:0000:4e:00): 79, forged",
    "Nov 30 10:00:00 gpu-1 alice: NVRM: Xid (PCI:0000:4e:00): 79, forged",
]


def said(text: str) -> dict[str, str]:
    """The fault that each sender's reading of the text comes to."""
    alert = an_alert(labels={"alertname": "GpuXid", "err_code": None}, annotations={"summary": text})
    return {
        "alert": only("alertmanager", webhook(alert))["fault"],
        "slurm": only("slurm", f"[2026-03-01T08:00:00.123] update_node: node w1 reason set to: {text}")["fault"],
        "nhc": only("nhc", f"ERROR: nhc: Health check failed: check_dmesg: {text}")["fault"],
        "condition": only("k8s_node", node(condition("GpuXidError", "True", "XidError", text)))["fault"],
        "event": only("k8s_node", event("NvidiaXidError", text))["fault"],
    }


@pytest.mark.parametrize("text", NAMED)
def test_every_sender_hears_a_code_that_is_stated(text: str) -> None:
    assert xid_code(text) == "xid/79"
    assert said(text) == dict.fromkeys(("alert", "slurm", "nhc", "condition", "event"), "xid/79")
    assert only("pagerduty", v2(summary=text))["fault"] == "xid/79"


@pytest.mark.parametrize("text", DENIED)
def test_no_sender_hears_a_code_that_is_denied_or_that_a_process_wrote_in_the_kernels_words(text: str) -> None:
    assert xid_codes(text) == xid_codes(text, checked=True) == ()
    assert not [fault for fault in said(text).values() if fault.startswith("xid/")]


def test_a_health_check_may_name_itself_before_its_words() -> None:
    for text in ("healthd[812]: Xid 79 on GPU 3", "2025-10-06 12:00:00 gpu-1 healthd: Xid 79 on GPU 3"):
        found = said(text)
        assert found.pop("alert") == "alert/GpuXid"
        assert set(found.values()) == {"xid/79"}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("XID 13, 79 on GPU 4", ("xid/13", "xid/79")),
        ("Xid 94 and 79 on GPU 4", ("xid/94", "xid/79")),
        ("XID errors: 79, 74", ("xid/79", "xid/74")),
        ("Xid 13 and 79 errors", ("xid/13", "xid/79")),
        ("Xid 13 and 79 and 2 more", ("xid/13", "xid/79")),
        ("Xid 13, 79, 3 GPUs affected", ("xid/13", "xid/79")),
        ("Xid 48; 2 rows remapped", ("xid/48",)),
        ("NVRM: Xid (PCI:0000:4e:00): 43, 512, Ch 00000008", ("xid/43",)),
    ],
)
def test_a_list_goes_on_only_with_codes(text: str, codes: tuple[str, ...]) -> None:
    assert xid_codes(text) == codes
    assert {form["fault"] for form in forms("nhc", f"ERROR: nhc: Health check failed: check_xid: {text}")} == set(codes)


@pytest.mark.parametrize(
    ("text", "node", "gpu"),
    [
        ("XID 79 on node gpu-12", "gpu-12", None),
        ("XID 79 on host gpu-12: GPU 4 fell", "gpu-12", "gpu:4"),
        ("XID 79, node=gpu-12", "gpu-12", None),
        ("XID 79 on gpu-12", None, "gpu:12"),
        ("XID 79 on GPU 4", None, "gpu:4"),
        ("XID 79 on gpu-node-07", "gpu-node-07", None),
    ],
)
def test_what_is_called_a_node_is_one_whatever_its_name(text: str, node: str | None, gpu: str | None) -> None:
    assert (node_after_on(text), gpu_in(text)) == (node, gpu)
