"""Turns at Temporal: one at a time for each node, in order of arrival; few at once over all; no node too often."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

AT_ONCE = 32
"""Signals in flight over all nodes."""
BURST = 50
PER_S = 10.0
"""Signals that one node may cause at once, and then steadily: what one workflow takes in comfort. What is beyond
waits in the inbox, where repeats of one statement become one."""

Lane = str
K = TypeVar("K")
V = TypeVar("V")


def remember(where: OrderedDict[K, V], key: K, value: V, size: int) -> None:
    """As the newest; the oldest are forgotten beyond `size`."""
    where[key] = value
    where.move_to_end(key)
    while len(where) > size:
        where.popitem(last=False)


def lane_of(cluster: str, node: str) -> Lane:
    return f"{cluster}/{node}"


class Lanes:
    """A node waits for the others at most once at a time, however much it has to say; so the turns are fair."""

    def __init__(
        self,
        at_once: int = AT_ONCE,
        burst: int = BURST,
        per_s: float = PER_S,
        clock: Callable[[], float] = time.monotonic,
        size: int = 20_000,
    ) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._locks: WeakValueDictionary[Lane, asyncio.Lock] = WeakValueDictionary()
        self._burst, self._per_s = burst, per_s
        self._clock = clock
        self._left: OrderedDict[Lane, tuple[float, float]] = OrderedDict()
        self._size = size

    @asynccontextmanager
    async def turn(self, lane: Lane) -> AsyncIterator[None]:
        async with self._locks.setdefault(lane, asyncio.Lock()), self._slots:
            yield

    def may_signal(self, lane: Lane) -> bool:
        """False when the node has used up its share for now; else one signal of it is spent."""
        now = self._clock()
        left, at = self._left.get(lane, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        allowed = left >= 1
        remember(self._left, lane, (left - 1 if allowed else left, now), self._size)
        return allowed
