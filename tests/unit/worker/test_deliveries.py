"""`POST /v1/events/<source>`: who may, what is held, and what became of each part."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from medevac.events.event import Kind
from medevac.fleet.node import Node
from simulation import senders
from simulation.world import World
from tests.unit.worker.conftest import SENDER, StubEngine, bearer, signed, view_of
from worker.gateway.services import Services
from worker.stores import Stores

NOW = datetime.now(UTC)


def seen(stores: Stores) -> list[tuple[str | None, str]]:
    return [(row.node, row.outcome) for row in stores.ledger.events_since(NOW - timedelta(days=1))]


async def deliver(client: httpx.AsyncClient, sent: senders.Delivery, **headers: str) -> httpx.Response:
    return await client.post(sent.path, content=sent.body, headers={**sent.headers, **(headers or SENDER)})


async def test_an_alert_is_reported_to_its_nodes_workflow(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores
) -> None:
    answer = await deliver(client, senders.alertmanager_xid(node, 79, NOW))
    assert answer.status_code == 202, answer.text
    [part] = answer.json()["parts"]
    assert (part["outcome"], part["node"], part["cluster"], part["fault"]) == ("accepted", node.name, "sim-a", "xid/79")
    [(cluster, name, event)] = engine.reported
    assert (cluster, name, event.fault, event.sender) == ("sim-a", node.name, "xid/79", "prometheus")
    assert event.received_at is not None
    assert event.fault_class == "critical"
    assert seen(stores) == [(node.name, "accepted")]


async def test_a_kernel_line_over_basic_auth_reaches_any_of_its_clusters(
    client: httpx.AsyncClient, engine: StubEngine, world: World
) -> None:
    other = next(n for n in world.nodes("sim-b") if n.gpus)
    sent = senders.kmsg_xid(other, 79, NOW)
    answer = await client.post(sent.path, content=sent.body, auth=("syslog", "syslog-password"))
    assert answer.status_code == 202, answer.text
    assert [(c, n) for c, n, _ in engine.reported] == [("sim-b", other.name)]


async def test_an_alert_of_a_cluster_that_is_none_of_ours_touches_no_node_of_that_name(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = senders.alertmanager_xid(node, 79, NOW)
    body = json.loads(sent.body)
    body["alerts"][0]["labels"] |= {"cluster": "prod-eu"}
    answer = await client.post(sent.path, json=body, headers=SENDER)
    assert answer.status_code == 202, answer.text
    [part] = answer.json()["parts"]
    assert (part["outcome"], part["node"]) == ("unknown_node", None)
    assert "names cluster prod-eu, which none here is called" in part["reason"]
    assert "cluster_names" in part["reason"]
    assert services.stores.inbox.waiting() == (0, None), "no later try would find it"
    assert engine.reported == []

    sender = services.senders.named("prometheus")
    assert sender is not None
    monkeypatch.setitem(sender.cluster_names, "prod-eu", "sim-a")
    body["alerts"][0]["startsAt"] = NOW.isoformat()
    taken = await client.post(sent.path, json=body, headers=SENDER)
    assert taken.json()["parts"][0]["outcome"] == "accepted", taken.text
    assert [(c, n) for c, n, _ in engine.reported] == [("sim-a", node.name)]


@pytest.mark.parametrize(("boot", "outcome"), [("5c2f0a3e-0000-4000-8000-000000000000", "recorded"), ("", "accepted")])
async def test_a_log_line_of_an_earlier_boot_is_no_new_fault(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, boot: str, outcome: str
) -> None:
    sent = senders.kmsg_xid(node, 79, NOW)
    headers = {**sent.headers, **SENDER, "x-medevac-boot-id": boot or node.machine.boot_id or ""}
    answer = await client.post(sent.path, content=sent.body, headers=headers)
    assert [part["outcome"] for part in answer.json()["parts"]] == [outcome], answer.text
    assert len(engine.reported) == (outcome == "accepted")


async def test_a_webhook_signature_signs_in(client: httpx.AsyncClient, engine: StubEngine, node: Node) -> None:
    sent = senders.alertmanager_xid(node, 79, NOW)
    answer = await client.post(sent.path, content=sent.body, headers=signed(sent.body))
    assert answer.status_code == 202, answer.text
    assert len(engine.reported) == 1


@pytest.mark.parametrize("spoil", ["body", "old", "key", "no-id", "stamp"])
async def test_a_wrong_signature_changes_nothing(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, node: Node, spoil: str
) -> None:
    sent = senders.alertmanager_xid(node, 79, NOW)
    body, headers = sent.body, signed(sent.body)
    if spoil == "body":
        body += b" "
    elif spoil == "old":
        headers = signed(sent.body, at=NOW.timestamp() - 400)
    elif spoil == "key":
        headers = signed(sent.body, key=b"another secret of enough length")
    elif spoil == "no-id":
        del headers["webhook-id"]
    else:
        headers["webhook-timestamp"] = "soon"
    answer = await client.post(sent.path, content=body, headers=headers)
    assert answer.status_code == 401
    assert "\n" not in answer.json()["error"]
    assert engine.reported == []
    assert seen(stores) == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong-token"),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Bearer "},
        {"Authorization": "Digest x"},
    ],
)
async def test_nobody_signed_in_is_401_before_the_body_is_looked_at(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, headers: dict[str, str]
) -> None:
    answer = await client.post("/v1/events/alertmanager", content=b"not even JSON", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"]
    assert (engine.reported, seen(stores)) == ([], [])


async def test_a_persons_token_posts_no_events(client: httpx.AsyncClient, node: Node) -> None:
    answer = await deliver(client, senders.alertmanager_xid(node, 79, NOW), **bearer("ada-token"))
    assert answer.status_code == 401


async def test_a_sender_posts_only_its_own_sources(client: httpx.AsyncClient, engine: StubEngine, node: Node) -> None:
    sent = senders.alertmanager_xid(node, 79, NOW)
    answer = await client.post(sent.path, content=sent.body, auth=("syslog", "syslog-password"))
    assert answer.status_code == 403
    assert "alertmanager" in answer.json()["error"]
    assert engine.reported == []


async def test_a_sender_does_not_speak_for_other_clusters(
    client: httpx.AsyncClient, engine: StubEngine, world: World, stores: Stores
) -> None:
    other = next(n for n in world.nodes("sim-b") if n.gpus)
    named = await deliver(client, senders.nvsentinel_xid(other, 79, NOW))
    assert named.status_code == 403
    assert "sim-b" in named.json()["error"]
    unnamed = await deliver(client, senders.kmsg_xid(other, 79, NOW))
    assert unnamed.status_code == 202
    assert engine.reported == [] or all(cluster == "sim-a" for cluster, _, _ in engine.reported)


async def test_an_unknown_source_lists_the_known(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/events/nagios", content=b"{}", headers=SENDER)
    assert answer.status_code == 404
    assert "alertmanager" in answer.json()["error"]


@pytest.mark.parametrize("claimed", [True, False])
async def test_too_large_is_refused_without_reading_it_all(
    client: httpx.AsyncClient, engine: StubEngine, claimed: bool
) -> None:
    read = 0

    async def endless() -> object:
        nonlocal read
        for _ in range(1_000):
            read += 10_000
            yield b"x" * 10_000

    body = b"x" * 200_000 if claimed else endless()
    answer = await client.post("/v1/events/alertmanager", content=body, headers=SENDER)  # type: ignore[arg-type]
    assert answer.status_code == 413
    assert engine.reported == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"version": "4", "alerts": "no"}'])
async def test_what_cannot_be_read_is_one_line_and_changes_nothing(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, body: bytes
) -> None:
    answer = await client.post("/v1/events/alertmanager", content=body, headers=SENDER)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert (engine.reported, seen(stores)) == ([], [])


async def test_a_content_encoding_is_refused_rather_than_misread(client: httpx.AsyncClient) -> None:
    headers = {**SENDER, "Content-Encoding": "gzip"}
    answer = await client.post("/v1/events/alertmanager", content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 415


async def test_an_unknown_node_is_recorded_and_said(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores
) -> None:
    stranger = node.model_copy(update={"name": "gpu-of-another-house"})
    answer = await deliver(client, senders.kmsg_xid(stranger, 79, NOW))
    assert answer.status_code == 202
    [part] = answer.json()["parts"]
    assert part["outcome"] == "unknown_node"
    assert "gpu-of-another-house" in part["reason"]
    assert engine.reported == []
    [(name, outcome)] = seen(stores)
    assert name is None
    assert outcome.startswith("unknown_node")


async def test_repeats_are_folded_and_changes_are_not(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores, services: Services
) -> None:
    firing = senders.alertmanager_xid(node, 79, NOW)
    for _ in range(5):
        assert (await deliver(client, firing)).status_code == 202
    assert len(engine.reported) == 1
    resolved = senders.alertmanager_xid(node, 79, NOW, resolved_at=NOW + timedelta(minutes=5))
    assert (await deliver(client, resolved)).status_code == 202
    assert [event.kind for _, _, event in engine.joined] == [Kind.RECOVERED]
    assert (await deliver(client, firing)).status_code == 202
    assert len(engine.reported) == 2, "firing again after a clear is news"
    await services.intake.flush()
    lines = seen(stores)
    assert len(lines) == 4, "a line for each statement, and one for its repeats"
    assert (node.name, "joined: a repeat, already signalled, 4 times") in lines


async def test_a_clear_opens_nothing(client: httpx.AsyncClient, engine: StubEngine, node: Node) -> None:
    resolved = senders.alertmanager_xid(node, 79, NOW, resolved_at=NOW)
    answer = await deliver(client, resolved)
    assert answer.status_code == 202
    assert answer.json()["parts"][0]["outcome"] == "recorded"
    assert (engine.reported, engine.joined) == ([], [])


async def test_a_jobs_own_fault_is_recorded_and_told_only_to_a_running_incident(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores
) -> None:
    answer = await deliver(client, senders.alertmanager_xid(node, 13, NOW))
    assert answer.json()["parts"][0]["outcome"] == "recorded"
    assert (engine.reported, engine.joined) == ([], [])
    stores.ledger.upsert_incident(view_of(node))
    engine.live.add(f"node/sim-a/{node.name}")
    answer = await deliver(client, senders.alertmanager_xid(node, 31, NOW))
    assert answer.json()["parts"][0]["outcome"] == "joined"
    assert [event.fault for _, _, event in engine.joined] == ["xid/31"]
    assert engine.reported == []


async def test_readable_parts_are_taken_and_refused_ones_are_named(
    client: httpx.AsyncClient, engine: StubEngine, node: Node
) -> None:
    body = json.loads(senders.alertmanager_xid(node, 79, NOW).body)
    body["alerts"].append("not an alert")
    answer = await client.post("/v1/events/alertmanager", json=body, headers=SENDER)
    assert answer.status_code == 202, answer.text
    assert sorted(part["outcome"] for part in answer.json()["parts"]) == ["accepted", "refused"]
    assert len(engine.reported) == 1


async def test_a_threshold_turns_measurements_into_one_fault(
    client: httpx.AsyncClient, engine: StubEngine, node: Node
) -> None:
    def sample(value: float, n: int) -> senders.Delivery:
        return senders.measurement(node, "gpu_temp", value, NOW + timedelta(seconds=n), window_s=3)

    assert (await deliver(client, sample(87.9, 0))).json()["parts"][0]["outcome"] == "recorded"
    assert (await deliver(client, sample(91, 1))).json()["parts"][0]["outcome"] == "recorded", "one sample is no dwell"
    assert engine.reported == []
    assert (await deliver(client, sample(91, 2))).json()["parts"][0]["outcome"] == "accepted"
    assert [event.fault for _, _, event in engine.reported] == ["thermal/gpu-temp"]
    assert engine.reported[0][2].covers, "a check can prove it gone"


async def test_the_cloudevents_handshake_is_granted_to_the_asking_origin(client: httpx.AsyncClient) -> None:
    answer = await client.options("/v1/events/cloudevents", headers={"WebHook-Request-Origin": "events.example"})
    assert answer.status_code == 200
    assert answer.headers["webhook-allowed-origin"] == "events.example"
    assert int(answer.headers["webhook-allowed-rate"]) > 0


async def test_secrets_of_the_request_do_not_reach_workflow_or_ledger(
    client: httpx.AsyncClient, engine: StubEngine, node: Node, stores: Stores
) -> None:
    await deliver(client, senders.alertmanager_xid(node, 79, NOW))
    held = engine.reported[0][2].model_dump_json() + str(stores.ledger.events_since(NOW - timedelta(days=1)))
    assert "prometheus-token" not in held
