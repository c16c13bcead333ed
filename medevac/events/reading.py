"""What parsers read with: strict JSON, named fields, times, entities, node names, and the event they build.

Everything here either returns a clean value or raises `ParseError` with one line that says what and where.
A parser is written like this:

    def parse(payload: Payload) -> Parsed:
        reading = Reading(SOURCE)
        for i, item in enumerate(Fields.of(read_json(payload.body)).list("items"), 1):
            with reading.part(f"item {i}"):                # a bad part is refused, the others are taken
                fields = Fields.of(item)
                node = node_name(fields.text("node"))
                reading.add(Kind.FAULT, fault_code("xid", fields.integer("xid")), part=item, subject=node,
                            key=("xid", node), entities=entities(gpu(fields.get("gpu"))))
        return reading.parsed()
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NoReturn

from pydantic import JsonValue

from medevac.events.event import EvidenceRef, HealthEvent, Kind, Measurement, Severity, Statement
from medevac.events.parsing import MAX_PAYLOAD_BYTES, Parsed, ParseError, Payload, Refusal
from medevac.model import digest

MAX_DEPTH = 64
MAX_PARTS = 10_000
"""Parts (alerts, lines, entries) read from one payload; more is refused, not cut in silence."""
MAX_SUMMARY = 500
MAX_DETAIL_ITEMS = 40
MAX_DETAIL_TEXT = 500
MAX_DETAIL_BYTES = 8_000
MAX_KEY = 240
UNSUPPORTED = 9_223_372_036_854_775_794
"""What DCGM prints for a field that the device doesn't have."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


