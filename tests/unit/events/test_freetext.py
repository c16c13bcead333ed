"""An Xid that prose speaks of, and what is none."""

from __future__ import annotations

import pytest

from medevac.events.freetext import xid_code


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
    ],
)
def test_the_one_code_that_a_text_names(text: str, code: str | None) -> None:
    assert xid_code(text) == code
