"""What the gateway's routes work with; made once by `worker.gateway.serve` (or by a test) and kept on the app."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, cast

from fastapi import Depends, Request

from activities.registry import Registry
from medevac.approvals.signing import Signer
from medevac.events.parsing import MAX_PAYLOAD_BYTES
from worker.cards import Cards
from worker.cli.api import CLIENT
from worker.config import Console, Scorecard
from worker.engine import Engine
from worker.gateway.handshakes import Handshakes
from worker.gateway.people import People, Principal, Right
from worker.gateway.senders import Senders
from worker.intake.asking_back import asks_back
from worker.intake.delivery import Deliveries, Speaker
from worker.intake.inventory import Inventory
from worker.intake.pipeline import Intake
from worker.speakers import Sender
from worker.stores import Stores
from worker.threads import Threads


@dataclass(frozen=True, slots=True)
class Services:
    installation: str
    sources: tuple[str, ...]
    senders: Senders
    people: People
    intake: Intake
    deliveries: Deliveries
    handshakes: Handshakes
    inventory: Inventory
    stores: Stores
    engine: Engine
    registry: Registry
    threads: Threads
    cards: Cards
    signer: Signer | None
    """Signs votes; without it nobody can vote here."""
    scorecard: Scorecard = field(default_factory=Scorecard)
    max_body_bytes: int = MAX_PAYLOAD_BYTES
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    repliers: Senders = field(default_factory=lambda: Senders(()))
    """Ticket systems that post their replies, each under its own name."""
    speakers: Mapping[str, Speaker] = field(default_factory=dict)
    """Queues, pollers and watchers, whose refused payloads may be submitted again here."""
    console: Console = field(default_factory=Console)
    session_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs the console's sessions; gateways that share it share them."""
    large: AbstractAsyncContextManager[object] = field(default_factory=lambda: asyncio.Semaphore(2))
    """Held while a large delivery is in memory."""
    small: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)

    def speaker(self, name: str) -> Speaker | None:
        """A configured sender, whatever it posts through."""
        sender = self.senders.named(name)
        return speaks(sender) if sender else self.speakers.get(name)


def speaks(sender: Sender) -> Speaker:
    return Speaker(sender.name, sender.sources, sender.clusters, sender.cluster_names, asks_back(sender))


async def services(request: Request) -> Services:
    # Not a plain function: those are run on a thread, which costs more than they do.
    return cast(Services, request.app.state.services)


async def principal(request: Request) -> Principal:
    """Any person with a token may read."""
    person = (await services(request)).people.sign_in(request.headers.get("authorization", ""))
    person.require(Right.READ)
    # Both bring a token: our own client says that it is one, and nobody can say that they are another way.
    return person.by("cli" if request.headers.get("user-agent", "").startswith(CLIENT) else "api")


Served = Annotated[Services, Depends(services)]
SignedIn = Annotated[Principal, Depends(principal)]
