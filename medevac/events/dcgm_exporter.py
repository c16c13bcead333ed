"""dcgm-exporter's `/metrics` text.

`DCGM_FI_DEV_XID_ERRORS` holds the last Xid and never returns to 0; `DCGM_EXP_XID_ERRORS_COUNT` counts within a
window. Numbers with a threshold (temperature, margin) are measurements: the policy judges them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from medevac.events.dcgm_errors import by_number
from medevac.events.event import Kind, Measurement, Severity, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    MAX_PARTS,
    UNSUPPORTED,
    Reading,
    entities,
    fault_code,
    gpu,
    gpu_uuid,
    host_of,
    is_node_name,
    mig_gi,
    nvlink,
    nvswitch,
    pci,
    read_text,
    real,
    whole,
)
from medevac.events.throttling import codes

SOURCE = "dcgm_exporter"

_SAMPLE = re.compile(
    r'([A-Za-z_:][A-Za-z0-9_:]{0,120}+)(?:[ \t]*+\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\})?+[ \t]++(\S{1,40}+)'
    r"(?:[ \t]++-?[0-9.eE+]{1,24}+)?+(?:[ \t]++# \{.{0,2000})?"
)
"""Name, labels, value; a time and an exemplar may follow."""
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]{0,120})\s*=\s*"((?:[^"\\]|\\.){0,2000})"\s*(?:,\s*|$)')
_EXPORTER_POD = re.compile(r"(?:[a-z0-9-]*-)?dcgm-exporter-[a-z0-9]{4,10}(?:-[a-z0-9]{5})?")
"""What `Hostname` holds when the exporter wasn't told its node's name."""

MEASURED = {
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temp", "C"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("hbm_temp", "C"),
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": ("gpu_temp_margin", "C"),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power", "W"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie_replays", "1"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_corrected", "1"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows_uncorrectable", "1"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("remapped_rows_correctable", "1"),
    "DCGM_FI_DEV_RETIRED_DBE": ("retired_pages_dbe", "1"),
    "DCGM_FI_DEV_RETIRED_SBE": ("retired_pages_sbe", "1"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink_crc_flit_errors", "1"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("nvlink_crc_data_errors", "1"),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink_replay_errors", "1"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("nvlink_recovery_errors", "1"),
}
FLAGS = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row-remap/failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "row-remap/pending",
    "DCGM_FI_DEV_RETIRED_PENDING": "page-retirement/pending",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc/volatile-dbe",
}
"""Metrics whose every value above 0 is a fault."""

CLOCK_EVENTS = {"hw_slowdown": 0x8, "sw_thermal": 0x20, "hw_thermal": 0x40, "hw_power_brake": 0x80}
"""Reasons of `DCGM_EXP_CLOCK_EVENTS_COUNT`, with or without `_slowdown` behind them."""
RECOVERY = {1: "reset", 2: "reboot", 3: "drain-p2p", 4: "drain-and-reset"}
"""The driver's recommendation by its number; 0 is none."""
BLANKS = ((2_147_483_632, 2_147_483_635), (140_737_488_355_328, 140_737_488_355_331))
"""How DCGM prints "not there" of 32 bit and of floating point fields."""

