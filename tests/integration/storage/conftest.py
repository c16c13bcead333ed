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
from medevac.policy.active import PolicyVersion
from medevac.policy.policy import Policy
from tests.integration.storage import postgres
from tests.unit.fleet.fleet import T0


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    if why := postgres.missing():
        pytest.skip(why)
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    return postgres.new_database(request.getfixturevalue("postgres_url"), f"t{uuid.uuid4().hex}")


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    database.upgrade()
    yield database
    database.close()


@dataclass
class FixedPolicy:
    """The policy in force, as tests set it."""

    limits: Limits = field(default_factory=Limits)

    def active(self) -> PolicyVersion:
        policy = Policy(name="test", simulated_only=True, limits=self.limits)
        return _Version(version=1, hash="h", text="", author="t", applied_at=T0, fixed=policy)


class _Version(PolicyVersion):
    fixed: Policy

    @property
    def policy(self) -> Policy:
        return self.fixed


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
