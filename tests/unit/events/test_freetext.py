"""An Xid that prose speaks of, and what is none."""

from __future__ import annotations

import pytest

from medevac.events.freetext import gpu_in, node_after_on, xid_code


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
