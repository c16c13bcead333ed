"""Xid 74 (NVLink up to Hopper): what the seven registers in the driver's line mean.

Bits are those of the workflow NVLINK_ERR of NVIDIA's Xid catalog (2025-10): the first, third, fourth and fifth
register speak. Where every bit that is set is one to ignore, or says that a threshold of *corrected* errors was
passed, the fault is recorded and the machine goes on; whatever else is set, or isn't listed, leaves the catalogue's
row as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from medevac.events.event import HealthEvent
from medevac.faults.classes import FaultClass
from medevac.model import Model

CODE = "xid/74"
REGISTERS = 7


class Cause(StrEnum):
    """From what tells most to what tells least; a line has that of its first."""

    ECC = "ECC or parity of the link's hardware; more than twice on one link is for NVIDIA"
    CONNECTION = "perhaps hardware: seating and cables of the link, then diagnostics"
    SIGNAL = "a marginal signal: other errors first, else seating and field diagnostics"
    REPEATED = "for NVIDIA or field diagnostics, if seen again and again"
    UNLISTED = "a bit that no table knows"
    RESET = "follows another fault, and wants a reset of the fabric"
    SECONDARY = "follows another fault; alone it is for NVIDIA"
    THRESHOLD = "a threshold of corrected errors was passed; operation goes on"
    IGNORED = "to be ignored"


def _bits(*rows: tuple[Cause, Sequence[int]]) -> dict[int, Cause]:
    return {bit: cause for cause, bits in rows for bit in bits}


BITS: dict[int, dict[int, Cause]] = {
    0: _bits(
        (Cause.IGNORED, (0, 23, 30)),
        (Cause.SECONDARY, (1, 20)),
        (Cause.ECC, (4, 5)),
        (Cause.CONNECTION, (8, 9, 12, 16, 17, 24, 28)),
        (Cause.SIGNAL, (21, 22)),
        (Cause.REPEATED, (27, 29)),
    ),
    2: _bits((Cause.ECC, (0, 1, 2, 6)), (Cause.REPEATED, (13, 16, 17, 18, 19))),
    3: _bits((Cause.SECONDARY, (16, 17)), (Cause.RESET, (18,))),
    4: _bits((Cause.ECC, (18, 19, 21, 22, 24, 25, 27, 28)), (Cause.THRESHOLD, (20, 23, 26, 29))),
}
"""By the register's place in the line, from 0."""


class Decoded(Model):
    cause: Cause
    fault_class: FaultClass | None
    """Where it isn't the row's."""
    first_rung: str | None
    note: str


def decode(registers: Sequence[int]) -> Decoded | None:
    """None where it isn't seven words, or none of them says anything."""
    if len(registers) != REGISTERS:
        return None
    found = {
        BITS.get(place, {}).get(bit, Cause.UNLISTED)
        for place, word in enumerate(registers)
        for bit in range(32)
        if word >> bit & 1
    }
    if not found:
        return None
    cause = next(cause for cause in Cause if cause in found)
    harmless = cause in (Cause.THRESHOLD, Cause.IGNORED)
    return Decoded(
        cause=cause,
        fault_class=FaultClass.RECORD if harmless else None,
        first_rung="wait" if harmless else "reset_gpu" if cause is Cause.RESET else None,
        note=f"NVLink registers: {cause.value}",
    )


def decode_event(event: HealthEvent) -> Decoded | None:
    """From the words that the log parser keeps (`registers`)."""
    words = event.detail.get("registers")
    if event.fault != CODE or not isinstance(words, list):
        return None
    try:
        return decode([int(str(word), 16) & 0xFFFFFFFF for word in words[: REGISTERS + 1]])
    except ValueError:
        return None
