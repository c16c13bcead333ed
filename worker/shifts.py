"""The hand-over at the change of a shift, said in chat once, whichever worker says it."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from activities.messaging import HANDOVER
from activities.ports import NotSent, Unclear, Unreadable
from activities.registry import Registry
from activities.storage.policies import NoPolicy
from medevac.incident import Line, StepKey
from medevac.policy.loading import PolicyError
from worker import handover
from worker.intake.inventory import Inventory
from worker.stores import Stores

log = logging.getLogger(__name__)

LATE = timedelta(hours=1)
"""How long after a change its hand-over is still news."""
PATIENCE = timedelta(minutes=2)
"""After which a hand-over that a worker began and didn't end is another's."""
BEGUN, POSTED = "handover", "handover_posted"
"""Kinds of the ledger lines: who speaks, and that all is said."""


class ShiftChange:
    """Blocking. What couldn't be sent, and surely wasn't, is tried again by the worker whose it is.

    One that dies before it has said all is followed by another, which looks for each message before it posts it.
    """

    def __init__(self, stores: Stores, registry: Registry) -> None:
        self._stores = stores
        self._registry = registry
        self._over: datetime | None = None
        self._mine: datetime | None = None
        self._try = 0
        self._said = 0
        """Messages of the hand-over that are posted already."""

    def look(self, now: datetime) -> None:
        """Raises `Unreadable`."""
        try:
            shifts = self._stores.policies.active().policy.handover
        except (NoPolicy, PolicyError):
            return
        if shifts is None:
            return
        began, ended = shifts.last(now)
        if now - ended > LATE or ended == self._over:
            return
        key = StepKey(incident=HANDOVER, step="shift", n=int(ended.timestamp()))
        head = f"Hand-over at {ended:%Y-%m-%d %H:%M} UTC"
        if not self._speaks(key, head, ended, now):
            return
        nodes, unread = Inventory(self._registry.clusters).all_nodes()
        found = handover.take(self._stores, nodes, now, began, unread)
        if self._post(key, handover.messages(head, found)):
            self._stores.ledger.add_lines([Line(key=key, at=now, kind=POSTED, text=f"{head}: said")])
            self._over, self._mine = ended, None

    def _speaks(self, key: StepKey, head: str, ended: datetime, now: datetime) -> bool:
        """A line first: of all workers only the one whose line is new speaks."""
        lines = [one for one in self._stores.ledger.lines(HANDOVER) if one.key.n == key.n]
        if any(one.kind == POSTED for one in lines):
            self._over, self._mine = ended, None
            return False
        begun = [one.at for one in lines if one.kind == BEGUN]
        if ended == self._mine and len(begun) <= self._try:
            return True
        self._mine = None
        if begun and now - max(begun) < PATIENCE:
            return False
        this = len(begun) + 1
        mine = key if this == 1 else key.model_copy(update={"step": f"shift-try-{this}"})
        text = head if this == 1 else f"{head}: who began it has not ended it, try {this}"
        if not self._stores.ledger.add_lines([Line(key=mine, at=now, kind=BEGUN, text=text)]):
            return False
        self._mine, self._try, self._said = ended, this, 0
        return True

    def _post(self, key: StepKey, texts: list[str]) -> bool:
        """False where there is more to be said, by the next look."""
        chat = self._registry.chat
        for n, text in enumerate(texts[self._said :], start=self._said + 1):
            part = key if n == 1 else key.model_copy(update={"step": f"shift-{n}"})
            try:
                # Of a first try nothing can be there.
                if self._try == 1 or chat.find(str(part)) is None:
                    chat.post(str(part), HANDOVER, text)
            except NotSent as error:
                log.error("the hand-over could not be posted: %s", error)
                if not error.final:
                    return False
            except Unreadable as error:
                log.error("whether the hand-over was posted can't be read: %s", error)
                return False
            except Unclear as error:
                log.error("whether the hand-over was posted nobody knows: %s", error)
            self._said = n
        return True
