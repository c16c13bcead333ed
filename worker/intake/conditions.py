"""Which of a node's conditions are worth saying: what changed, what still holds, what is to be taken back.

Pure: what the conditions mean is read by the senders' own parser. Heartbeats, conditions that say nothing good or bad,
and our own are never worth it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import Any

from medevac.events import k8s_node
from medevac.events.event import HealthEvent, Kind
from medevac.events.kubernetes import PLANNED
from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import detect
from medevac.events.values import instant

Object = Mapping[str, Any]
Meaning = tuple[tuple[str, str, str, tuple[str, ...]], ...]
"""Kind, fault, severity and entities of each fault that a condition names, in whatever order it names them."""

BAD = (Kind.FAULT, Kind.PLANNED)
JOINING = frozenset({"Ready", "NetworkUnavailable"})
"""Bad on every node that joins, until it has joined."""
SILENT = timedelta(hours=1)
"""Kubelets and the usual agents renew a condition's heartbeat every five minutes, whether it changes or not."""
RENEWED = timedelta(minutes=5)
"""A heartbeat so much later than the transition was renewed. Any other may be of one who writes once."""
NEVER_RENEWED = frozenset({"Ready", "NetworkUnavailable", *PLANNED})
"""`Ready` is Kubernetes' own to judge; the others are written when they change, and hold until then."""
NVSENTINEL_BAD = "IsNotHealthy"
"""Its reasons end so. It writes on events alone, and moves the heartbeat when it adds to the message."""


class Level(IntEnum):
    """How much is judged again."""

    CHANGE = 0
    RELIST = 1
    """What is bad is stated again, and what others raised under our name is taken back."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is to be said of one node, by source, and what that leads to once it is held."""

    node: str
    by_source: Mapping[str, Object] = field(default_factory=dict)
    meanings: Mapping[str, Meaning | None] = field(default_factory=dict)
    raw: int | None = None
    """What it was judged by; None where time alone can change the judgement."""
    stale: tuple[str, ...] = ()
    """Types of which something bad stands there that nobody states any more."""


class Conditions:
    """Remembers of each node what was said last: a few small tuples for each condition."""

    def __init__(self, joining_s: float) -> None:
        self._joining_s = joining_s
        self._said: dict[str, dict[str, Meaning | None]] = {}
        self._raw: dict[str, int] = {}
        """What was judged last, and is held as far as it was to be said."""

    def __len__(self) -> int:
        return len(self._said)

    def judge(self, node: Object, now: datetime, level: Level, owed: Collection[str] = ()) -> Judged:
        """`owed`: types of conditions that were raised under our name, by whomever, and not taken back."""
        name = str(node["metadata"]["name"])
        raw = _fingerprint(node)
        if self._raw.get(name) == raw and not owed and (level is Level.CHANGE or not self.is_bad(name)):
            return Judged(name)
        said, young = self._said.get(name, {}), self._joins(node, now)
        by_source: dict[str, list[Object]] = {}
        meanings: dict[str, Meaning | None] = {}
        waits = False
        silent, stale = _silent(node, now), list[str]()
        for condition, meaning in _read(node):
            kind = str(condition.get("type"))
            if meaning is None:  # it can't be read, which is told once
                worth = kind not in said
            elif _is_bad(meaning):
                if kind in silent:
                    stale.append(kind)
                    waits = True
                    if kind in owed:
                        meanings[kind] = meaning  # not said, and still to be taken back
                    continue
                worth = level > Level.CHANGE or said.get(kind) != meaning
                if worth and young and kind in JOINING and said.get(kind) is None:
                    worth, waits = False, True
            elif meaning[0][0] == Kind.RECOVERED:
                worth = _is_bad(said.get(kind)) or kind in owed
            else:
                continue
            if worth:
                by_source.setdefault(source_of(kind), []).append(condition)
                meanings[kind] = meaning
        payload = {source: _only(node, some) for source, some in by_source.items()}
        return Judged(name, payload, meanings, None if waits else raw, tuple(stale))

    def held(self, judged: Judged) -> None:
        """It was taken, or lies where a person finds it; or there was nothing to say."""
        if judged.meanings:
            self._said.setdefault(judged.node, {}).update(judged.meanings)
        if judged.raw is not None:
            self._raw[judged.node] = judged.raw

    def gone(self, node: str) -> None:
        self._raw.pop(node, None)
        self._said.pop(node, None)

    def raised(self, node: str, judged: Judged | None = None) -> frozenset[str]:
        """Types of which something bad was said last, or will be when `judged` is said."""
        held = frozenset(_bad(self._said.get(node, {})))
        return held | frozenset(_bad(judged.meanings)) if judged else held

    def is_bad(self, node: str) -> bool:
        return bool(self.raised(node))

    def _joins(self, node: Object, now: datetime) -> bool:
        created = instant(node["metadata"].get("creationTimestamp"))
        return created is not None and (now - created).total_seconds() < self._joining_s


