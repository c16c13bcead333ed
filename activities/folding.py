"""A storm of incidents is not a storm of messages: beyond a few within a minute, those of one topic are told together.

What is folded stands in the ledger, so that nothing is lost with a process, and any sweep may tell it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.failures import PROTECTIVE_BUDGET_S, Bounded, redact, waits
from activities.ports import Unreadable
from activities.storage.ledger import Ledger
from medevac.incident import Line, StepKey

ALONE = 3
"""Messages of one topic within `WINDOW` that are posted one by one; while it stays that many, all others are folded."""
WINDOW = timedelta(seconds=60)
SETTLED = timedelta(seconds=5)
"""Kept between a window's end and its telling: another process may still be writing the window's last line."""
ATTEMPTS, RETRY_S = 6, 2.0
"""So often and so soon a ledger that doesn't answer is asked before one message of a storm is told by itself."""
LOOK_BACK_H = 3
"""How long nobody may sweep before what was folded is no longer told in chat; the incidents stand in the ledger."""
NAMED = 3
TOLD, FOLDED, DIGEST = "told", "folded", "digest"


def book(at: datetime) -> str:
    """What the lines of one hour are filed under, so that no reading grows with the installation's age."""
    return f"messages-{at:%Y%m%dT%H}"


def _books(now: datetime, hours: int) -> list[str]:
    return [book(now - timedelta(hours=back)) for back in reversed(range(hours + 1))]


class Folding:
    """Decides for each message whether it is posted now. One a process; processes agree through the ledger."""

    def __init__(self, ledger: Ledger, bounded: Bounded) -> None:
        self._ledger = ledger
        self._bounded = bounded
        self._lock = threading.Lock()
        self._lately: dict[str, deque[datetime]] = {}

    def folds(self, key: StepKey, topic: str, text: str, page: bool, now: datetime, attempt: int = 1) -> bool:
        """True when the message is written down to be told with others. Asked again for one key, it answers alike.

        A ledger that can't be reached folds nothing: better told twice than never. In a storm, which makes it slow, it
        is asked again for a while first: raises `ApplicationError` then.
        """
        with self._lock:
            lately = self._lately.setdefault(topic, deque(maxlen=ALONE))
            storm = len(lately) == ALONE and lately[0] > now - WINDOW
            sure = storm and attempt == 1
            try:
                folded = self._bounded.call(PROTECTIVE_BUDGET_S, self._decide, key, topic, text, page, now, sure)
            except Unreadable as error:
                if storm and attempt < ATTEMPTS:
                    raise waits(
                        f"too many messages to tell them one by one, and the ledger: {error}", RETRY_S
                    ) from None
                folded = False
            lately.append(now)
            return folded

    def _decide(self, key: StepKey, topic: str, text: str, page: bool, now: datetime, sure: bool) -> bool:
        known = [line for name in _books(now, 1) for line in self._ledger.lines(name)] if not sure else []
        if before := [line for line in known if line.key.step == str(key)]:
            return before[0].kind == FOLDED
        recent = [line.at for line in known if line.data.get("topic") == topic and line.at > now - WINDOW]
        folded = sure or len(recent) >= ALONE
        line = Line(
            key=StepKey(incident=book(now), step=str(key)),
            at=now,
            kind=FOLDED if folded else TOLD,
            text=redact(text, 300) if folded else "",
            data={"topic": topic, "page": page},
        )
        self._ledger.add_lines([line])
        return folded


@dataclass(frozen=True, slots=True)
class Digest:
    """What was folded within one window, as one message; `line` is the right to post it."""

    line: Line
    text: str
    page: bool


def due(ledger: Ledger, now: datetime) -> Digest | None:
    """The oldest window whose messages nobody has told yet, once it is over. Every process makes the same of it."""
    lines = [line for name in _books(now, LOOK_BACK_H) for line in ledger.lines(name)]
    told = [datetime.fromisoformat(str(line.data["since"])) for line in lines if line.kind == DIGEST]
    left = [
        line for line in lines if line.kind == FOLDED and not any(since <= line.at < since + WINDOW for since in told)
    ]
    if not left:
        return None
    since = min(line.at for line in left)
    if now < since + WINDOW + SETTLED:
        return None
    window = [line for line in left if line.at < since + WINDOW]
    page = any(bool(line.data.get("page")) for line in window)
    line = Line(
        key=StepKey(incident=book(since), step=f"{DIGEST}-{since.isoformat()}"),
        at=now,
        kind=DIGEST,
        text="",
        data={"since": since.isoformat()},
    )
    return Digest(line, _words(window), page)


def _words(window: Iterable[Line]) -> str:
    listed = list(window)
    topics = Counter(str(line.data.get("topic")) for line in listed)
    counts = ", ".join(f"{count} × {topic}" for topic, count in topics.most_common())
    first = [line.text for line in listed[:NAMED]]
    rest = [f"… and {len(listed) - NAMED} more"] if len(listed) > NAMED else []
    return "\n".join([f"Told together, {counts}; `medevac incidents` lists all that are open:", *first, *rest])
