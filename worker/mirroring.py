"""The mirror as a part of the worker: who of several speaks, and what it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from activities.census import CensusTaker
from activities.failures import Bounded
from activities.ports import Board, Place
from worker.chat_desk import Mirror
from worker.facts import FactsTaker
from worker.installation import Installation
from worker.intake.leading import Lead
from worker.stores import Stores
from worker.threads import Threads


@dataclass(frozen=True, slots=True)
class Mirroring:
    """The mirror of one process, and its claim to be the one that speaks."""

    mirror: Mirror
    lead: Lead
    _close: tuple[Callable[[], None], ...]

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await self.lead.lead(self.mirror.run, stop)
        finally:
            for close in self._close:
                close()


def mirroring(installation: Installation) -> Mirroring | None:
    """None where the chat's messages can't be changed later."""
    board, stores = installation.registry.chat, installation.stores
    if not isinstance(board, Board):
        return None
    in_chat = {
        person.id: (person.slack.team, person.slack.user) for person in installation.config.people if person.slack
    }
    board.know(places(stores, board.system), in_chat)
    bounded, threads = Bounded(8), Threads(2)
    census = CensusTaker(installation.registry, stores.policies, bounded)
    facts = FactsTaker(installation.registry, stores, bounded, census.take)
    lead = Lead(f"chat/{board.system}", stores.leaders, threads)
    return Mirroring(
        Mirror(stores, board, facts, threads, leads=lambda: lead.holds), lead, (bounded.close, threads.close)
    )


def places(stores: Stores, system: str) -> Callable[[str], Place | None]:
    """How a chat finds the message in whose thread lines about an incident or a question are told."""

    def find(thread: str) -> Place | None:
        found = stores.posts.of(system, (f"incident/{thread}", f"approval/{thread}"))
        place = next((post for post in found.values() if post.reference), None)
        return Place(place.channel, place.reference) if place else None

    return find
