"""AWS's request limits, kept on our side: a token bucket for each account, region and API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

READS = (100, 20.0)
WRITES = (50, 5.0)
OWN = {
    "RunInstances": (5, 2.0),
    "StartInstances": (5, 2.0),
    "TerminateInstances": (100, 5.0),
    "CreateTags": (100, 10.0),
}
"""Size and refill per second of a bucket, as published for EC2 (ec2-api-throttling in its developer guide)."""
OTHERS = (10, 5.0)
"""Of the other services, which publish none."""
KEPT_S = 10.0
KEPT_SHARE = 0.3
"""A turn is kept this long for whoever was told to come back for it, or this share of the time it has waited."""
READ_S = 5.0
WRITE_S = 0.5
"""How long a call waits for its turn. One that may be made later comes back for it; a look can't."""


class Later(Exception):
    """Not now. `wait_s` is when the caller's own turn comes."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"kept to the API's rate; next turn in {wait_s:.1f} s")
        self.wait_s = wait_s


@dataclass(slots=True)
class Bucket:
    """Turns in the order of asking: nobody who comes back in time is overtaken, and nobody asks in vain twice."""

    size: float
    per_s: float
    clock: Callable[[], float] = time.monotonic
    _next: float = float("-inf")
    """When the bucket would be full again, were nothing more taken: the turns that are given out reach up to it."""
    _turns: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Whose turn is when, and until when it is kept."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def turn(self, who: str) -> float:
        """Seconds until `who`'s turn; 0 = take it now, and it is taken."""
        now = self.clock()
        with self._lock:
            for name in [name for name, (_, until) in self._turns.items() if until < now]:
                del self._turns[name]
            if who not in self._turns:
                at = self._next = max(self._next, now - self.size / self.per_s) + 1 / self.per_s
                self._turns[who] = (at, at + max(KEPT_S, KEPT_SHARE * (at - now)))
            at, _ = self._turns[who]
            if at > now:
                return at - now
            del self._turns[who]
            return 0.0

    def empty(self) -> None:
        """Somebody else has used it up, as AWS has just told."""
        with self._lock:
            self._next = max(self._next, self.clock())


class Rates:
    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._lock = threading.Lock()

    def take(self, place: str, service: str, api: str, who: str, patience_s: float) -> None:
        """Waits a moment where that is enough; else raises `Later`, and keeps the turn for `who`."""
        bucket = self.bucket(place, service, api)
        if (wait := bucket.turn(who)) > patience_s:
            raise Later(wait)
        while wait > 0:
            time.sleep(wait)
            wait = bucket.turn(who)

    def bucket(self, place: str, service: str, api: str) -> Bucket:
        size, per_s = OTHERS
        if service == "ec2":
            size, per_s = OWN.get(api, READS if api.startswith(("Describe", "Get")) else WRITES)
        with self._lock:
            key = (place, service, api)
            if key not in self._buckets:
                self._buckets[key] = Bucket(max(1.0, size * self._share), per_s * self._share)
            return self._buckets[key]
