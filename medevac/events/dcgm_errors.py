"""DCGM's error numbers, and the errors that its prose speaks of where no number stands beside it."""

from __future__ import annotations

import re

from medevac.events.event import Severity
from medevac.events.freetext import MAX_TEXT, xid_code
from medevac.events.reading import fault_code
from medevac.faults.catalogue import lookup

SEVERITY = {1: Severity.INFO, 2: Severity.CRITICAL, 6: Severity.CRITICAL}
"""`error_severity`: monitor, isolate, reset; 0 none, 3 unknown, 4 triage and 5 configuration say nothing here."""
CONFIG_SEVERITY = 5
SOFTWARE_CATEGORIES = frozenset((3, 4, 6, 7, 8, 16))
"""`error_category`: software configuration, library, CUDA, EUD, other, DCGM internal."""

_PROSE: tuple[tuple[str, str], ...] = (
    (r"pcie replays? per minute", "PCI_REPLAY_RATE"),
    (r"volatile double-bit ecc", "VOLATILE_DBE_DETECTED"),
    (r"single-bit ecc error", "VOLATILE_SBE_DETECTED"),
    (r"pending retired page", "PENDING_PAGE_RETIREMENTS"),
    (r"excess of [0-9]+ retired pages", "RETIRED_PAGES_DBE_LIMIT"),
    (r"or more retired pages", "RETIRED_PAGES_LIMIT"),
    (r"corrupt inforom", "CORRUPT_INFOROM"),
    (r"clocks? (?:throttling|event|throttle)[a-z ]* due to thermal", "CLOCKS_EVENT_THERMAL"),
    (r"clocks? (?:throttling|event|throttle)[a-z ]* due to power", "CLOCKS_EVENT_POWER"),
    (r"cannot reliably read the power", "POWER_UNREADABLE"),
    (r"row remapping failed|row remap(?:ping)? failure", "ROW_REMAP_FAILURE"),
    (r"row remap(?:ping)? is pending|pending row remap", "PENDING_ROW_REMAP"),
    (r"fallen off (?:of )?the bus", "FALLEN_OFF_BUS"),
    (r"uncontained (?:ecc |memory )?error", "UNCONTAINED_ERROR"),
    (r"nvlink link [0-9]+ is currently down", "NVLINK_DOWN"),
    (r"nvlink port [0-9]+ is currently down", "NVSWITCH_DOWN"),
    (r"nonfatal errors? on nvswitch", "NVSWITCH_NON_FATAL_ERROR"),
    (r"fatal errors? on nvswitch", "NVSWITCH_FATAL_ERROR"),
    (r"crc nvlink errors|nvlink crc", "NVLINK_CRC_ERROR_THRESHOLD"),
    (r"nvlink errors", "NVLINK_ERROR_THRESHOLD"),
    (r"sram (?:uncorrectable )?(?:ecc )?threshold", "SRAM_THRESHOLD"),
    (r"number of devices nvml returned", "DEVICE_COUNT_MISMATCH"),
    (r"imex", "IMEX_UNHEALTHY"),
)
_TELLING = tuple((re.compile(pattern, re.IGNORECASE), f"dcgm/DCGM_FR_{name}") for pattern, name in _PROSE)


def by_number(number: int) -> str:
    """`dcgm/DCGM_FR_ROW_REMAP_FAILURE` for 80; `dcgm/9999` for one that no table knows."""
    row = lookup(fault_code("dcgm", number))
    return row.code if row.code.startswith("dcgm/DCGM_FR_") else fault_code("dcgm", number)


def by_prose(text: str) -> str | None:
    """The Xid that a text names, else the DCGM error whose wording it has."""
    text = text[:MAX_TEXT]
    if code := xid_code(text):
        return code
    return next((code for pattern, code in _TELLING if pattern.search(text)), None)
