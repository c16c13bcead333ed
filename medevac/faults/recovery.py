"""Xid 154 and its kin: the driver's own recommendation, read from its label.

It may choose the first rung and raise a class; it never lowers one, never clears, and is not heard where a
remap has failed (`HARDWARE`), which no reset or reboot mends.
"""

from __future__ import annotations

from medevac.faults.classes import Covers, FaultClass
from medevac.model import Model

HARDWARE = frozenset({"xid/64", "row-remap/failure", "dcgm/DCGM_FR_ROW_REMAP_FAILURE", "dcgm/80"})


class Recommendation(Model):
    label: str
    number: int
    """Of the driver's enumeration, to check the label by."""
    rung: str
    fault_class: FaultClass
    covers: tuple[Covers, ...]

    @property
    def note(self) -> str:
        return f"the driver recommends: {self.label}"


_ALL = (Covers.COMPUTE,)  # the Xid that it is about brings its own


def _row(label: str, number: int, rung: str, covers: tuple[Covers, ...] = _ALL) -> Recommendation:
    return Recommendation(label=label, number=number, rung=rung, fault_class=FaultClass.DEGRADED, covers=covers)


_NONE = Recommendation(label="None", number=0, rung="wait", fault_class=FaultClass.RECORD, covers=())
_KNOWN = (
    _NONE,
    _row("GPU Reset Required", 1, "reset_gpu"),
    _row("Node Reboot Required", 2, "reboot"),
    _row("Drain P2P", 3, "escalate", (Covers.LINK,)),
    _row("Drain and Reset", 4, "reset_gpu"),
    _row("Recover IMEX Domain", 5, "escalate", (Covers.LINK,)),
    _row("Bus Reset", 6, "reset_gpu"),
    _row("System Reboot", 7, "reboot"),
    # What later drivers call the same numbers.
    _row("PF FLR", 1, "reset_gpu"),
    _row("OS Reboot", 2, "reboot"),
)


def _plain(label: str) -> str:
    return "".join(c for c in label.lower() if c.isalnum()).removesuffix("required")


_BY_LABEL = {_plain(r.label): r for r in _KNOWN}


def read(label: object) -> Recommendation | None:
    """None for a label that nobody knows: then the row of Xid 154 alone stands."""
    return _BY_LABEL.get(_plain(label)) if isinstance(label, str) and len(label) < 80 else None


CODES = frozenset(
    {
        "xid/154",
        *(f"recovery-action/{name}" for name in ("reset", "reboot", "drain-p2p", "drain-and-reset")),
        *(f"dcgm/DCGM_FR_GPU_RECOVERY_{name}" for name in ("RESET", "REBOOT", "DRAIN_P2P", "DRAIN_RESET")),
    }
)
"""Codes whose advice is the driver's own."""
