"""`medevac breakers`, over the gateway's own routes: whose word to close one counts, and whose no longer, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from activities.storage.tables import breakers, sightings
from tests.unit.worker.test_case_commands import Api
from worker.cli import people as commands
from worker.cli.app import run
from worker.gateway.services import Services
from worker.stores import Stores

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def ada_wants_it_closed(services: Services, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_api", lambda: Api(services))
    opened_at, looked_at = NOW - timedelta(minutes=20), NOW - timedelta(minutes=10)
    row = {"cluster": "sim-a", "cause": "degraded", "opened_at": opened_at, "reason": "10 grants"}
    votes = [{"by": "ada", "at": looked_at.isoformat()}]
    with stores.database.transaction() as connection:
        connection.execute(sa.insert(breakers).values(**row, votes=votes))


def showed_since(stores: Stores, count: int) -> None:
    seen = {"fault_class": "degraded", "cluster": "sim-a", "at": NOW - timedelta(minutes=5)}
    with stores.database.transaction() as connection:
        for n in range(count):
            connection.execute(sa.insert(sightings).values(**seen, node=f"n{n}", incident=f"inc-{n}"))


def test_the_second_voter_is_told_that_the_first_ones_word_has_lapsed(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    showed_since(stores, 3)
    lapsed = "UTC no longer counts: 3 more nodes showed a fault of class degraded since"
    assert run(["breakers"]) == 0
    listed = capsys.readouterr().out
    assert "sim-a/degraded: ada's word of" in listed
    assert lapsed in listed
    assert run(["breakers", "--close", "sim-a/degraded"]) == 0
    said = capsys.readouterr().out
    assert "stays open: 1 of 2 people want to close it; ada's word of" in said
    assert lapsed in said
    assert [one.voters for one in stores.guard.weighed_breakers(NOW)] == [("otto",)]


def test_two_who_saw_the_same_trouble_close_it(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["breakers"]) == 0
    assert "no longer counts" not in capsys.readouterr().out
    assert run(["breakers", "--close", "sim-a/degraded"]) == 0
    assert "is closed by ada and otto" in capsys.readouterr().out