# --- text and JSON -------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Without what UTF-8 or a database can't hold (lone surrogates, NUL)."""
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(text: str, limit: int = MAX_SUMMARY) -> str:
    """Printable on one line, at most `limit` characters."""
    flat = " ".join(_CONTROL.sub(" ", clean(text[: limit * 8])).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def quote(value: object, limit: int = 80) -> str:
    """A payload's value as it may stand in an error line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)[: limit * 4]
    return f'"{one_line(text, limit)}"' if isinstance(value, str) else one_line(text, limit)


def read_text(body: bytes, errors: Literal["strict", "replace"] = "strict") -> str:
    """UTF-8, with or without byte order mark. Logs are read with `replace`: one odd byte must not hide a fault."""
    if len(body) > MAX_PAYLOAD_BYTES:
        raise ParseError(f"body has {len(body)} bytes, more than the {MAX_PAYLOAD_BYTES} allowed")
    try:
        return body.decode("utf-8-sig", errors)
    except UnicodeDecodeError as e:
        raise ParseError(f"body is not UTF-8 text (byte {e.start})") from None


def _constant(name: str) -> NoReturn:
    raise ParseError(f"body holds {name}, which is no JSON number")


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ParseError("body holds an integer of more than 40 digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ParseError(f"body holds the number {quote(text, 20)}, which is out of range")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ParseError(f"key {quote(twice)} stands twice in one object")
    return found


def _checked(value: Any, scrub: bool, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ParseError(f"body is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        if scrub:
            return {clean(k): _checked(v, scrub, depth + 1) for k, v in value.items()}
        for v in value.values():
            if isinstance(v, dict | list):
                _checked(v, scrub, depth + 1)
    elif isinstance(value, list):
        if scrub:
            return [_checked(v, scrub, depth + 1) for v in value]
        for v in value:
            if isinstance(v, dict | list):
                _checked(v, scrub, depth + 1)
    elif scrub and isinstance(value, str):
        return clean(value)
    return value


def json_value(text: str, what: str = "body") -> JsonValue:
    """One JSON document: no NaN, no infinity, no key twice, at most `MAX_DEPTH` deep."""
    if not text.strip():
        raise ParseError(f"{what} is empty")
    try:
        value = json.loads(
            text,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
            object_pairs_hook=_object,
        )
        low = text.lower()
        return _checked(value, scrub="\\ud" in low or "\\u0000" in low or "\x00" in low)  # type: ignore[no-any-return]
    except json.JSONDecodeError as e:
        if e.pos >= len(text.rstrip()) or e.msg.startswith("Unterminated string"):
            raise ParseError(f"{what} is not valid JSON: it ends too early (line {e.lineno})") from None
        raise ParseError(f"{what} is not valid JSON: line {e.lineno} column {e.colno}: {e.msg}") from None
    except RecursionError:
        raise ParseError(f"{what} is nested deeper than {MAX_DEPTH} levels") from None


def read_json(body: bytes, what: str = "body") -> JsonValue:
    return json_value(read_text(body), what)


def looks_like_json(payload: Payload) -> bool:
    """Cheap: the first character alone. For `recognises`, together with a telling key in `payload.body`."""
    return payload.body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def peek_json(payload: Payload) -> JsonValue:
    """For `recognises`: the document, or None where there is none."""
    if not looks_like_json(payload):
        return None
    try:
        return read_json(payload.body)
    except ParseError:
        return None


# --- named fields --------------------------------------------------------------------------------------------

_KINDS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "list",
    dict: "object",
    type(None): "null",
}


def _wrong(where: str, key: str, value: object, want: str) -> ParseError:
    prefix = f"{where}: " if where else ""
    return ParseError(f"{prefix}field {key} has the wrong type ({_KINDS.get(type(value), '?')}, expected {want})")


class Fields:
    """A JSON object that knows where it stands, so that every error names the field.

    Getters: `text`, `integer`, `number`, `boolean`, `list`, `fields` raise when the field is missing, unless
    a default is given; a present value of the wrong type always raises. null counts as missing.
    """

    __slots__ = ("value", "where")

    def __init__(self, value: Mapping[str, JsonValue], where: str = "") -> None:
        self.value = value
        self.where = where

    @classmethod
    def of(cls, value: JsonValue, where: str = "") -> Fields:
        if not isinstance(value, dict):
            place = where or "body"
            raise ParseError(f"{place} is a {_KINDS.get(type(value), '?')}, expected an object")
        return cls(value, where)

    def get(self, key: str) -> JsonValue:
        """As it is; None where it is missing."""
        return self.value.get(key)

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _missing(self, key: str) -> ParseError:
        return ParseError(f"{self.where + ': ' if self.where else ''}field {key} is missing")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        if not isinstance(value, str):
            raise _wrong(self.where, key, value, "string")
        return value

    def maybe_text(self, key: str) -> str | None:
        """None where it is missing or empty."""
        return self.text(key, "") or None

    def scalar(self, key: str) -> str | None:
        """A string or number as text (senders write codes both ways); None where missing or empty."""
        value = self.value.get(key)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _wrong(self.where, key, value, "string or number")
        return value if isinstance(value, str) else str(value)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; one written as text is taken as meant."""
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        number = whole(value)
        if number is None:
            raise _wrong(self.where, key, value, "whole number")
        return number

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        found = real(value)
        if found is None:
            raise _wrong(self.where, key, value, "number")
        return found

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """true or false; the words "true" and "false" are taken as meant, nothing else is."""
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise _wrong(self.where, key, value, "boolean")

    def list(self, key: str, default: Sequence[JsonValue] | None = None) -> Sequence[JsonValue]:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        if not isinstance(value, list):
            raise _wrong(self.where, key, value, "list")
        if len(value) > MAX_PARTS:
            raise ParseError(f"{self._path(key)} has {len(value)} entries, more than the {MAX_PARTS} allowed")
        return value

    def fields(self, key: str, default: Mapping[str, JsonValue] | None = None) -> Fields:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return Fields(default, self._path(key))
        if not isinstance(value, dict):
            raise _wrong(self.where, key, value, "object")
        return Fields(value, self._path(key))

    def texts(self, key: str) -> dict[str, str]:
        """An object of strings (labels, annotations); numbers and booleans become text, null is left out."""
        found: dict[str, str] = {}
        for name, value in self.fields(key, {}).value.items():
            if isinstance(value, dict | list):
                raise _wrong(self._path(key), name, value, "string")
            if value is not None:
                found[name] = value if isinstance(value, str) else json.dumps(value)
        return found


# --- numbers and times ---------------------------------------------------------------------------------------

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
    r"(?:[.,]([0-9]{1,18}))?\s?(Z|z|UTC|[+-][0-9]{2}:?[0-9]{2})?"
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
        minutes = int(m[8][1:3]) * 60 + int(m[8][-2:])
        if minutes >= 24 * 60:
            return None
        zone = timezone(timedelta(minutes=minutes if m[8][0] == "+" else -minutes))
    try:
        year, month, day, hour, minute, second = (int(m[i]) for i in range(1, 7))
        micro = int((m[7] or "0")[:6].ljust(6, "0"))
        return _plausible(datetime(year, month, day, hour, minute, second, micro, zone))
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


# --- entities ------------------------------------------------------------------------------------------------

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
    return _index("nvswitch", value, 4_096)


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


# --- names ---------------------------------------------------------------------------------------------------

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
    """The name, or a refusal: names end up in API paths, labels and commands."""
    if not is_node_name(value):
        raise ParseError(f"node name {quote(value)} is not a valid node name")
    return str(value)


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


# --- the event -----------------------------------------------------------------------------------------------


def _small(value: Any, depth: int = 0) -> JsonValue:
    if isinstance(value, str):
        text = clean(value)
        return text if len(text) <= MAX_DETAIL_TEXT else text[: MAX_DETAIL_TEXT - 1] + "…"
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, int) or abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if depth >= 4:
        return "…"
    if isinstance(value, Mapping):
        return {
            clean(str(k))[:120]: _small(v, depth + 1)
            for k, v in list(value.items())[:MAX_DETAIL_ITEMS]
            if v is not None
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_small(v, depth + 1) for v in list(value)[:MAX_DETAIL_ITEMS]]
    return one_line(str(value))


