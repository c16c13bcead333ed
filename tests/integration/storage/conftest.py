"""Every test here runs on SQLite and on PostgreSQL, each on a fresh database at the newest schema."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from activities.guard.store import GuardStore
from activities.storage.database import Database
from medevac.fleet.limits import Limits, Share
from medevac.policy.policy import Policy
from tests.integration.storage import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    if why := postgres.missing():
        pytest.skip(why)
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_migrated(postgres_url: str) -> str:
    """Name of a database at the newest schema, to make others from."""
    database = Database(postgres.new_database(postgres_url, "migrated"))
    database.upgrade()
    database.close()
    return "migrated"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database without a schema."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/empty.sqlite"
    return postgres.new_database(request.getfixturevalue("postgres_url"), f"e{uuid.uuid4().hex}")


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database at the newest schema."""
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/ledger.sqlite"
        database = Database(url)
        database.upgrade()
        database.close()
        return url
    template = request.getfixturevalue("postgres_migrated")
    return postgres.new_database(request.getfixturevalue("postgres_url"), f"t{uuid.uuid4().hex}", template)


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url, timeout_s=60.0)  # that many race for it, however slow it is
    yield database
    database.close()


PLAIN = Policy(name="test")


@dataclass
class FixedPolicy:
    """The policy in force, as tests set it: beyond a real one's bounds too, to look at one limit alone."""

    limits: Limits = field(default_factory=Limits)

    def active(self) -> InForceNow:
        return InForceNow(PLAIN.model_copy(update={"limits": self.limits}))


@dataclass(frozen=True)
class InForceNow:
    policy: Policy


@pytest.fixture
def policies() -> FixedPolicy:
    return FixedPolicy()


@pytest.fixture
def guard(db: Database, policies: FixedPolicy) -> GuardStore:
    return GuardStore(db, policies)


@pytest.fixture
def roomy(policies: FixedPolicy) -> Limits:
    """Nothing but one limit per pool and provider holds anybody."""
    policies.limits = Limits(
        at_once={
            "rack": Share(count=1),
            "pool": Share(count=3),
            "cluster": Share(count=1000),
            "provider": Share(count=1000),
        },
        fleet_nodes=1000,
        breaker_rate=1000,
    )
    return policies.limits
