"""What parsers read with: strict JSON, named fields, times, entities, node names, and the event they build.

Everything here either returns a clean value or raises `ParseError` with one line that says what and where.
A parser is written like this:

    def parse(payload: Payload) -> Parsed:
        reading = Reading(SOURCE)
        for i, item in enumerate(reading.first(Fields.of(read_json(payload.body)).parts("items")), 1):
            with reading.part(f"item {i}"):                # a bad part is refused, the others are taken
                fields = Fields.of(item)
                node = node_name(fields.text("node"))
                reading.add(Kind.FAULT, fault_code("xid", fields.integer("xid")), part=item, subject=node,
                            key=("xid", node), entities=entities(gpu(fields.get("gpu"))))
        return reading.parsed()
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from pydantic import JsonValue

from medevac.events.event import EvidenceRef, HealthEvent, Kind, Measurement, Severity, Statement
from medevac.events.fields import MAX_PARTS, Fields
from medevac.events.json_text import (
    MAX_DEPTH,
    MAX_SUMMARY,
    clean,
    json_value,
    looks_like_json,
    one_line,
    peek_json,
    quote,
    read_json,
    read_text,
)
from medevac.events.parsing import Parsed, ParseError, Refusal
from medevac.events.values import (
    UNSUPPORTED,
    entities,
    epoch,
    fault_code,
    gpu,
    gpu_serial,
    gpu_uuid,
    host_of,
    ib,
    instant,
    is_node_name,
    mig_ci,
    mig_gi,
    node_name,
    nvlink,
    nvswitch,
    pci,
    real,
    rfc1123,
    severity_word,
    whole,
)
from medevac.model import digest

__all__ = [
    "MAX_DEPTH",
    "MAX_DETAIL_BYTES",
    "MAX_KEY",
    "MAX_PARTS",
    "MAX_SUMMARY",
    "UNSUPPORTED",
    "Fields",
    "Reading",
    "clean",
    "entities",
    "epoch",
    "fault_code",
    "gpu",
    "gpu_serial",
    "gpu_uuid",
    "host_of",
    "ib",
    "instant",
    "is_node_name",
    "join_key",
    "json_value",
    "keyed",
    "looks_like_json",
    "mig_ci",
    "mig_gi",
    "node_name",
    "nvlink",
    "nvswitch",
    "one_line",
    "pci",
    "peek_json",
    "quote",
    "read_json",
    "read_text",
    "real",
    "rfc1123",
    "severity_word",
    "small_detail",
    "whole",
]

T = TypeVar("T")
MAX_DETAIL_ITEMS = 40
MAX_DETAIL_TEXT = 500
MAX_DETAIL_BYTES = 8_000
MAX_KEY = 240
MAX_WHERE = 160


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


C = TypeVar("C", bound="str | None")


def keyed(codes: Sequence[C], *key: object) -> Iterator[tuple[C, str, str | None]]:
    """Each code that one level statement names, with the key and the series of its event: of several each has a key of
    its own, and the statement's own is their series, so that one recovery is for all."""
    whole = join_key(*key)
    if len(codes) == 1:
        yield codes[0], whole, None
        return
    for code in codes:
        yield code, join_key(*key, code), whole


class Reading:
    """Collects what one payload says: `add` events, wrap each part in `part` so that a bad one is only refused."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.events: list[HealthEvent] = []
        self.refused: list[Refusal] = []
        self.truncated = 0
        self.left = 0
        """Parts beyond what is read of one list: they count as truncated."""

    def first(self, parts: Sequence[T], limit: int = MAX_PARTS) -> Sequence[T]:
        """As many as are read of one list. The others are counted and told: nothing of them is known."""
        self.left += max(0, len(parts) - limit)
        return parts[:limit]

    def take_left(self) -> int:
        """Counts what was left as truncated and returns its number, for a sender that tells it in its own words."""
        left, self.left = self.left, 0
        self.truncated += left
        return left

    @contextmanager
    def part(self, where: str) -> Iterator[None]:
        """A `ParseError` inside refuses this part alone; events that it had already added are taken back."""
        before = len(self.events)
        try:
            yield
        except ParseError as e:
            del self.events[before:]
            said = str(e).removeprefix(f"{where}: ").removeprefix(f"{where} ")
            self.refused.append(Refusal(one_line(where, MAX_WHERE), one_line(said)))

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
        without an `id`, key, kind and digest make one, so that two deliveries of one statement share it. A key or an
        id of which nothing can be seen (" ") is none: what shares it would be taken for one statement."""
        raw = digest(clean(part) if isinstance(part, str) else part)
        dedupe = key if isinstance(key, str) else join_key(*key)
        dedupe = dedupe if one_line(dedupe) else join_key(fault or kind, raw[:24])
        known = join_key(id) if id and one_line(id) else None
        event = HealthEvent(
            source=self.source,
            id=known or f"{self.source}-{digest([dedupe, kind, fault, raw])[:24]}",
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
        self.refused.append(Refusal(one_line(where, MAX_WHERE), one_line(reason)))

    def parsed(self) -> Parsed:
        """The same part twice in one payload is one statement."""
        if left := self.take_left():
            self.add(
                Kind.INFO,
                "monitor/truncated",
                part=["truncated", left, *(e.digest for e in self.events[:1])],
                key="truncated",
                actionable=False,
                summary=f"{left} parts were not read: a payload may hold {MAX_PARTS}; send them again in smaller ones",
                detail={"truncated": left},
            )
        said = {(e.id, e.digest, e.kind, e.fault, e.subject, e.entities): e for e in reversed(self.events)}
        return Parsed(tuple(reversed(said.values())), tuple(self.refused), self.truncated)
