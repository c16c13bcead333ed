"""The scorecard as people read it, from a real ledger: what counts and what doesn't."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from activities.ports import Verb
from activities.storage.certificates import Certificate
from medevac.events.drill import A_DRILL
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.fleet.places import place_of
from medevac.fleet.scorecard import Price, Rate, scores
from medevac.incident import End, IncidentView, Line, Outcome, State, StepKey, StepResult
from medevac.policy.plan import Rung
from worker.cli.app import run
from worker.config import Scorecard
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores

T0 = datetime.now(UTC) - timedelta(hours=5)


def incident(stores: Stores, name: str, node: Node, *, end: End | None = None, fault: str = "xid/79") -> None:
    stores.ledger.upsert_incident(
        IncidentView(
            id=name, workflow_id=f"node/{node.cluster}/{node.name}", cluster=node.cluster, node=node.name,
            machine_id=node.machine.id, fault=fault, fault_class=FaultClass.CRITICAL,
            state=State.ENDED if end else State.PROVING, end=end, opened_at=T0, updated_at=T0,
        )
    )  # fmt: skip


def began(
    stores: Stores, name: str, node: Node, verb: Verb, rung: Rung, at: datetime = T0, outcome: str = "", n: int = 1
) -> StepKey:
    key = StepKey(incident=name, step=f"act-{verb}", n=n)
    stores.intents.begin(
        key, verb, node.cluster, node.name, node.machine.id, None, rung, "xid/79", FaultClass.CRITICAL, at
    )
    if outcome:
        stores.intents.ended(key, outcome)
    return key


def card(stores: Stores, nodes: list[Node], provider: str) -> Any:
    seen = stores.scorecards.observed(nodes, T0 - timedelta(days=1), datetime.now(UTC))
    return next(score for score in scores(seen) if score.place.provider == provider)


def test_boots_repairs_and_faults_are_read_from_the_ledger(stores: Stores, world: Any) -> None:
    nodes = list(world.nodes("sim-a"))
    sky = [n for n in nodes if n.machine.provider == "skyline" and n.gpus]
    # Came after 240 s; never came; may still come; none to be had.
    for name, node, end in (("came", sky[0], End.REPLACED), ("never", sky[1], None), ("waits", sky[2], None)):
        incident(stores, name, node, end=end)
        began(stores, name, node, Verb.REQUEST, Rung.REPLACE)
    began(stores, "came", sky[0], Verb.TERMINATE, Rung.REPLACE, T0 + timedelta(seconds=9), "proved")
    stores.ledger.record_successor(sky[0].machine.id, sky[3].machine.id, "came", T0 + timedelta(seconds=240))
    began(stores, "never", sky[1], Verb.TERMINATE, Rung.REPLACE, T0 + timedelta(seconds=9), "timed_out")
    incident(stores, "none", sky[4])
    stores.intents.void(began(stores, "none", sky[4], Verb.REQUEST, Rung.REPLACE), "InsufficientInstanceCapacity", T0)
    score = card(stores, [n for n in nodes if n != sky[0]], "skyline")
    assert (score.boots, score.pending, score.refused) == (Rate(n=1, of=2), 1, 1)
    assert score.boot_s == 240
    assert score.repairs == {Rung.REPLACE: Rate(n=1, of=2)}
    assert score.faults == {FaultClass.CRITICAL: 4}


def test_a_machine_that_is_gone_counts_where_it_stood(stores: Stores, world: Any) -> None:
    old = next(n for n in world.nodes("sim-a") if n.machine.provider == "skyline" and n.gpus)
    incident(stores, "never", old)
    key = began(stores, "never", old, Verb.REQUEST, Rung.REPLACE, outcome="timed_out")
    acted = StepResult(outcome=Outcome.DONE, proof={"place": list(place_of(old))})
    stores.ledger.add_lines([acted.line(key, "act", T0)])
    left = [n for n in world.nodes("sim-a") if n.name != old.name]
    assert card(stores, left, "skyline").boots == Rate(n=0, of=1)


def test_the_rung_that_was_followed_by_another_has_not_mended(stores: Stores, world: Any) -> None:
    iron = next(n for n in world.nodes("sim-a") if n.machine.provider == "ironworks" and n.gpus)
    incident(stores, "i", iron, end=End.RETURNED)
    began(stores, "i", iron, Verb.REBOOT, Rung.REBOOT, T0, "proved")
    began(stores, "i", iron, Verb.REINSTALL, Rung.REINSTALL, T0 + timedelta(minutes=9), "proved")
    score = card(stores, list(world.nodes("sim-a")), "ironworks")
    assert score.repairs == {Rung.REBOOT: Rate(n=0, of=1), Rung.REINSTALL: Rate(n=1, of=1)}


def test_drills_and_campaigns_do_not_count(stores: Stores, world: Any) -> None:
    iron = next(n for n in world.nodes("sim-a") if n.machine.provider == "ironworks" and n.gpus)
    incident(stores, "drill", iron, end=End.RETURNED)
    began(stores, "drill", iron, Verb.REBOOT, Rung.REBOOT, T0, "proved")
    stores.ledger.add_lines(
        [
            Line(
                key=StepKey(incident="drill", step="decision"),
                at=T0,
                kind="decision",
                text=f"reboot for xid/79: {A_DRILL}",
            )
        ]
    )
    incident(stores, "wanted", iron, end=End.RETURNED, fault="campaign/kernel")
    score = card(stores, list(world.nodes("sim-a")), "ironworks")
    assert (score.faults, score.repairs) == ({}, {})


async def test_people_read_it_and_a_proof_shows(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/providers", headers={"Authorization": "Bearer ada-token"})
    assert answer.status_code == 200, answer.text
    rows = answer.json()["rows"]
    assert {row["place"][0] for row in rows} == {"skyline", "ironworks"}
    assert all(row["certified"] for row in rows), "simulated ones need no proof"
    assert (await client.get("/v1/providers")).status_code == 401


def test_the_newest_proof_counts(stores: Stores) -> None:
    def said(passed: bool, minutes: int) -> None:
        at = T0 + timedelta(minutes=minutes)
        stores.certificates.add(
            Certificate(provider="aws", at=at, by="ada", machine_id="i-1", passed=passed, proof={"steps": []})
        )

    assert not stores.certificates.certified("aws", "")
    said(True, 0)
    assert stores.certificates.certified("aws", "")
    said(False, 1)
    assert not stores.certificates.certified("aws", "")


async def test_the_table_tells_counts_times_and_prices(
    client: httpx.AsyncClient, stores: Stores, world: Any, services: Services, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sky = [n for n in world.nodes("sim-a") if n.machine.provider == "skyline" and n.gpus]
    incident(stores, "came", sky[0], end=End.REPLACED)
    began(stores, "came", sky[0], Verb.REQUEST, Rung.REPLACE, outcome="proved")
    stores.ledger.record_successor(sky[0].machine.id, sky[1].machine.id, "came", T0 + timedelta(seconds=240))
    listed = stores.policies.active().text.replace(
        "    select: {pool: train}\n",
        "    select: {pool: train}\n    replacements: [{provider: skyline, region: north-1}, {provider: ironworks}]\n",
    )
    now = datetime.now(UTC)
    stores.policies.activate(stores.policies.propose(listed, "ada", now), "bob", now)
    prices = (
        Price(provider="skyline", per_hour=31.5),
        Price(provider="skyline", region="north-1", per_hour=28),
        Price(provider="ironworks", per_hour=24),
    )
    priced = dataclasses.replace(services, scorecard=Scorecard(prices=prices))
    transport = httpx.ASGITransport(app=create_app(priced))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        told = (await http.get("/v1/providers", headers={"Authorization": "Bearer ada-token"})).json()

    class Api:
        def get(self, path: str, **query: object) -> Any:
            return told

    monkeypatch.setattr("worker.cli.api.person_api", Api)
    assert run(["providers"]) == 0
    said = capsys.readouterr().out
    for words in (
        "skyline",
        "1 of 1",
        "240 s",
        "replace 1 of 1",
        "critical",
        "31.50",
        "only 1 boots",
        "pool train at skyline/skyline-1/h100-sxm-80g, best first",
        "skyline/north-1: 28.00 and a penalty of",
    ):
        assert words in said, words
    assert list(told["pools"]) == ["train at skyline/skyline-1/h100-sxm-80g"], "what can't be ended isn't replaced"
    ranked = told["pools"]["train at skyline/skyline-1/h100-sxm-80g"]
    assert [one["provider"] for one in ranked] == ["skyline/north-1", "skyline/skyline-1/h100-sxm-80g"]
    assert all(one["adjusted_price"] is not None for one in ranked)
