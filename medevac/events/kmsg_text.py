"""The NVIDIA driver's own words: Xid and SXid messages, and the lines that name a GPU beside them.

Everything is anchored at the start of the message: a process name or a payload that quotes an Xid is no Xid.
The number decides, never the words after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from medevac.events.reading import entities, gpu_serial, gpu_uuid, mig_ci, mig_gi, pci, whole
from medevac.faults import nvlink5, recovery


@dataclass(frozen=True, slots=True)
class Fault:
    code: int
    is_switch: bool
    pci: str
    entities: tuple[str, ...] = ()
    link: int | None = None
    switch: int | None = None
    word: str | None = None
    """`fatal` or `nonfatal`, where the driver says it of the fault itself."""
    detail: dict[str, str | int | list[str]] = field(default_factory=dict)


_ADDRESS = r"\((?:PCI:)?([0-9a-fA-F:.]{5,20})((?: [A-Za-z-]{1,8}:[0-9a-fA-F]{1,8}){0,4})\)"
_XID = re.compile(rf"NVRM: Xid {_ADDRESS}: {{1,4}}([0-9]{{1,5}})(?![0-9A-Za-z]|\.[0-9A-Za-z])(.*)", re.DOTALL)
_SXID = re.compile(
    rf"nvidia-nvswitch([0-9]{{1,4}}): SXid {_ADDRESS}: {{1,4}}([0-9]{{5}})(?![0-9A-Za-z]|\.[0-9A-Za-z])(.*)", re.DOTALL
)
_FOUL = re.compile(r"(?:NVRM: |nvidia-nvswitch[0-9]{1,4}: )S?Xid\b")
_CLAIM = re.compile(r"NVRM: Xid \(|nvidia-nvswitch[0-9]{0,4}: SXid \(")
_INSTANCE = re.compile(r"(GPU-I|GPU-CI):([0-9a-fA-F]{1,8})")
_PID = re.compile(r"\s*pid=(?:'[^']{0,64}'|[^,]{0,64}),?")
_NAME = re.compile(r"\s*name=([^,]{0,128}),?")
_NVLINK5 = re.compile(
    r"\s*([A-Z][A-Z0-9_/]{1,40}(?: Degraded)?) {1,20}(Fatal|Non-?fatal)\b[^(]{0,60}?"
    r"\bLink {1,4}(-?[0-9]{1,4}) {0,4}\(((?:0x[0-9a-fA-F]{1,8}[ ,]{0,2}){1,12})\)?",
    re.IGNORECASE,
)
_ON_LINK = re.compile(r"\blink (-?[0-9]{1,4})\b", re.IGNORECASE)
_REGISTERS = re.compile(r"\(((?:0x[0-9a-fA-F]{1,8}(?:, ?| )){1,9}0x[0-9a-fA-F]{1,8})\)")
_RECOVERY = re.compile(
    r"GPU recovery action changed from 0x([0-9a-fA-F]{1,4}) \([^()]{1,60}\) to 0x([0-9a-fA-F]{1,4}) \(([^()]{1,60})\)",
    re.IGNORECASE,
)
_SWITCH_WORD = re.compile(r",?\s*(Non-?fatal|Fatal)\b", re.IGNORECASE)
_SWITCH_LINK = re.compile(r"\bLink ([0-9]{1,4})\b")
_UUID_LINE = re.compile(r"NVRM: GPU at (?:PCI:)?([0-9a-fA-F:.]{5,20}): (GPU-[0-9a-fA-F-]{8,40})")
_SERIAL_LINE = re.compile(r"NVRM: GPU Board Serial Number: ([0-9A-Za-z]{4,32})")


def fault_of(message: str) -> Fault | None:
    """None for what is no Xid, or one whose address or number can't be read."""
    if m := _XID.match(message):
        return _xid(m[1], m[2], int(m[3]), m[4])
    if m := _SXID.match(message):
        return _sxid(int(m[1]), m[2], int(m[4]), m[5])
    return None


def is_foul(message: str) -> bool:
    """Says Xid and yet can't be read: the message itself, or what stands before it."""
    return _FOUL.match(message) is not None or _CLAIM.search(message) is not None


def _xid(address: str, instances: str, code: int, tail: str) -> Fault | None:
    place = pci(address)
    if place is None or code == 0:
        return None
    found = [(mig_gi if kind == "GPU-I" else mig_ci)(int(n, 16)) for kind, n in _INSTANCE.findall(instances)]
    text = tail.lstrip(", ")
    detail: dict[str, str | int | list[str]] = {}
    if m := _PID.match(text):
        pid = whole(m[0].split("=", 1)[1].strip(" ,'"))
        text = text[m.end() :].lstrip()
        if pid is not None:
            detail["pid"] = pid
        if m := _NAME.match(text):
            detail["process"] = m[1].strip()[:128]
            text = text[m.end() :].lstrip()
    link: int | None = None
    word: str | None = None
    if code in nvlink5.CODES and (m := _NVLINK5.match(text)):
        words = re.findall(r"0x[0-9a-fA-F]{1,8}", m[4])
        detail |= {"unit": m[1], "words": words, "intr_info": words[0]}
        if len(words) > 1:
            detail["error_status"] = words[1]
        word = "nonfatal" if m[2].lower().startswith("non") else "fatal"
        link = int(m[3]) if int(m[3]) >= 0 else None
    elif code == 74:
        if (m := _ON_LINK.search(text[:400])) and int(m[1]) >= 0:
            link = int(m[1])
        if m := _REGISTERS.search(text[:600]):
            detail["registers"] = re.findall(r"0x[0-9a-fA-F]{1,8}", m[1])
    elif code == 154 and (m := _RECOVERY.search(text[:400])):
        wanted = recovery.read(m[3])
        # Label and number must agree; where they don't, nothing is recommended.
        if wanted is not None and wanted.number == int(m[2], 16):
            detail |= {"recovery_action": m[3].strip(), "recovery_code": int(m[2], 16)}
        else:
            detail["recovery_unreadable"] = m[3].strip()
    if text:
        detail["text"] = text[:400].strip()
    return Fault(code, False, place, entities(*found), link, None, word, detail)


def _sxid(switch: int, address: str, code: int, tail: str) -> Fault | None:
    place = pci(address)
    if place is None:
        return None
    word: str | None = None
    link: int | None = None
    if m := _SWITCH_WORD.match(tail):
        word = "nonfatal" if m[1].lower().startswith("non") else "fatal"
        if found := _SWITCH_LINK.search(tail[:200]):
            link = int(found[1])
    detail: dict[str, str | int | list[str]] = {"text": tail.strip(" ,")[:400]} if word else {}
    return Fault(code, True, place, (), link, switch, word, detail)


def uuid_line(message: str) -> tuple[str, str] | None:
    """`NVRM: GPU at PCI:…: GPU-…`, printed before a fault: the address and the UUID, as entities."""
    if (m := _UUID_LINE.match(message)) and (place := pci(m[1])) and (uuid := gpu_uuid(m[2])):
        return place, uuid
    return None


def serial_line(message: str) -> str | None:
    """`NVRM: GPU Board Serial Number: …`, which follows the line above."""
    return gpu_serial(m[1]) if (m := _SERIAL_LINE.match(message)) else None
