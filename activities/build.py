"""All activities of one worker, made once from its parts and stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporalio.client import Client

from activities.asking import AskActivities
from activities.census import CensusTaker
from activities.clock import Clock, utcnow
from activities.evacuation import EvacuationActivities
from activities.failures import Bounded
from activities.guarding import LeaseActivities
from activities.intended import SendOnce
from activities.interceptor import LedgerInterceptor
from activities.machines import MachineActivities
from activities.marking import MarkActivities
from activities.messaging import MessageActivities
from activities.planning import PlanActivities
from activities.precondition import Look
from activities.recording import RecordingActivities
from activities.registry import Registry
from activities.ticketing import TicketActivities
from activities.verification import VerificationActivities

if TYPE_CHECKING:
    from activities.guard.store import GuardStore
    from activities.storage.fences import Fences
    from activities.storage.intents import Intents
    from activities.storage.ledger import Ledger
    from activities.storage.policies import Policies

READERS = 32
WRITERS = 16


@dataclass(frozen=True, slots=True)
class Activities:
    """What a worker registers. Close it after the worker has stopped."""

    implementations: tuple[Callable[..., Any], ...]
    interceptor: LedgerInterceptor
    """Must be among the worker's interceptors: it writes the steps' lines."""
    _pools: tuple[Bounded, ...]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


def build(
    registry: Registry,
    *,
    ledger: Ledger,
    intents: Intents,
    fences: Fences,
    policies: Policies,
    guard: GuardStore,
    client: Client,
    loop: asyncio.AbstractEventLoop,
    clock: Clock = utcnow,
) -> Activities:
    """`loop` is the running loop that `client` belongs to."""
    # Reads and writes apart: a storage that hangs must not keep the world from being read.
    readers, writers = Bounded(READERS), Bounded(WRITERS)
    census = CensusTaker(registry, policies, readers)
    look = Look(registry, ledger, guard, fences, clock)
    once = SendOnce(ledger, writers, clock)
    marks = MarkActivities(registry, guard, census, writers, clock)
    leases = LeaseActivities(guard, census, ledger, writers, clock)
    machines = MachineActivities(registry, look, intents, ledger, clock)
    implementations: tuple[Callable[..., Any], ...] = (
        PlanActivities(registry, ledger, policies, census, readers, clock).plan,
        marks.mark,
        marks.lift,
        leases.acquire,
        leases.release,
        EvacuationActivities(registry, look, clock).evacuate,
        machines.act,
        machines.prove,
        VerificationActivities(registry, clock).verify,
        TicketActivities(registry, once, clock).ticket,
        MessageActivities(registry, once, clock).notify,
        AskActivities(ledger, client, loop, clock).ask,
        RecordingActivities(ledger).record,
    )
    return Activities(implementations, LedgerInterceptor(ledger, writers, clock), (readers, writers))
