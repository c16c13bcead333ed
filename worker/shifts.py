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


class ShiftChange:
    """Blocking. What couldn't be sent, and surely wasn't, is tried again by the worker whose it is."""

    def __init__(self, stores: Stores, registry: Registry) -> None:
        self._stores = stores
        self._registry = registry
        self._seen: datetime | None = None
        self._mine: datetime | None = None
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
        if now - ended > LATE or (ended == self._seen and ended != self._mine):
            return
        nodes, unread = Inventory(self._registry.clusters).all_nodes()
        found = handover.take(self._stores, nodes, now, began, unread)
        key = StepKey(incident=HANDOVER, step="shift", n=int(ended.timestamp()))
        head = f"Hand-over at {ended:%Y-%m-%d %H:%M} UTC"
        # A line first: of all workers only the one whose line is new speaks.
        if ended != self._mine and self._stores.ledger.add_lines([Line(key=key, at=now, kind="handover", text=head)]):
            self._mine, self._said = ended, 0
        self._seen = ended
        if ended == self._mine:
            self._post(key, handover.messages(head, found))

    def _post(self, key: StepKey, texts: list[str]) -> None:
        for n, text in enumerate(texts[self._said :], start=self._said + 1):
            part = key if n == 1 else key.model_copy(update={"step": f"shift-{n}"})
            try:
                self._registry.chat.post(str(part), HANDOVER, text)
            except NotSent as error:
                log.error("the hand-over could not be posted: %s", error)
                if not error.final:
                    return
            except (Unclear, Unreadable) as error:
                log.error("whether the hand-over was posted nobody knows: %s", error)
            self._said = n
        self._mine = None
