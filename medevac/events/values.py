"""Single values: numbers, times, devices and names. What can't be read is None; only `node_name` refuses."""

from __future__ import annotations

import ipaddress
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

from medevac.events.event import Severity
from medevac.events.json_text import one_line, quote
from medevac.events.parsing import ParseError

UNSUPPORTED = 9_223_372_036_854_775_794
"""What DCGM prints for a field that the device doesn't have."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}(?:\.0{1,6})?")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,3})?")


def whole(value: object) -> int | None:
    """79, 79.0, "79", " 79 "; None for all else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else None
    if isinstance(value, str) and len(value) < 60 and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().split(".")[0])
    return None


def real(value: object) -> float | None:
    """A finite number, or its text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        found = float(value) if not isinstance(value, int) or abs(value) < 2**1000 else math.inf
    elif isinstance(value, str) and len(value) < 60 and _REAL.fullmatch(value.strip()):
        found = float(value)
    else:
        return None
    return found if math.isfinite(found) else None


_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:[.,]([0-9]{1,18}))?\s?(Z|z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?(?: UTC)?"
)


def instant(value: object, *, naive_is_utc: bool = False) -> datetime | None:
    """ISO 8601 with up to nanoseconds, in UTC. None for what is no time, for a zero time (year 1 or the
    epoch's start, "not yet"), and for one without a zone unless `naive_is_utc`. Never raises."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    m = _ISO.fullmatch(value.strip())
    if not m or (m[8] is None and not naive_is_utc):
        return None
    zone = UTC
    if m[8] and m[8][0] in "+-":
        minutes = int(m[8][1:3]) * 60 + (int(m[8][-2:]) if len(m[8]) > 3 else 0)
        if minutes >= 24 * 60:
            return None
        zone = timezone(timedelta(minutes=minutes if m[8][0] == "+" else -minutes))
    try:
        year, month, day, hour, minute, second = (int(m[i]) for i in range(1, 7))
        micro = int((m[7] or "0")[:6].ljust(6, "0"))
        leap = second == 60  # which our own clock doesn't have
        return _plausible(datetime(year, month, day, hour, minute, second - leap, micro, zone))
    except ValueError:
        return None


def epoch(value: object) -> datetime | None:
    """Unix time in s, ms, µs or ns, told apart by its size. None for what is none, and for 0."""
    number = real(value)
    if number is None or number <= 0:
        return None
    for scale in (1.0, 1e3, 1e6, 1e9):
        if number / scale < 1e10:
            return _plausible(datetime.fromtimestamp(number / scale, UTC))
    return None


def rfc1123(value: object) -> datetime | None:
    """`Tue, 15 Nov 1994 08:12:31 GMT`, as AWS Health writes it."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        when = parsedate_to_datetime(value)
        return _plausible(when) if when.tzinfo else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _plausible(when: datetime) -> datetime | None:
    """In UTC, to the millisecond's neighbours; None before 1971 and after 2200."""
    if not 1971 <= when.year <= 2200:
        return None
    return when.astimezone(UTC)


# Devices

_PCI = re.compile(r"(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE)
_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4,12}){1,4}")
_SERIAL = re.compile(r"[0-9A-Za-z]{4,32}")
_IB = re.compile(r"[a-z][a-z0-9_]{1,30}")


def _index(space: str, value: object, top: int) -> str | None:
    number = whole(value)
    return f"{space}:{number}" if number is not None and 0 <= number < top else None


def gpu(value: object) -> str | None:
    """`gpu:4`. Each of these returns None for what it can't read."""
    return _index("gpu", value, 1_024)


def nvlink(value: object) -> str | None:
    """`nvlink:13`; link -1 means no particular link."""
    return _index("nvlink", value, 1_024)


def nvswitch(value: object) -> str | None:
    """Of a number, or of the name that DCGM's exporter gives it, `nvswitch0`."""
    return _index("nvswitch", value.removeprefix("nvswitch") if isinstance(value, str) else value, 4_096)


def mig_gi(value: object) -> str | None:
    return _index("mig-gi", value, 256)


def mig_ci(value: object) -> str | None:
    return _index("mig-ci", value, 256)


def pci(value: object) -> str | None:
    """`pci:0000:9b:00` from any usual form: 4 or 8 digit domain or none, `PCI:` before, function after."""
    m = _PCI.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 40 else None
    return f"pci:{int(m[1] or '0', 16):04x}:{m[2]}:{m[3]}".lower() if m else None


def gpu_uuid(value: object) -> str | None:
    """`gpu-uuid:GPU-…`; a MIG device's UUID is none."""
    found = value.strip() if isinstance(value, str) and len(value) < 80 else ""
    return f"gpu-uuid:{found}" if _UUID.fullmatch(found) else None


def gpu_serial(value: object) -> str | None:
    found = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return f"gpu-serial:{found}" if len(found) < 40 and _SERIAL.fullmatch(found) else None


def ib(device: object, port: object = None) -> str | None:
    """`ib:mlx5_0` or `ib:mlx5_0/1`."""
    if not isinstance(device, str) or not _IB.fullmatch(device):
        return None
    number = whole(port)
    return f"ib:{device}" if number is None or not 0 <= number < 256 else f"ib:{device}/{number}"


def entities(*found: str | None) -> tuple[str, ...]:
    """Without what couldn't be read and without repeats, in the order given."""
    return tuple(dict.fromkeys(e for e in found if e))


# Names and words

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def is_node_name(value: object) -> bool:
    """A host name (letters in any case, `_` as some clouds allow), an address, or an instance id."""
    if not isinstance(value, str) or not 0 < len(value) <= 253:
        return False
    if _NAME.fullmatch(value):
        return ".." not in value or value.startswith("ocid1.")
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return "%" not in value


def node_name(value: object) -> str:
    """The name without blanks at its ends, or a refusal: names end up in API paths, labels and commands."""
    name = value.strip(" \t") if isinstance(value, str) else value
    if not is_node_name(name):
        raise ParseError(f"node name {quote(value)} is not a valid node name")
    return str(name)


def host_of(address: str) -> str | None:
    """The host of `10.0.3.7:9400`, `[fd00::1]:9400`, `gpu-node-07:9100` or of a bare one; else None."""
    address = address.strip()
    if address.startswith("["):
        address = address[1:].split("]")[0]
    elif address.count(":") == 1:
        address = address.split(":")[0]
    return address if is_node_name(address) else None


def fault_code(space: str, *parts: object) -> str:
    """`xid/79`, `diag/memory/fail`: printable, bounded."""
    return "/".join([space, *(one_line(str(p), 160) or "unnamed" for p in parts)])[:200]


def severity_word(value: object) -> Severity | None:
    """The sender's own word, where it is one that every sender means alike."""
    word = value.strip().lower().replace("-", "").replace("_", "") if isinstance(value, str) else ""
    if word in ("critical", "crit", "fatal", "isolate", "emergency", "emerg", "page", "linkfatal"):
        return Severity.CRITICAL
    if word in ("warning", "warn", "nonfatal"):
        return Severity.WARNING
    return Severity.INFO if word in ("info", "informational", "information", "notice") else None
