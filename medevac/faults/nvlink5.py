"""NVLink 5 (Xid 144 to 150): what the interrupt and status words mean.

The line carries `<unit> <Fatal|Nonfatal> … Link <n> (<intrInfo> <errorStatus> …)`. A rule matches when its bit
pattern (32 characters, most significant bit first, `-` for any) fits intrInfo and its status is in errorStatus.
The pattern's layout changed with driver R575: V1 before it, V2 from it on.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from medevac.events.event import HealthEvent
from medevac.faults.classes import FaultClass
from medevac.model import Model

CODES = range(144, 151)
V2_FROM_MAJOR = 575


class Rule(Model):
    xid: int
    unit: str
    v1: str
    v2: str
    status: str
    """Hexadecimal bits, several separated by `/`, or empty for any."""
    action: str
    promoted_v1: str = ""
    promoted_v2: str = ""
    promoted_action: str = ""
    """`action` gives way to this when the promoted pattern fits too."""
    fatal: bool


class Decoded(Model):
    unit: str
    action: str
    """`IGNORE`, `RESET_GPU` or `XID_154_EVAL` (the driver's recommendation follows as Xid 154)."""
    fatal: bool
    fault_class: FaultClass
    first_rung: str
    note: str


@cache
def rules() -> tuple[Rule, ...]:
    with files("medevac.faults").joinpath("data", "nvlink5.csv").open(encoding="utf-8") as f:
        return tuple(
            Rule(
                xid=int(r["xid"]),
                unit=r["unit"],
                v1=r["intr_v1"],
                v2=r["intr_v2"],
                status=r["error_status"],
                action=r["action"],
                promoted_v1=r["promoted_v1"],
                promoted_v2=r["promoted_v2"],
                promoted_action=r["promoted_action"],
                fatal=r["fatal"] == "yes",
            )
            for r in csv.DictReader(f)
        )


rules()  # read once, at import: decisions never wait for a disk


def _fits(pattern: str, word: int) -> bool:
    return len(pattern) == 32 and all(bit == "-" or int(bit) == (word >> (31 - i)) & 1 for i, bit in enumerate(pattern))


def _has(rule: Rule, word: int) -> bool:
    if not rule.status:
        return True
    wanted = {int(s, 16) for s in rule.status.split("/")}
    if rule.unit.startswith(("NETIR", "MSE")):  # there the word is a number, elsewhere a set of bits
        return word in wanted
    return any(word & w == w for w in wanted)


def decode(xid: int, intr_info: int, error_status: int, driver_major: int | None = None) -> Decoded | None:
    """The worst of what matches; None when nothing does. With the driver unknown both layouts are tried."""
    layouts = (1, 2) if driver_major is None else (2,) if driver_major >= V2_FROM_MAJOR else (1,)
    found: list[tuple[Rule, str]] = []
    for rule in rules():
        if rule.xid != xid or not _has(rule, error_status):
            continue
        for layout in layouts:
            pattern, promoted = (rule.v1, rule.promoted_v1) if layout == 1 else (rule.v2, rule.promoted_v2)
            # The promoted pattern differs from the plain one in one bit, so it is looked at by itself.
            if promoted and _fits(promoted, intr_info):
                found.append((rule, rule.promoted_action))
            elif _fits(pattern, intr_info):
                found.append((rule, rule.action))
    if not found:
        return None
    rule, action = max(found, key=lambda f: (f[1] == "RESET_GPU", f[0].fatal, f[1] == "XID_154_EVAL"))
    note = f"NVLink 5 decode: {rule.unit}, {action}"
    if action == "RESET_GPU":
        fault_class, rung = FaultClass.DEGRADED, "reset_gpu"
    elif rule.fatal:
        fault_class, rung = FaultClass.TRANSIENT, "wait"
    else:
        fault_class, rung = FaultClass.RECORD, "wait"
    return Decoded(unit=rule.unit, action=action, fatal=rule.fatal, fault_class=fault_class, first_rung=rung, note=note)


def _word(value: object) -> int | None:
    if not isinstance(value, str) or len(value) > 12:
        return None
    try:
        return int(value, 16)
    except ValueError:
        return None


def decode_event(event: HealthEvent) -> Decoded | None:
    """From the details that the log parser keeps (`intr_info`, `error_status`, `driver_word`, and the driver's
    version where the payload names it). None for other codes, and where nothing raises or settles the row."""
    xid = event.fault.removeprefix("xid/") if event.fault else ""
    if not xid.isdecimal() or int(xid) not in CODES:
        return None
    intr, status = _word(event.detail.get("intr_info")), _word(event.detail.get("error_status"))
    major = str(event.detail.get("driver_version", "")).split(".")[0]
    decoded = None
    if intr is not None and status is not None:
        decoded = decode(int(xid), intr, status, int(major) if major.isdecimal() and len(major) < 5 else None)
    if event.detail.get("driver_word") == "fatal" and (decoded is None or decoded.fault_class is FaultClass.RECORD):
        return Decoded(
            unit=str(event.detail.get("unit", "")),
            action="",
            fatal=True,
            fault_class=FaultClass.DEGRADED,
            first_rung="reset_gpu",
            note="the driver's line says Fatal",
        )
    return decoded
