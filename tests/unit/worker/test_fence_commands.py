"""`medevac thaw` and `medevac fences`, over the gateway's own routes: who wants to go on, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.worker.test_case_commands import Api
from worker.cli import people as commands
from worker.cli.app import run
from worker.gateway.services import Services
from worker.stores import Stores

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def frozen(services: Services, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_api", lambda: Api(services))
    stores.fences.freeze("all", "kim", "smoke", at=NOW - timedelta(hours=3))


def test_the_reason_is_kept_and_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["thaw", "all", "--reason", "the smoke is gone"]) == 0
    assert "all stays frozen: 1 of 2 people want to thaw it (otto)" in capsys.readouterr().out
    assert run(["fences"]) == 0
    listed = capsys.readouterr().out
    assert "otto at " in listed
    assert "the smoke is gone" in listed


def test_the_second_voter_is_told_that_the_first_ones_word_has_lapsed(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    stores.fences.thaw("all", "ada", NOW - timedelta(minutes=90), "it was smoke")
    lapsed = "no longer counts: it is more than 60 min old"
    assert run(["fences"]) == 0
    listed = capsys.readouterr().out
    assert "all: ada's word of" in listed
    assert lapsed in listed
    assert run(["thaw", "all"]) == 0
    said = capsys.readouterr().out
    assert "all stays frozen: 1 of 2 people want to thaw it (otto); ada's word of" in said
    assert lapsed in said
    stores.fences.thaw("all", "ada", NOW)
    assert not stores.fences.active()