def small_detail(detail: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Bounded in depth, items and bytes; nulls are left out. What doesn't fit is named in `left_out`."""
    kept: dict[str, JsonValue] = {}
    size, left_out = 0, []
    for key, value in list(detail.items())[:MAX_DETAIL_ITEMS]:
        if value is None:
            continue
        item = _small(value)
        size += len(json.dumps(item)) + len(key)
        if size > MAX_DETAIL_BYTES:
            left_out.append(key[:120])
        else:
            kept[clean(key)[:120]] = item
    if left_out:
        kept["left_out"] = list(left_out)
    return kept


def join_key(*parts: object) -> str:
    """Parts of a dedupe key, joined by `|`; a long one is cut and carries its digest."""
    text = "|".join(one_line(str(p), 400) if p not in (None, "") else "-" for p in parts)
    return text if len(text) <= MAX_KEY else f"{text[: MAX_KEY - 18]}~{digest(text)[:16]}"


class Reading:
    """Collects what one payload says: `add` events, wrap each part in `part` so that a bad one is only refused."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.events: list[HealthEvent] = []
        self.refused: list[Refusal] = []
        self.truncated = 0

    @contextmanager
    def part(self, where: str) -> Iterator[None]:
        """A `ParseError` inside refuses this part alone; events that it had already added are taken back."""
        before = len(self.events)
        try:
            yield
        except ParseError as e:
            del self.events[before:]
            said = str(e).removeprefix(f"{where}: ").removeprefix(f"{where} ")
            self.refused.append(Refusal(where, one_line(said)))

    def add(
        self,
        kind: Kind,
        fault: str | None,
        *,
        part: object,
        key: str | tuple[object, ...],
        id: str | None = None,
        series: str | None = None,
        subject: str | None = None,
        cluster: str | None = None,
        actionable: bool = True,
        severity: Severity | None = None,
        statement: Statement = Statement.EDGE,
        entities: tuple[str, ...] = (),
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        not_before: datetime | None = None,
        boot_id: str | None = None,
        marker: str | None = None,
        summary: str = "",
        evidence: tuple[EvidenceRef, ...] = (),
        measurement: Measurement | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> HealthEvent:
        """`part` is the raw piece it was read from (its digest is kept). `key`: see `HealthEvent.dedupe_key`;
        without an `id`, key, kind and digest make one, so that two deliveries of one statement share it."""
        raw = digest(clean(part) if isinstance(part, str) else part)
        dedupe = key if isinstance(key, str) else join_key(*key)
        event = HealthEvent(
            source=self.source,
            id=join_key(id) if id else f"{self.source}-{digest([dedupe, kind, fault, raw])[:24]}",
            dedupe_key=dedupe,
            series=series,
            subject=subject,
            cluster=cluster,
            kind=kind,
            fault=fault,
            actionable=actionable,
            severity=severity,
            statement=statement,
            entities=entities,
            starts_at=starts_at,
            ends_at=ends_at,
            not_before=not_before,
            boot_id=boot_id,
            marker=marker,
            summary=one_line(summary),
            evidence=evidence[:20],
            measurement=measurement,
            detail=small_detail(detail or {}),
            digest=raw,
        )
        self.events.append(event)
        return event

    def refuse(self, where: str, reason: str) -> None:
        self.refused.append(Refusal(where, one_line(reason)))

    def parsed(self) -> Parsed:
        return Parsed(tuple(self.events), tuple(self.refused), self.truncated)