Labels = Mapping[str, str]


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    seen: set[str] = set()
    samples = 0
    for number, line in enumerate(read_text(payload.body).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        with reading.part(f"line {number}"):
            m = _SAMPLE.fullmatch(line)
            if m is None:
                raise ParseError("is no Prometheus sample")
            samples += 1
            if samples > MAX_PARTS * 10:
                raise ParseError(f"more than {MAX_PARTS * 10} samples in one payload")
            value = real(m[3])
            if (
                value is None or value >= UNSUPPORTED or any(low <= value <= high for low, high in BLANKS)
            ):  # NaN, infinity, or what DCGM prints for "not there"
                continue
            if m[1].startswith("DCGM_"):
                _sample(reading, seen, m[1], _labels(m[2] or ""), value, line)
        if len(reading.refused) > 100:
            raise ParseError(f"line {number}: more than 100 lines are no Prometheus samples; is this dcgm-exporter's?")
    if reading.refused and not samples:
        raise ParseError("body is no Prometheus text: no line of it is a sample")
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    return re.search(rb"^\xef?\xbb?\xbf?DCGM_(?:FI|EXP)_[A-Z0-9_]{1,100}[{ ]", payload.body, re.MULTILINE) is not None


def _labels(text: str) -> Labels:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        m = _LABEL.match(text, at)
        if m is None:
            raise ParseError("its labels can't be read")
        found[m[1]] = re.sub(r"\\(.)", lambda e: "\n" if e[1] == "n" else e[1], m[2])
        at = m.end()
    return found


def subject_of(labels: Labels) -> str | None:
    """`Hostname`, unless it is the exporter's own pod; the inventory resolves the rest."""
    for key in ("Hostname", "hostname", "node", "kubernetes_node"):
        value = labels.get(key, "")
        if is_node_name(value) and not _EXPORTER_POD.fullmatch(value):
            return value
    return host_of(labels["instance"]) if "instance" in labels else None


def _entities(labels: Labels) -> tuple[str, ...]:
    return entities(
        gpu(labels.get("gpu")), gpu_uuid(labels.get("UUID")), pci(labels.get("pci_bus_id")),
        mig_gi(labels.get("GPU_I_ID")), nvswitch(labels.get("nvswitch")), nvlink(labels.get("nvlink")),
    )  # fmt: skip


def _sample(reading: Reading, seen: set[str], name: str, labels: Labels, value: float, line: str) -> None:
    host, found = subject_of(labels), _entities(labels)
    device = labels.get("UUID") or labels.get("gpu") or labels.get("nvswitch") or "-"

    def fault(code: str, statement: Statement, severity: Severity | None, kind: Kind = Kind.FAULT) -> None:
        key = f"{host}|{device}|{code}"
        if len(seen) >= MAX_PARTS:
            raise ParseError(f"more than {MAX_PARTS} faults in one payload")
        if key in seen:  # gauge and counter of one Xid
            return
        seen.add(key)
        reading.add(
            kind, code, part=line, key=(host, device, code), subject=host, entities=found, severity=severity,
            statement=statement, summary=f"{name} {value:g} {labels.get('err_msg', '')}",
            detail={"metric": name, "value": value, "driver": labels.get("DCGM_FI_DRIVER_VERSION"),
                    "pod": labels.get("pod"), "namespace": labels.get("namespace")},
        )  # fmt: skip

    number = whole(value)
    if name == "DCGM_FI_DEV_XID_ERRORS" or name == "DCGM_EXP_XID_ERRORS_COUNT":
        xid = number if name == "DCGM_FI_DEV_XID_ERRORS" else whole(labels.get("xid")) if value > 0 else 0
        if xid is None or not 0 <= xid < 1_000:
            raise ParseError("its Xid can't be read")
        if xid:
            fault(code := fault_code("xid", xid), Statement.EDGE, severity_of(code))
    elif name in ("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", "DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS"):
        if number:
            word = Severity.WARNING if "NON_FATAL" in name else Severity.CRITICAL
            fault(fault_code("sxid", number), Statement.EDGE, word)
    elif name in ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"):
        for code, hardware in codes(number or 0):
            fault(code, Statement.LEVEL, None, Kind.FAULT if hardware else Kind.INFO)
    elif name == "DCGM_EXP_CLOCK_EVENTS_COUNT":
        reason = labels.get("clock_event", "").removesuffix("_slowdown")
        reason = "hw_slowdown" if reason == "hw" else reason
        for code, hardware in codes(CLOCK_EVENTS.get(reason, 0) if value > 0 else 0):
            fault(code, Statement.LEVEL, None, Kind.FAULT if hardware else Kind.INFO)
    elif name in ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"):
        if action := RECOVERY.get(number or 0):
            fault(fault_code("recovery-action", action), Statement.LEVEL, None)
    elif name == "DCGM_EXP_GPU_HEALTH_STATUS":
        _health(fault, labels, value)
    elif name in FLAGS:
        if value > 0:
            fault(FLAGS[name], Statement.LEVEL, None)
    elif name in MEASURED:
        quantity, unit = MEASURED[name]
        reading.add(
            Kind.MEASUREMENT, None, part=line, key=(host, device, name), subject=host, entities=found,
            statement=Statement.LEVEL, measurement=Measurement(name=quantity, value=value, unit=unit),
        )  # fmt: skip


def _health(fault: Callable[[str, Statement, Severity | None], None], labels: Labels, value: float) -> None:
    """0 pass, 10 warning, 20 failure, one series a watch."""
    if value not in (10, 20):
        return
    error = whole(labels.get("health_error_code"))
    watch = labels.get("health_watch", "unknown")
    code = by_number(error) if error else fault_code("dcgm-health", watch)
    fault(code, Statement.LEVEL, Severity.WARNING if value == 10 else Severity.CRITICAL)
