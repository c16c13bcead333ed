"""Questions as their voters see them, with what is known now: the same card for chat, terminal and console."""

from __future__ import annotations

from datetime import datetime

from activities.census import CensusTaker
from activities.failures import Bounded
from activities.ports import Board
from activities.registry import Registry
from medevac.approvals.approval import ApprovalView
from medevac.telling.asking import approval_card
from medevac.telling.card import Card
from medevac.telling.facts import Links
from worker.facts import FactsTaker
from worker.stores import Stores


class Cards:
    def __init__(self, registry: Registry, stores: Stores) -> None:
        bounded = Bounded(4)
        census = CensusTaker(registry, stores.policies, bounded)
        self._facts = FactsTaker(registry, stores, bounded, census.take)
        self._registry = registry

    def of(self, view: ApprovalView, now: datetime, incident: str | None = None) -> Card:
        """`incident` is the template of its links, where not the chat's. Blocking; raises `Unreadable`."""
        chat = self._registry.chat
        links = chat.links if isinstance(chat, Board) else Links()
        if incident is not None:
            links = links.model_copy(update={"incident": incident})
        return approval_card(view, self._facts.of(view, now), links)
