"""What nvidia-smi's facts about one GPU mean, whichever of its formats they stand in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from medevac.events.event import Kind, Measurement, Severity, Statement
from medevac.events.reading import Reading, fault_code, real
from medevac.events.throttling import codes

_YES = frozenset(("yes", "true", "1"))
_LOST = re.compile(r"gpu is lost|unknown error", re.IGNORECASE)
_FLAGS = (
    (re.compile(r"remapped_rows\.(?:remapped_row_)?pending$"), "row-remap/pending"),
    (re.compile(r"remapped_rows\.(?:remapped_row_)?failure(?:_occurred)?$|remapping_failure_occurred$"),
     "row-remap/failure"),
    (re.compile(r"retired_pages\.pending(?:_[a-z_]+)?$|pending_page_blacklist$"), "page-retirement/pending"),
    (re.compile(r"gpu_reset_status\.reset_required$"), "recovery-action/reset"),
    (re.compile(r"drain_and_reset_recommended$"), "recovery-action/drain-and-reset"),
    (re.compile(r"sram_threshold_exceeded$"), "ecc/sram-threshold"),
)  # fmt: skip
_UNCORRECTED = re.compile(
    r"volatile(?:_count)?\.(?:[sd]ram_uncorrectable(?:_parity|_secded|_sec_ded)?|double_bit\.[a-z0-9_]{1,40})$"
    r"|^ecc\.errors\.uncorrected\.volatile\.[a-z0-9_.]{1,40}$"
)
_THROTTLE = re.compile(
    r"clocks?_(?:throttle|event)_reasons?\.(?:[a-z_]+\.)?(?:clocks_(?:throttle|event)_reason_)?"
    r"(?P<reason>hw_thermal_slowdown|hw_power_brake_slowdown|hw_slowdown|sw_thermal_slowdown)$"
)
_MASK = re.compile(r"clocks?_(?:throttle|event)_reasons?\.active$")
_BITS = {"hw_slowdown": 0x8, "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80}
_ACTIONS = {
    "reset": "reset",
    "gpu reset": "reset",
    "reboot": "reboot",
    "node reboot": "reboot",
    "drain p2p": "drain-p2p",
    "drain and reset": "drain-and-reset",
}
_SAYS_NOTHING = frozenset(("none", "n/a", "[n/a]", "", "[not supported]", "not supported"))
_MEASURED = (
    (re.compile(r"^temperature\.gpu(?:_temp|_current_temp)?$"), "gpu_temp"),
    (re.compile(r"^temperature\.memory(?:_temp|_current_temp)?$"), "hbm_temp"),
    (re.compile(r"^temperature\.gpu(?:_temp)?_t(?:limit|\.limit|_limit)(?:_temp)?$|^temperature\.gpu\.tlimit$"),
     "gpu_temp_margin"),
)  # fmt: skip


def judge(reading: Reading, named: tuple[str, ...], facts: Sequence[tuple[str, str]]) -> None:
    """Adds each finding once. `[N/A]` and modes (ECC `pending`, MIG `pending`) are none."""
    found: dict[str, tuple[str, Kind]] = {}
    mask = 0
    for path, value in facts:
        word = value.strip().lower()
        if path.startswith(("mig_mode", "driver_model", "gpu_operation_mode", "ecc_mode", "processes.", "product_")):
            continue
        if _LOST.search(word):
            found.setdefault("gpu-lost", (f"{path}: {value}", Kind.FAULT))
        elif word.strip("[]") == "err!":
            found.setdefault("nvidia-smi/unreadable", (f"{path}: {value}", Kind.FAULT))
        elif "requires reset" in word:
            found.setdefault("recovery-action/reset", (f"{path}: {value}", Kind.FAULT))
        elif word in _YES:
            for pattern, code in _FLAGS:
                if pattern.search(path):
                    found.setdefault(code, (f"{path}: {value}", Kind.FAULT))
        if _UNCORRECTED.search(path) and (real(word) or 0) > 0:
            found.setdefault("ecc/uncorrected", (f"{path}: {value}", Kind.FAULT))
        elif (m := _THROTTLE.search(path)) and word == "active":
            mask |= _BITS[m["reason"]]
        elif _MASK.search(path):
            mask |= _number(word)
        elif path.endswith("gpu_recovery_action") and word not in _SAYS_NOTHING and not _LOST.search(word):
            action = _ACTIONS.get(word.removesuffix(" required"), word)
            found.setdefault(fault_code("recovery-action", action), (f"{path}: {value}", Kind.FAULT))
        elif path.startswith("temperature."):
            _measure(reading, named, path, value)
    if "gpu-lost" in found:
        found.pop("nvidia-smi/unreadable", None)
    for code, hardware in codes(mask):
        found[code] = (f"clocks are held back: {code}", Kind.FAULT if hardware else Kind.INFO)
    for code, (words, kind) in found.items():
        reading.add(
            kind, code, part=[*named, code, words], key=(*named, code), entities=named, statement=Statement.LEVEL,
            severity=Severity.CRITICAL if code == "gpu-lost" else None, summary=words,
        )  # fmt: skip


def _number(word: str) -> int:
    if re.fullmatch(r"0x[0-9a-f]{1,16}", word):
        return int(word, 16)
    return int(word) if re.fullmatch(r"[0-9]{1,18}", word) else 0


def _measure(reading: Reading, named: tuple[str, ...], path: str, value: str) -> None:
    for pattern, name in _MEASURED:
        number = real(value.removesuffix("C").strip())
        if pattern.search(path) and number is not None:
            reading.add(
                Kind.MEASUREMENT, None, part=[*named, path, value], key=(*named, name), entities=named,
                statement=Statement.LEVEL, measurement=Measurement(name=name, value=number, unit="C"),
            )  # fmt: skip
