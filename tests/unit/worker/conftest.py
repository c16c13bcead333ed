"""A gateway over a real ledger (SQLite) and a simulated fleet; only the workflow engine is a stub."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from activities.registry import Registry
from activities.secret import Secret
from medevac.approvals.approval import ApprovalRequest, Vote
from medevac.campaigns.progress import CampaignState
from medevac.events.event import HealthEvent
from medevac.events.registry import sources
from medevac.fleet.node import Node
from medevac.incident import IncidentView, State
from medevac.model import Model
from medevac.policy.loading import preset
from simulation.layout import TEST, Layout
from simulation.world import World
from tests.votes import SIGNER
from worker.cards import Cards
from worker.config import Person
from worker.engine import Declined, NotRunning, Unavailable
from worker.gateway.app import create_app
from worker.gateway.handshakes import Handshakes
from worker.gateway.people import People
from worker.gateway.senders import Senders
from worker.gateway.services import Services
from worker.gateway.sns import SnsVerifier
from worker.intake.delivery import Deliveries
from worker.intake.fold import Fold
from worker.intake.inventory import Inventory
from worker.intake.pipeline import Intake
from worker.parts import build_registry
from worker.speakers import Basic, Sender, Token
from worker.stores import Stores, open_stores
from worker.threads import Threads

CLUSTERS = ("sim-a", "sim-b")
BEGAN = datetime.now(UTC)
"""Once for all, as the tests' own clocks are: a long run must not move one against the other."""
SIGNING = b"a signing secret of enough length"