def _silent(node: Object, now: datetime) -> frozenset[str]:
    """Types whose writer is gone while others of the node are heard. Without a heartbeat none is.

    Gone is who renewed it and has stopped. What was written once holds, unless the node has become ready since: it may
    have been rebooted (nothing tells when it was), and what nobody has said again of that boot is not to be acted on.
    """
    conditions: list[Object] = node["status"]["conditions"]
    heard = [(one, at) for one in conditions if (at := instant(one.get("lastHeartbeatTime"))) is not None]
    newest = max((at for _, at in heard), default=None)
    if newest is None or now - newest > SILENT:
        return frozenset()
    back = max(filter(None, (_changed(one) for one in conditions if _is_ready(one))), default=None)
    return frozenset(
        str(one.get("type"))
        for one, at in heard
        if newest - at > SILENT
        and one.get("type") not in NEVER_RENEWED
        and not str(one.get("reason")).endswith(NVSENTINEL_BAD)
        and (((began := _changed(one)) is not None and at - began > RENEWED) or (back is not None and back > at))
    )


def _changed(condition: Object) -> datetime | None:
    return instant(condition.get("lastTransitionTime"))


def _is_ready(condition: Object) -> bool:
    return condition.get("type") == "Ready" and condition.get("status") == "True"


def _is_bad(meaning: Meaning | None) -> bool:
    return meaning is not None and any(one[0] in BAD for one in meaning)


def _bad(meanings: Mapping[str, Meaning | None]) -> Iterator[str]:
    return (kind for kind, meaning in meanings.items() if _is_bad(meaning))


@lru_cache(maxsize=1_000)
def source_of(condition: str) -> str:
    """Whose condition it is: always the same, because only who raised a fault can take it back."""
    body = json.dumps({"kind": "Node", "status": {"conditions": [{"type": condition}]}}).encode()
    return source_in(Payload(body))


def source_in(payload: Payload) -> str:
    """Whose shape it has; a plain node's where nobody else knows it."""
    try:
        return detect(payload).SOURCE
    except ParseError:
        return k8s_node.SOURCE


def _read(node: Object) -> Iterator[tuple[Object, Meaning | None]]:
    """Each condition with what it says; None where it can't be read, and nothing where it says nothing."""
    try:
        together = k8s_node.parse(Payload(json.dumps(node).encode())).events
    except ParseError:
        together = ()
    events: dict[object, list[HealthEvent]] = {}
    for event in together:
        events.setdefault(event.detail.get("condition"), []).append(event)
    for condition in node["status"]["conditions"]:
        if those := events.get(condition.get("type")):
            yield condition, _meaning(those)
            continue
        try:
            if k8s_node.parse(Payload(json.dumps(_only(node, [condition])).encode())).refused:
                yield condition, None
        except ParseError:
            yield condition, None


def _only(node: Object, conditions: list[Object]) -> Object:
    return {**node, "status": {**node["status"], "conditions": conditions}}


def _meaning(events: list[HealthEvent]) -> Meaning:
    return tuple(sorted({(one.kind.value, one.fault or "", one.severity or "", one.entities) for one in events}))


def _fingerprint(node: Object) -> int:
    said = ((c.get("type"), c.get("status"), c.get("reason"), c.get("message")) for c in node["status"]["conditions"])
    return hash((node["metadata"].get("uid"), *map(str, said)))
