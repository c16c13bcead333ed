"""`medevac approvals ID` and `approve`, over the gateway's own routes: what is voted on is what chat shows."""

from __future__ import annotations

import json
import threading
import time

import pytest

from medevac.fleet.node import Node
from medevac.telling.card import plain
from tests.unit.worker.conftest import StubEngine, view_of
from tests.unit.worker.test_case_commands import Api
from tests.unit.worker.test_orders import asked
from worker import facts
from worker.cards import Cards
from worker.cli import people as commands
from worker.cli.app import run
from worker.gateway.services import Services
from worker.stores import Stores


@pytest.fixture(autouse=True)
def question(services: Services, stores: Stores, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    monkeypatch.setattr(commands, "_api", lambda: Api(services))
    stores.ledger.upsert_incident(view_of(node, fault="xid/79", rung="reboot"))
    stores.ledger.upsert_approval(asked())


def test_one_is_shown_with_all_that_its_voters_weigh(services: Services, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["approvals", "inc-1/1"]) == 0
    said = capsys.readouterr().out
    card = plain(services.cards.of(asked(), services.now()), None)
    assert said.splitlines() == card.splitlines()
    assert "Fault: xid/79" in said
    assert "spares: " in said
    assert " EST" in said or " EDT" in said, "in the reader's zone"
    assert run(["approvals", "inc-1/1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["approval"]["id"] == "inc-1/1"
    assert run(["approvals"]) == 0
    assert "inc-1/1" in capsys.readouterr().out


@pytest.mark.parametrize("listed", ["approvals", "incidents"])
def test_a_list_that_was_cut_says_so(
    listed: str, stores: Stores, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    stores.ledger.upsert_incident(view_of(node, id="inc-2"))
    stores.ledger.upsert_approval(asked(id="inc-2/1"))
    assert run([listed, "--json", "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == 1
    assert "only 1 are shown" in printed.err
    assert run([listed]) == 0
    assert capsys.readouterr().err == ""


def test_a_vote_is_for_what_was_shown(
    engine: StubEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter((False, True))
    monkeypatch.setattr("typer.confirm", lambda text: next(answers))
    assert run(["approve", "inc-1/1"]) == 1
    assert "Jobs hit: " in capsys.readouterr().out
    assert not engine.votes
    assert run(["approve", "inc-1/1"]) == 0
    assert [vote.shown_hash for vote in engine.votes] == [asked().shown_hash]


def test_clusters_that_do_not_answer_hold_no_question_back(
    services: Services, node: Node, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "READ_ALL_S", 0.2)
    over = threading.Event()
    cluster = services.registry.cluster(node.cluster)
    monkeypatch.setattr(type(cluster), "node", lambda self, name: over.wait() and None)
    monkeypatch.setattr(type(cluster), "workloads", lambda self, name: [])
    waiters = []
    for n in range(20):
        stores.ledger.upsert_incident(view_of(node, id=f"inc-{n}", fault="xid/79"))
        waiters.append(asked().waiters[0].model_copy(update={"incident": f"inc-{n}"}))
    said = plain(Cards(services.registry, stores).of(asked(waiters=tuple(waiters)), services.now()))
    over.set()
    assert "Nodes (20)" in said
    assert "can't be read now" in said
