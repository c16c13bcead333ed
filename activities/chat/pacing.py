"""How fast one may speak: a pace for each channel and method, and what the other side has asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

CHANNEL_S = 1.0
"""Between two messages in one channel, posted or changed."""
METHOD_S = {"chat.update": 1.2, "conversations.replies": 1.2, "conversations.history": 1.2}
"""Tier 3 is 50 a minute; what is paced by channel only is left out."""


class Paced(Exception):
    """Not now; nothing was sent."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"not before {after_s:.1f} s are over")
        self.after_s = after_s


class Pacing:
    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        scale: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._scale = scale
        self._lock = threading.Lock()
        self._free: dict[str, float] = {}

    def take(self, method: str, channel: str, patience_s: float = 0.0) -> None:
        """Takes the turn, waiting for it at most so long. Raises `Paced` where it isn't due by then."""
        keys = {f"method {method}": METHOD_S.get(method, 0.0)} | ({f"channel {channel}": CHANNEL_S} if channel else {})
        with self._lock:
            now = self._clock()
            due = max(now, *(self._free.get(key, now) for key in keys))
            if due - now > patience_s:
                raise Paced(due - now)
            for key, pace_s in keys.items():
                self._free[key] = due + pace_s * self._scale
        if due > now:
            self._sleep(due - now)

    def hold(self, method: str, after_s: float) -> None:
        """The other side's own wish, which is for the method in the whole workspace."""
        with self._lock:
            key = f"method {method}"
            self._free[key] = max(self._free.get(key, 0.0), self._clock() + after_s)
