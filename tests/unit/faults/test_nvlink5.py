"""The NVLink 5 decode: bit patterns of both drivers' layouts, and what class they make."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medevac.faults.classes import FaultClass
from medevac.faults.nvlink5 import CODES, decode, rules
from tests.unit.faults.said import said


def word(pattern: str, fill: str = "0") -> int:
    return int(pattern.replace("-", fill), 2)


def test_each_rule_is_found_by_a_word_of_its_own_pattern() -> None:
    for rule in rules():
        status = int(rule.status.split("/")[0], 16) if rule.status else 0
        for pattern, major in ((rule.v1, 570), (rule.v2, 575)):
            found = decode(rule.xid, word(pattern), status, major)
            assert found is not None, rule
            if rule.action == "RESET_GPU":
                assert (found.fault_class, found.first_rung) == (FaultClass.DEGRADED, "reset_gpu"), rule


def test_bits_that_do_not_matter_do_not_matter() -> None:
    rule = next(r for r in rules() if r.unit == "RLW_RXPIPE" and r.status == "0x00000008")
    assert decode(145, word(rule.v1, "0"), 8, 570) == decode(145, word(rule.v1, "1"), 8 | 0, 570)


def test_a_benign_event_is_recorded_and_a_promoted_one_needs_a_reset() -> None:
    rule = next(r for r in rules() if r.promoted_v1)
    status = int(rule.status, 16)
    plain, promoted = decode(145, word(rule.v1), status, 570), decode(145, word(rule.promoted_v1), status, 570)
    assert plain is not None
    assert plain.fault_class is FaultClass.RECORD
    assert promoted is not None
    assert promoted.action == "RESET_GPU"


def test_the_layout_is_that_of_the_driver() -> None:
    rule = next(r for r in rules() if r.unit == "RLW_REMAP" and r.action == "RESET_GPU")
    status = int(rule.status, 16)
    assert decode(145, word(rule.v1), status, 570) is not None
    assert decode(145, word(rule.v1), status, 580) is None
    assert decode(145, word(rule.v1), status) is not None  # unknown driver: both are tried


def test_of_several_status_bits_the_worst_decides() -> None:
    ignore, reset = (
        next(int(r.status, 16) for r in rules() if r.unit == "SAW_MVB" and r.action == a)
        for a in ("IGNORE", "RESET_GPU")
    )
    pattern = next(r.v2 for r in rules() if r.unit == "SAW_MVB")
    found = decode(144, word(pattern), ignore | reset, 580)
    assert found is not None
    assert found.action == "RESET_GPU"


@pytest.mark.parametrize(
    ("detail", "fault_class"),
    [
        ({"intr_info": "0x0409a0c2", "error_status": "0x00000008", "driver_word": "nonfatal"}, FaultClass.RECORD),
        ({}, FaultClass.UNKNOWN),
        ({"driver_word": "fatal"}, FaultClass.DEGRADED),
        ({"intr_info": "0xffffffff", "error_status": "0xffffffff"}, FaultClass.UNKNOWN),
        ({"intr_info": "rubbish", "error_status": None}, FaultClass.UNKNOWN),
        # The line says Fatal where the table says ignore: the worse holds.
        ({"intr_info": "0x0409a0c2", "error_status": "0x00000008", "driver_word": "fatal"}, FaultClass.DEGRADED),
    ],
)
def test_the_class_of_xid_145(detail: dict[str, object], fault_class: FaultClass) -> None:
    assert said("xid/145", detail=detail).fault_class is fault_class


@given(st.integers(0, 200), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.none() | st.integers(0, 999))
@settings(derandomize=True, deadline=None)
def test_no_words_are_too_odd(xid: int, intr: int, status: int, major: int | None) -> None:
    found = decode(xid, intr, status, major)
    assert found is None or xid in CODES
