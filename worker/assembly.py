"""Everything that a worker runs, put together once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Interceptor

from activities.approved import Approved
from activities.asking import AskActivities
from activities.campaign_checks import Report
from activities.campaign_world import CampaignWorld
from activities.campaigning import CampaignActivities
from activities.casework import CaseActivities, Confirm
from activities.census import CensusTaker
from activities.evacuation import EvacuationActivities
from activities.evidence import Evidence
from activities.failures import Bounded
from activities.folding import Folding
from activities.guarding import LeaseActivities
from activities.holding import Holding
from activities.intended import SendOnce
from activities.interceptor import LedgerInterceptor
from activities.machines import MachineActivities
from activities.marking import MarkActivities
from activities.messaging import MessageActivities
from activities.offers import Offers, RecentCard
from activities.planned import Notices
from activities.planning import PlanActivities
from activities.precondition import Look
from activities.quietly import Quietly
from activities.recording import RecordingActivities
from activities.registry import Registry
from activities.signatures import TIMINGS
from activities.successors import SuccessorActivities
from activities.ticketing import Follow, TicketActivities
from activities.verification import VerificationActivities
from medevac.cases.case import Case
from medevac.events.event import HealthEvent
from medevac.incident import IncidentView
from worker.config import Scorecard
from worker.engine import TemporalEngine
from worker.installation import Installation
from worker.meanwhile import Meanwhile
from worker.orphans import OrphanMarks
from worker.paging import Pages
from worker.quiet import listening
from worker.settings import Settings
from worker.shifts import ShiftChange
from worker.stores import Stores
from worker.sweep import Sweep
from worker.threads import Threads
from worker.vote_keys import public_keys
from workflows.approval import ApprovalWorkflow
from workflows.campaign import CampaignWorkflow
from workflows.case import CaseWorkflow
from workflows.messages import By
from workflows.node import NodeWorkflow

WORKFLOWS: tuple[type, ...] = (NodeWorkflow, ApprovalWorkflow, CampaignWorkflow, CaseWorkflow)
CALL_S = 2.0
"""The start of a case must fit into the step that asks for it."""
UPDATE_S = 20.0


@dataclass(frozen=True, slots=True)
class Assembly:
    implementations: list[Callable[..., Any]]
    interceptors: list[Interceptor]
    sweep: Sweep
    version: str
    _close: tuple[Callable[[], None], ...]

    def close(self) -> None:
        for close in self._close:
            close()


def assemble(settings: Settings, installation: Installation, client: Client) -> Assembly:
    """Call it on the event loop that `client` belongs to."""
    registry, stores = installation.registry, installation.stores
    bounded, threads = Bounded(), Threads(4)
    folding = Folding(stores.ledger, bounded)
    engine = TemporalEngine(client, TIMINGS[settings.timing], settings.signal_timeout_s)
    loop = asyncio.get_running_loop()

    def report(cluster: str, node: str, event: HealthEvent) -> None:
        asyncio.run_coroutine_threadsafe(engine.report(cluster, node, event), loop).result(
            2 * settings.signal_timeout_s
        )

    def follow(case: Case) -> None:
        asyncio.run_coroutine_threadsafe(engine.follow_case(case.system, case.id), loop).result(CALL_S)

    def confirm(view: IncidentView, who: str, why: str, token: str) -> None:
        told = engine.tell(
            view.workflow_id, "confirm_repaired", By(incident=view.id, who=who, reason=why), f"confirm_repaired:{token}"
        )
        asyncio.run_coroutine_threadsafe(told, loop).result(UPDATE_S)

    return Assembly(
        implementations=implementations(
            registry,
            stores,
            client,
            loop,
            bounded,
            folding,
            public_keys(installation.config),
            installation.config.scorecard,
            report,
            follow,
            confirm,
        ),
        interceptors=[LedgerInterceptor(stores.ledger, bounded)],
        sweep=Sweep(
            stores,
            engine,
            registry.chat,
            folding,
            Meanwhile(registry, stores.ledger),
            threads,
            settings.sweep_s,
            marks=OrphanMarks(registry, stores, engine, threads),
            quiet=listening(stores.ledger, installation.config),
            pages=Pages(stores, registry.pagers, installation.config.installation, quietly(stores).about),
            shifts=ShiftChange(stores, registry),
        ),
        version=version("medevac"),
        _close=(bounded.close, threads.close, stores.database.close),
    )


def implementations(
    registry: Registry,
    stores: Stores,
    client: Client,
    loop: asyncio.AbstractEventLoop,
    bounded: Bounded,
    folding: Folding,
    vote_keys: Sequence[str],
    scorecard: Scorecard,
    report: Report,
    follow: Follow,
    confirm: Confirm,
) -> list[Callable[..., Any]]:
    """Every activity, bound to what it acts on."""
    look = Look(
        registry, stores.ledger, stores.guard, stores.fences, Approved(stores.ledger, stores.campaigns, vote_keys)
    )
    census = CensusTaker(registry, stores.policies, bounded)
    once = SendOnce(stores.ledger, bounded)
    evidence = Evidence(registry, registry.evidence, stores.policies, bounded) if registry.evidence else None
    recent = RecentCard(registry, stores.scorecards, scorecard.prices, scorecard.penalties, bounded)
    objects = (
        PlanActivities(
            registry,
            stores.ledger,
            stores.policies,
            census,
            bounded,
            certificates=stores.certificates,
            cases=stores.cases,
            silences=stores.silences,
            offers=Offers(registry, recent, stores.certificates.certified),
        ),
        MarkActivities(registry, stores.guard, census, bounded, ledger=stores.ledger),
        LeaseActivities(
            stores.guard, census, stores.ledger, bounded, holding=Holding(stores.policies, stores.silences)
        ),
        EvacuationActivities(
            registry,
            look,
            policies=stores.policies,
            evidence=evidence,
            notices=Notices(registry, stores.ledger),
        ),
        MachineActivities(registry, look, stores.intents, stores.ledger, evidence=evidence),
        SuccessorActivities(registry, look),
        VerificationActivities(registry),
        TicketActivities(registry, stores.ledger, stores.cases, stores.policies, follow, bounded),
        CaseActivities(registry, stores.ledger, stores.cases, stores.policies, stores.fences, once, confirm),
        MessageActivities(registry, once, folding, quietly=quietly(stores)),
        AskActivities(stores.ledger, client, loop, vote_keys),
        RecordingActivities(stores.ledger),
        CampaignActivities(stores.campaigns, CampaignWorld(stores.database, census), registry, report, stores.policies),
    )
    return [method for one in objects for method in _activities_of(one)]


def quietly(stores: Stores) -> Quietly:
    return Quietly(stores.ledger, stores.policies, stores.silences)


def _activities_of(one: object) -> list[Callable[..., Any]]:
    found = []
    for name in dir(type(one)):
        function = getattr(type(one), name)
        if callable(function) and activity._Definition.from_callable(function) is not None:
            found.append(getattr(one, name))
    return found
