"""What is refused is counted, kept for a person, and taken once its reason is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest
from prometheus_client import REGISTRY

from medevac.fleet.node import Node
from simulation import senders
from simulation.world import World
from tests.unit.worker.conftest import SENDER, StubEngine, bearer
from worker.gateway import bodies
from worker.gateway.services import Services
from worker.stores import Stores

NOW = datetime.now(UTC)
OPERATOR, VIEWER = bearer("otto-token"), bearer("vera-token")


def counted(source: str, reason: str) -> float:
    return REGISTRY.get_sample_value("medevac_refusals_total", {"source": source, "reason": reason}) or 0.0


def taken(source: str, outcome: str) -> float:
    return REGISTRY.get_sample_value("medevac_events_total", {"source": source, "outcome": outcome}) or 0.0


async def letters(client: httpx.AsyncClient) -> list[dict[str, object]]:
    answer = await client.get("/v1/dead-letters", headers=VIEWER)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()
    return found


async def test_thirty_nine_good_alerts_and_a_bad_one(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, services: Services, stores: Stores
) -> None:
    body = json.loads(senders.alertmanager_xid(node, 79, NOW).body)
    good = body["alerts"][0]
    body["alerts"] = [
        {**good, "fingerprint": f"{n:016x}", "labels": {**good["labels"], "alertname": f"A{n}"}} for n in range(39)
    ]
    body["alerts"].insert(20, {"labels": "none", "annotations": {"password": "hunter2-hunter2"}})
    before = counted("alertmanager", "part")
    answer = await client.post("/v1/events/alertmanager", json=body, headers=SENDER)
    assert answer.status_code == 202
    outcomes = [part["outcome"] for part in answer.json()["parts"]]
    assert (outcomes.count("accepted") + outcomes.count("joined"), outcomes.count("refused")) == (39, 1)
    assert counted("alertmanager", "part") == before + 1
    [letter] = await letters(client)
    assert (letter["source"], letter["sender"], letter["why"]) == ("alertmanager", "prometheus", "part")
    assert "21" in str(letter["reason"])
    opened = await client.get(f"/v1/dead-letters/{letter['id']}", headers=VIEWER)
    assert "hunter2" not in opened.text
    assert "A38" in opened.text


@pytest.mark.parametrize(
    ("body", "headers", "why", "status"),
    [
        (b"{", {}, "unreadable", 400),
        (b"x" * 200_000, {}, "too_large", 413),
        (b"\x1f\x8b", {"Content-Encoding": "gzip"}, "encoding", 415),
    ],
)
async def test_each_reason_is_counted_and_kept(
    client: httpx.AsyncClient, body: bytes, headers: dict[str, str], why: str, status: int
) -> None:
    before = counted("alertmanager", why)
    answer = await client.post("/v1/events/alertmanager", content=body, headers={**SENDER, **headers})
    assert answer.status_code == status
    assert counted("alertmanager", why) == before + 1
    [letter] = await letters(client)
    assert letter["why"] == why
    assert letter["reason"] == answer.json()["error"]
    assert letter["size"] == len(body), "as it came"
    assert letter["whole"] is (why == "unreadable")


async def test_of_what_is_too_large_the_beginning_is_kept_and_it_is_not_taken_for_submitted(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores
) -> None:
    body = b'{"password": "hunter2-hunter2", "version": "4", "alerts": [' + b"1," * 100_000

    async def unannounced() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    for content in (body, unannounced()):
        answer = await client.post("/v1/events/alertmanager", content=content, headers=SENDER)
        assert answer.status_code == 413
        letter = (await letters(client))[0]
        assert (letter["why"], letter["whole"]) == ("too_large", False)
        assert int(str(letter["size"])) > 100_000
        opened = await client.get(f"/v1/dead-letters/{letter['id']}", headers=VIEWER)
        assert '"version": "4"' in opened.json()["body"]
        assert "hunter2" not in opened.text
        again = await client.post(f"/v1/dead-letters/{letter['id']}/retry", headers=OPERATOR)
        assert again.status_code == 413
        assert "its sender must repeat it" in again.json()["error"]
    assert all(letter["taken_at"] is None for letter in await letters(client))


async def test_what_only_sounds_like_a_secret_keeps_no_letter_from_being_submitted_again(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, node: Node
) -> None:
    sent = senders.alertmanager_xid(node, 79, NOW)
    body = json.loads(sent.body) | {"authorization": {"action": "a/b"}, "imagePullSecrets": [{"name": "registry"}]}
    raw = json.dumps(body | {"tokens": 5, "secret": None}).encode()
    id = stores.dead_letters.put("alertmanager", "prometheus", "part", "not understood then", {}, raw, NOW)
    again = await client.post(f"/v1/dead-letters/{id}/retry", headers=OPERATOR)
    assert again.status_code == 202, again.text
    assert [(name, event.fault) for _, name, event in engine.reported] == [(node.name, "xid/79")]
    assert await letters(client) == []


async def test_a_letter_with_nothing_in_it_is_not_taken_for_submitted(
    client: httpx.AsyncClient, stores: Stores
) -> None:
    id = stores.dead_letters.put("kmsg", "prometheus", "too_large", "larger than 9 bytes", {}, b"", NOW)
    again = await client.post(f"/v1/dead-letters/{id}/retry", headers=OPERATOR)
    assert again.status_code == 400
    assert f"letter {id} has nothing in it" in again.json()["error"]
    assert [letter["id"] for letter in await letters(client)] == [id]


async def test_a_source_that_is_none_and_a_body_that_never_ends_are_counted_and_kept(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counted("unknown", "unknown_source"), counted("alertmanager", "slow")
    answer = await client.post("/v1/events/alertmanagre", content=b'{"version": "4"}', headers=SENDER)
    assert answer.status_code == 404
    assert "no source is called alertmanagre" in answer.json()["error"]

    async def never() -> AsyncIterator[bytes]:
        yield b"beginning"
        await asyncio.Event().wait()

    monkeypatch.setattr(bodies, "BODY_S", 0.1)
    answer = await client.post("/v1/events/alertmanager", content=never(), headers=SENDER)
    assert answer.status_code == 408
    assert (counted("unknown", "unknown_source"), counted("alertmanager", "slow")) == (before[0] + 1, before[1] + 1)
    kept = {letter["why"]: letter for letter in await letters(client)}
    assert (kept["unknown_source"]["source"], kept["unknown_source"]["whole"]) == ("alertmanagre", True)
    assert (kept["slow"]["size"], kept["slow"]["whole"]) == (9, False)


async def test_strangers_who_ask_for_no_source_are_told_to_sign_in(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/events/alertmanagre", content=b"{}", headers=bearer("wrong"))
    assert answer.status_code == 401
    assert await letters(client) == []


async def test_each_part_that_cannot_be_read_is_counted(client: httpx.AsyncClient, node: Node) -> None:
    body = json.loads(senders.alertmanager_xid(node, 79, NOW).body)
    body["alerts"] += [{"labels": "none"}, {"labels": 7}]
    before = counted("alertmanager", "part"), taken("alertmanager", "refused")
    assert (await client.post("/v1/events/alertmanager", json=body, headers=SENDER)).status_code == 202
    assert (counted("alertmanager", "part"), taken("alertmanager", "refused")) == (before[0] + 2, before[1] + 2)


async def test_a_delivery_that_held_nothing_is_counted(client: httpx.AsyncClient) -> None:
    def empty() -> float:
        return REGISTRY.get_sample_value("medevac_empty_deliveries_total", {"source": "kmsg"}) or 0.0

    before = empty()
    answer = await client.post("/v1/events/kmsg", content=b"hello world", headers=SENDER)
    assert (answer.status_code, answer.json()["parts"]) == (202, [])
    assert empty() == before + 1


async def test_strangers_fill_nothing(client: httpx.AsyncClient) -> None:
    before = counted("alertmanager", "unauthenticated")
    answer = await client.post("/v1/events/alertmanager", content=b"{", headers=bearer("wrong"))
    assert answer.status_code == 401
    assert counted("alertmanager", "unauthenticated") == before + 1
    assert await letters(client) == []


async def test_a_ledger_that_cannot_keep_it_makes_no_5xx(
    client: httpx.AsyncClient, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(type(stores.dead_letters), "put", broken)
    answer = await client.post("/v1/events/alertmanager", content=b"{", headers=SENDER)
    assert answer.status_code == 400


async def test_after_a_fix_it_is_taken(
    client: httpx.AsyncClient, engine: StubEngine, world: World, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender was not allowed to speak for the cluster; now it is."""
    other = next(n for n in world.nodes("sim-b") if n.gpus)
    sent = senders.nvsentinel_xid(other, 79, NOW)
    cloudevents = await client.post("/v1/events/cloudevents", content=sent.body, headers={**sent.headers, **SENDER})
    assert cloudevents.status_code == 403
    [letter] = await letters(client)
    path = f"/v1/dead-letters/{letter['id']}/retry"
    assert (await client.post(path, headers=VIEWER)).status_code == 403, "reading is not ordering"
    again = await client.post(path, headers=OPERATOR)
    assert again.status_code == 403, again.text
    assert len(await letters(client)) == 1, "refused again, it stays"
    sender = services.senders.named("prometheus")
    assert sender is not None
    wider = sender.model_copy(update={"clusters": ("sim-a", "sim-b")})
    monkeypatch.setitem(services.senders._all, "prometheus", wider)
    taken = await client.post(path, headers=OPERATOR)
    assert taken.status_code == 202, taken.text
    assert [(cluster, name) for cluster, name, _ in engine.reported] == [("sim-b", other.name)]
    assert engine.reported[0][2].sender == "prometheus"
    assert await letters(client) == []
    shown = await client.get("/v1/dead-letters", params={"taken": True}, headers=VIEWER)
    assert shown.json()[0]["taken_at"]


async def test_a_retry_that_nobody_holds_stays_too(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, services: Services, node: Node
) -> None:
    sent = senders.kmsg_xid(node, 79, NOW)
    id = stores.dead_letters.put("kmsg", "gone", "unreadable", "who knows", sent.headers, sent.body, NOW)
    gone = await client.post(f"/v1/dead-letters/{id}/retry", headers=OPERATOR)
    assert gone.status_code == 409
    assert "gone" in gone.json()["error"]
    assert (await client.post("/v1/dead-letters/999/retry", headers=OPERATOR)).status_code == 404
    assert (await client.get("/v1/dead-letters/999", headers=VIEWER)).status_code == 404
    assert (await client.get("/v1/dead-letters")).status_code == 401
