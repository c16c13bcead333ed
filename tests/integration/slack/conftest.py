"""A gateway, a mirror and a ledger over a simulated fleet; Slack is a server that behaves as Slack's API does."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from activities.chat.pacing import Pacing
from activities.chat.slack import SlackChat
from activities.failures import Bounded
from activities.ports import Unreadable
from activities.registry import Registry
from medevac.fleet.census import Census
from simulation.world import World
from tests.integration.slack.far_slack import APP_TOKEN, SECRET, TEAM, TOKEN, FarSlack, options
from tests.unit.worker.conftest import CLUSTERS, engine, node, sha, stores, world  # noqa: F401  fixtures
from tests.unit.worker.conftest import services as services_over_a_registry  # noqa: F401
from worker.chat_desk import Mirror
from worker.config import Cluster, Config, Part, Person, Provider, SlackUser, TicketSystem
from worker.facts import FactsTaker
from worker.gateway.app import create_app
from worker.gateway.people import People
from worker.gateway.services import Services
from worker.mirroring import places
from worker.parts import build_registry
from worker.speakers import Token
from worker.stores import Stores
from worker.threads import Threads

PEOPLE = {"vera": "viewer", "otto": "operator", "ada": "approver", "grace": "approver"}
SLACK = {who: f"U0{who.upper()}" for who in PEOPLE}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SLACK_BOT", TOKEN)
    monkeypatch.setenv("TEST_SLACK_SECRET", SECRET)
    monkeypatch.setenv("TEST_SLACK_APP", APP_TOKEN)


@pytest.fixture
def slack() -> Iterator[FarSlack]:
    slack = FarSlack(strict=False).start()
    yield slack
    slack.stop()


@pytest.fixture
def registry(world: World, slack: FarSlack, tmp_path: Path) -> Registry:  # noqa: F811
    config = Config(
        installation="test",
        clusters=tuple(Cluster(name=name, kind="simulation") for name in CLUSTERS),
        providers=tuple(Provider(name=name, kind="simulation") for name in world.layout.providers),
        checks=(Part(name="checks", kind="simulation"),),
        tickets=(TicketSystem(name="tickets", kind="simulation"),),
        chat=Part(name="slack", kind="slack", options=options(slack)),
    )
    return build_registry(config, tmp_path)


@pytest.fixture
def chat(registry: Registry, stores: Stores) -> SlackChat:  # noqa: F811
    assert isinstance(registry.chat, SlackChat)
    registry.chat.api.pacing = Pacing(scale=0.0)
    registry.chat.know(places(stores, "slack"))
    return registry.chat


def people() -> People:
    return People(
        Person(
            id=who,
            groups=(group,),
            token=Token(sha256=sha(f"{who}-token")),
            slack=SlackUser(team=TEAM, user=SLACK[who]),
        )
        for who, group in PEOPLE.items()
    )


@pytest.fixture
def services(services_over_a_registry: Services, chat: SlackChat) -> Services:  # noqa: F811
    return dataclasses.replace(services_over_a_registry, people=people())


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(services)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client
        if getattr(app.state, "slack", None) is not None:
            await app.state.slack.settled()


def no_census(cluster: str) -> Census:
    raise Unreadable("nobody counts here")


@pytest.fixture
def mirror(stores: Stores, chat: SlackChat, registry: Registry) -> Iterator[Mirror]:  # noqa: F811
    bounded, threads = Bounded(2), Threads(1)
    yield Mirror(stores, chat, FactsTaker(registry, stores, bounded, no_census), threads)
    bounded.close()
    threads.close()