def sha(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class StubEngine:
    """Records what it is told; `down` and `declines` make it fail as Temporal and workflows do."""

    down: bool = False
    declines: str = ""
    gone: bool = False
    reported: list[tuple[str, str, HealthEvent]] = field(default_factory=list)
    joined: list[tuple[str, str, HealthEvent]] = field(default_factory=list)
    told: list[tuple[str, str, Model, str]] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    campaigns: list[tuple[str, CampaignState]] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    live: set[str] = field(default_factory=set)

    def _answer(self) -> None:
        if self.down:
            raise Unavailable("connection refused")
        if self.gone:
            raise NotRunning("it")
        if self.declines:
            raise Declined(self.declines)

    async def report(self, cluster: str, node: str, event: HealthEvent) -> None:
        self._answer()
        self.reported.append((cluster, node, event))
        self.live.add(f"node/{cluster}/{node}")

    async def join(self, cluster: str, node: str, event: HealthEvent) -> bool:
        self._answer()
        if f"node/{cluster}/{node}" not in self.live:
            return False
        self.joined.append((cluster, node, event))
        return True

    async def tell(self, workflow_id: str, update: str, argument: Model, update_id: str) -> str:
        self._answer()
        self.told.append((workflow_id, update, argument, update_id))
        return f"{update} done"

    async def vote(self, vote: Vote) -> str:
        self._answer()
        self.votes.append(vote)
        return "recorded"

    async def start_campaign(
        self, campaign: str, question: ApprovalRequest | None, state: CampaignState = CampaignState.ASKED
    ) -> None:
        self._answer()
        self.campaigns.append((campaign, state))

    async def follow_case(self, system: str, case: str) -> None:
        self._answer()
        self.woken.append(f"case/{system}/{case}")

    async def wake(self, workflow_id: str) -> None:
        self._answer()
        self.woken.append(workflow_id)

    async def running(self, workflow_id: str) -> bool:
        if self.down:
            raise Unavailable("connection refused")
        return workflow_id in self.live

    async def ping(self) -> None:
        if self.down:
            raise Unavailable("connection refused")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World.create(tmp_path / "world.sqlite", Layout(clusters=CLUSTERS, nodes=16, durations=TEST), 7)
    yield world
    world.close()


@pytest.fixture
def registry(world: World, tmp_path: Path) -> Registry:
    from worker.config import Cluster, Config, Part, Provider, TicketSystem

    config = Config(
        installation="test",
        clusters=tuple(Cluster(name=name, kind="simulation") for name in CLUSTERS),
        providers=tuple(Provider(name=name, kind="simulation") for name in world.layout.providers),
        checks=(Part(name="checks", kind="simulation"),),
        tickets=(TicketSystem(name="tickets", kind="simulation"),),
    )
    return build_registry(config, tmp_path)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = open_stores(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    stores.database.upgrade()
    now = datetime.now(UTC)
    stores.policies.activate(stores.policies.propose(preset("demo"), "setup", now), None, now)
    yield stores
    stores.database.close()


@pytest.fixture
def node(world: World) -> Node:
    return next(n for n in world.nodes("sim-a") if n.gpus)


@pytest.fixture
def engine() -> StubEngine:
    return StubEngine()


def no_fetch(url: str) -> bytes:
    raise AssertionError(f"{url} must not be fetched")


async def fetched(url: str) -> int:
    raise AssertionError(f"{url} must not be fetched")


@pytest.fixture
def services(registry: Registry, stores: Stores, engine: StubEngine, tmp_path: Path) -> Iterator[Services]:
    secret = tmp_path / "signing"
    secret.write_text("whsec_" + base64.b64encode(SIGNING).decode())
    threads = Threads(8)
    inventory = Inventory(registry.clusters)
    senders = (
        Sender(
            name="prometheus",
            sources=("alertmanager", "kmsg", "generic", "cloudevents"),
            clusters=("sim-a",),
            bearer=Token(sha256=sha("prometheus-token")),
        ),
        Sender(
            name="syslog",
            sources=("kmsg",),
            clusters=CLUSTERS,
            basic=Basic(user="syslog", password=Token(sha256=sha("syslog-password"))),
        ),
        Sender(name="signer", sources=("alertmanager",), clusters=CLUSTERS, hmac=Secret(file=secret)),
    )
    people = (
        Person(id="vera", groups=("viewer",), token=Token(sha256=sha("vera-token"))),
        Person(id="otto", groups=("operator",), token=Token(sha256=sha("otto-token"))),
        Person(id="ada", groups=("approver",), token=Token(sha256=sha("ada-token"))),
        Person(id="grace", groups=("approver",), token=Token(sha256=sha("grace-token"))),
        Person(id="carl", groups=("capacity-owners",), token=Token(sha256=sha("carl-token"))),
    )
    intake = Intake(inventory=inventory, stores=stores, engine=engine, fold=Fold(60.0), threads=threads)
    yield Services(
        installation="test",
        sources=sources(),
        senders=Senders(senders),
        people=People(people),
        intake=intake,
        deliveries=Deliveries(intake, stores.dead_letters, threads),
        handshakes=Handshakes(SnsVerifier(no_fetch), threads, fetched),
        inventory=inventory,
        stores=stores,
        engine=engine,
        registry=registry,
        threads=threads,
        cards=Cards(registry, stores),
        signer=SIGNER,
        max_body_bytes=100_000,
    )
    threads.close()


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(services), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


SENDER = bearer("prometheus-token")


def signed(body: bytes, *, at: float | None = None, key: bytes = SIGNING) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    mac = hmac.new(key, f"msg-1.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": "msg-1",
        "webhook-timestamp": stamp,
        "webhook-signature": "v1,bm90IHRoaXMgb25l v1," + base64.b64encode(mac).decode(),
    }


def view_of(node: Node, **changed: object) -> IncidentView:
    view = IncidentView(
        id="inc-1",
        workflow_id=f"node/{node.cluster}/{node.name}",
        cluster=node.cluster,
        node=node.name,
        state=State.EVACUATING,
        opened_at=BEGAN - timedelta(minutes=5),
        updated_at=BEGAN - timedelta(minutes=5),
    )
    return view.model_copy(update=changed)
