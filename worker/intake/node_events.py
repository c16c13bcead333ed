"""Which Events about nodes are news. Pure: what they mean is read by the senders' own parser.

An Event that is listed may be old: it is news when nobody heard this occurrence (uid and count), it isn't stale, and
its node has not been rebooted since.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from medevac.events import k8s_node
from medevac.events.event import Kind
from medevac.events.parsing import ParseError, Payload
from medevac.events.values import instant
from medevac.faults.expected import STALE_AFTER
from worker.intake.conditions import source_in
from worker.intake.lanes import remember

Object = Mapping[str, Any]
WORTH = (Kind.FAULT, Kind.LIFECYCLE)
"""Normal Events are a node's daily life, and nobody waits for them."""
MOST = 50_000
"""Remembered; who is forgotten may be said again, and is known again by its id."""
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class News:
    uid: str
    id: str
    """As its statement's: the same in every process."""
    source: str
    thing: Object


class NodeEvents:
    def __init__(self, size: int = MOST) -> None:
        self._size = size
        self._last: OrderedDict[str, str] = OrderedDict()
        """By uid, the occurrence that was heard last."""
        self._rebooted: OrderedDict[str, datetime] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def look(self, thing: Object) -> News | None:
        """None for what says nothing of a node's health, for what we say ourselves, and for what was heard."""
        payload = Payload(json.dumps(thing).encode())
        uid = str((thing.get("metadata") or {}).get("uid") or "")
        try:
            event = next(iter(k8s_node.parse(payload).events), None)
        except ParseError:  # it is passed on, to be refused where people look
            id = f"?{uid}"
        else:
            if event is None or event.kind not in WORTH or event.marker is not None:
                return None
            id = event.id
            if event.fault == "event/Rebooted" and event.subject:
                remember(self._rebooted, event.subject, happened(thing), self._size)
        return None if self._last.get(uid) == id else News(uid, id, source_in(payload), thing)

    def is_old(self, news: News, heard: Collection[str], now: datetime) -> bool:
        """Of one that was listed."""
        about = news.thing.get("involvedObject") or {}
        at = happened(news.thing)
        if at == NEVER:
            return news.id in heard
        rebooted = self._rebooted.get(str(about.get("name")), NEVER)
        return news.id in heard or now - at > STALE_AFTER or at < rebooted

    def held(self, news: News) -> None:
        remember(self._last, news.uid, news.id, self._size)

    def gone(self, uid: str) -> None:
        self._last.pop(uid, None)


def happened(thing: Object) -> datetime:
    """The latest that it tells; `NEVER` where it tells no time."""
    series, meta = thing.get("series") or {}, thing.get("metadata") or {}
    said = (
        *(thing.get(name) for name in ("lastTimestamp", "firstTimestamp", "eventTime")),
        series.get("lastObservedTime"),
    )
    times = [at for at in map(instant, said) if at] or [at for at in (instant(meta.get("creationTimestamp")),) if at]
    return max(times, default=NEVER)
