"""Xid 74: the registers decide what it was, and only what NVIDIA says to ignore is lowered."""

from __future__ import annotations

import pytest

from medevac.events.normal import read
from medevac.events.parsing import Payload
from medevac.faults.classes import FaultClass
from medevac.faults.nvlink4 import BITS, Cause, decode


def registers(place: int = 0, *bits: int) -> list[int]:
    words = [0] * 7
    words[place] = sum(1 << bit for bit in bits)
    return words


@pytest.mark.parametrize(
    ("words", "cause", "lowered"),
    [
        (registers(0, 0, 23, 30), Cause.IGNORED, True),
        (registers(4, 20, 29), Cause.THRESHOLD, True),
        (registers(0, 16), Cause.CONNECTION, False),
        (registers(0, 0, 4), Cause.ECC, False),
        (registers(4, 18, 20), Cause.ECC, False),
        (registers(2, 6), Cause.ECC, False),
        (registers(2, 13), Cause.REPEATED, False),
        (registers(0, 21), Cause.SIGNAL, False),
        (registers(3, 18), Cause.RESET, False),
        (registers(3, 16), Cause.SECONDARY, False),
        (registers(0, 2), Cause.UNLISTED, False),
        (registers(1, 0), Cause.UNLISTED, False),
    ],
)
def test_the_worst_bit_says_what_it_was(words: list[int], cause: Cause, lowered: bool) -> None:
    decoded = decode(words)
    assert decoded is not None
    assert (decoded.cause, decoded.fault_class) == (cause, FaultClass.RECORD if lowered else None)


@pytest.mark.parametrize("words", [[0] * 7, [1] * 6, [1] * 8, []])
def test_what_says_nothing_changes_nothing(words: list[int]) -> None:
    assert decode(words) is None


def test_no_bit_is_listed_twice_and_all_are_bits() -> None:
    assert all(0 <= bit < 32 for bits in BITS.values() for bit in bits)
    assert sum(len(bits) for bits in BITS.values()) == 18 + 9 + 3 + 12


@pytest.mark.parametrize(
    ("words", "fault_class"),
    [("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", FaultClass.RECORD),
     ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", FaultClass.DEGRADED),
     ("0x1, 0x0", FaultClass.DEGRADED)],
)  # fmt: skip
def test_the_drivers_line_is_judged_by_them(words: str, fault_class: FaultClass) -> None:
    line = f"[ 1.5] NVRM: Xid (PCI:0000:3b:00): 74, pid=1, name=x, NVLink: fatal error detected on link 6({words})\n"
    (event,) = read("kmsg", Payload(line.encode())).events
    assert (event.fault, event.fault_class) == ("xid/74", fault_class)
    assert "nvlink:6" in event.entities
