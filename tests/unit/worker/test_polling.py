"""Monitors that must be asked: gpud, and an Alertmanager that held alerts back."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import REGISTRY

from medevac.events.reading import Reading
from medevac.fleet.node import Node
from simulation import senders
from simulation.world import World
from tests.unit.worker.conftest import SENDER, StubEngine
from worker.gateway import services as services_module
from worker.gateway.services import Services
from worker.intake import poller as polling
from worker.intake.asking_back import asks_back, question
from worker.intake.living import Living
from worker.intake.poller import GpudPoller, client_of
from worker.speakers import Alertmanager, Poller, Sender, Target, Token

NOW = datetime.now(UTC)
UNHEALTHY = [
    {
        "component": "accelerator-nvidia-error-xid",
        "states": [
            {
                "time": "2026-03-01T12:00:00Z",
                "name": "error_xid",
                "health": "Unhealthy",
                "reason": "XID 79 (GPU has fallen off the bus) detected on 0000:9b:00",
            }
        ],
    }
]


def poller(*targets: Target, **options: Any) -> Poller:
    return Poller(name="gpud", clusters=("sim-a",), targets=targets, every_s=3600, **options)


def answering(handler: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(handler))


async def test_a_gpud_answer_is_about_the_node_that_was_asked(
    services: Services, engine: StubEngine, node: Node
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "broken":
            return httpx.Response(500)
        if request.url.host == "huge":
            return httpx.Response(200, content=b"x" * (polling.MAX_PAYLOAD_BYTES + 1))
        return httpx.Response(200, json=UNHEALTHY if request.url.host == "sick" else "no component")

    targets = [Target(url=f"https://{host}:15132", node=node.name) for host in ("broken", "huge", "odd", "sick")]
    asking = GpudPoller(poller(*targets), services.deliveries, answering(handler))
    before = polled()
    await asking.once()
    await asking.once()
    assert {(name, event.sender) for _, name, event in engine.reported} == {(node.name, "gpud")}
    assert polled() - before == {"silent": 4, "refused": 2, "taken": 2}


def polled() -> Counter[str]:
    """Of the whole process: other tests poll as well."""
    name = "medevac_polls_total"
    outcomes = ("silent", "refused", "taken")
    return Counter({o: int(REGISTRY.get_sample_value(name, {"poller": "gpud", "outcome": o}) or 0) for o in outcomes})


@pytest.mark.parametrize(("status", "speaks", "lives"), [(200, True, True), (500, True, False), (200, False, False)])
async def test_a_poller_lives_while_some_target_answers_and_it_may_speak(
    services: Services, node: Node, status: int, speaks: bool, lives: bool
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status if request.url.host == "a" else 500, json=[])

    targets = [Target(url=f"https://{host}:1", node=node.name) for host in "ab"]
    living = Living("gpud", services.stores.database, services.threads)
    asking = GpudPoller(poller(*targets), services.deliveries, answering(handler), lambda: speaks, living)
    await asking.once()
    heard = services.stores.ledger.heard_last(["gpud", "other"], NOW - timedelta(minutes=1))
    assert set(heard) == ({"gpud"} if lives else set())


async def test_a_poller_stops_when_it_is_told(services: Services, node: Node) -> None:
    asked = asyncio.Event()

    def handler(request: httpx.Request) -> httpx.Response:
        asked.set()
        return httpx.Response(200, json=[])

    stop = asyncio.Event()
    asking = GpudPoller(poller(Target(url="https://n:1", node=node.name)), services.deliveries, answering(handler))
    running = asyncio.create_task(asking.run(stop))
    await asked.wait()
    stop.set()
    async with asyncio.timeout(10):
        await running


def certificate(folder: Path) -> Path:
    """Key and certificate as gpud makes them at its start: its own, and for no name at all."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "leptonai")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = folder / "gpud.pem"
    pem.write_bytes(secret + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return pem


@pytest.mark.parametrize(
    ("verify", "outcome"), [({}, "silent"), ({"ca": True}, "silent"), ({"verify": False}, "taken")]
)
async def test_a_gpud_with_the_certificate_it_makes_itself_is_heard_unverified_only(
    services: Services, engine: StubEngine, node: Node, tmp_path: Path, verify: dict[str, Any], outcome: str
) -> None:
    pem = certificate(tmp_path)
    body = json.dumps(UNHEALTHY).encode()
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = {"ca": pem} if "ca" in verify else verify
        one = poller(Target(url=url, node=node.name), **options)
        async with client_of(one) as client:
            before = polled()
            await GpudPoller(one, services.deliveries, client).once()
    assert polled() - before == {outcome: 1}
    assert [name for _, name, _ in engine.reported] == ([node.name] if outcome == "taken" else [])
    assert all(b"authorization" not in head.lower() for head in asked)


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("https://n:1", {"ca": Path("ca.pem")}, "take one out"),
        ("https://me:secret@n:1", {}, "would send to anybody"),
    ],
)
def test_nothing_secret_goes_where_nobody_is_verified(url: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        poller(Target(url=url, node="n"), verify=False, **options)


# --- alerts that were held back ------------------------------------------------------------------------------


def listed(node: Node, state: str = "active", receiver: str = "medevac", **labels: str) -> dict[str, Any]:
    alert = json.loads(senders.alertmanager_xid(node, 79, NOW).body)["alerts"][0]
    return {
        **alert,
        "labels": alert["labels"] | labels,
        "status": {"state": state},
        "receivers": [{"name": "pager"}, {"name": receiver}],
    }


def truncated(node: Node, **more: Any) -> dict[str, Any]:
    return {**json.loads(senders.alertmanager_xid(node, 79, NOW).body), "truncatedAlerts": 3, **more}


def held_back(outcome: str) -> float:
    labels = {"source": "alertmanager", "outcome": outcome}
    return REGISTRY.get_sample_value("medevac_held_back_total", labels) or 0.0


def asking(services: Services, monkeypatch: pytest.MonkeyPatch, handler: Any, **there: Any) -> None:
    """The sender `prometheus` names an Alertmanager, which `handler` is."""
    sender = services.senders.named("prometheus")
    assert sender is not None
    url = {"url": "http://127.0.0.1:9093/"}
    asked = sender.model_copy(update={"alertmanager": Alertmanager.model_validate(url | there)})
    more = asks_back(asked, lambda _: answering(handler))
    monkeypatch.setattr(services_module, "asks_back", lambda _: more)


@pytest.mark.parametrize("reachable", [True, False])
async def test_alerts_that_were_held_back_are_asked_for(
    client: httpx.AsyncClient,
    services: Services,
    engine: StubEngine,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    reachable: bool,
) -> None:
    shown, hidden, *others = [n for n in world.nodes("sim-a") if n.gpus][:6]
    answers = [
        listed(shown), listed(hidden), listed(others[0], "suppressed"), listed(others[1], "unprocessed"),
        listed(others[2], receiver="another"),
    ]  # fmt: skip
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=answers) if reachable else httpx.Response(503)

    asking(services, monkeypatch, handler)
    before = held_back("had"), held_back("missing")
    body = truncated(shown, receiver="medevac", groupLabels={"alertname": 'a "b" \\', "odd name": "x"})
    answer = await client.post("/v1/events/alertmanager", json=body, headers=SENDER)
    assert answer.status_code == 202, answer.text
    heard = {name for _, name, _ in engine.reported}
    assert heard == ({shown.name, hidden.name} if reachable else {shown.name})
    assert answer.json()["truncated"] == (0 if reachable else 3)
    assert (held_back("had") - before[0], held_back("missing") - before[1]) == ((3, 0) if reachable else (0, 3))
    asked = requests[0].url
    assert asked.path == "/api/v2/alerts"
    assert (asked.params["active"], asked.params["silenced"], asked.params["inhibited"]) == ("true", "false", "false")
    assert asked.params["receiver"] == "medevac"
    assert asked.params.get_list("filter") == ['alertname="a \\"b\\" \\\\"', '"odd name"="x"']


async def test_what_the_answer_holds_back_as_well_stays_missing(
    client: httpx.AsyncClient, services: Services, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reading.first, "__defaults__", (2,))
    asking(services, monkeypatch, lambda _: httpx.Response(200, json=[listed(node)] * 7))
    answer = await client.post("/v1/events/alertmanager", json=truncated(node, receiver="medevac"), headers=SENDER)
    assert (answer.status_code, answer.json()["truncated"]) == (202, 5)


async def test_the_receiver_is_asked_for_as_it_is_called_and_not_as_a_pattern(node: Node) -> None:
    said = truncated(node, receiver="team.a/medevac+1")
    assert dict(question(said))["receiver"] == r"team\.a/medevac\+1"
    with pytest.raises(ValueError, match="names no receiver"):
        question(truncated(node, receiver=""))


@pytest.mark.parametrize("way", ["bearer", "basic"])
async def test_credentials_go_there_by_reference_and_only_over_tls(
    client: httpx.AsyncClient,
    services: Services,
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    way: str,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    reference = {"file": str(secret)}
    there = {way: reference if way == "bearer" else {"user": "me", "password": reference}}
    given: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        given.append(request.headers.get("authorization"))
        return httpx.Response(200, json=[])

    asking(services, monkeypatch, handler, **there)
    await client.post("/v1/events/alertmanager", json=truncated(node), headers=SENDER)
    assert given == ["Bearer s3cret" if way == "bearer" else "Basic " + base64.b64encode(b"me:s3cret").decode()]
    with pytest.raises(ValueError, match="write https"):
        Alertmanager.model_validate({"url": "http://alertmanager:9093", **there})


async def test_who_names_no_alertmanager_is_not_asked_and_what_is_missing_is_counted(
    client: httpx.AsyncClient, services: Services, node: Node
) -> None:
    sender = services.senders.named("prometheus")
    assert sender is not None
    assert asks_back(sender) is None
    assert replace(services).speaker("prometheus") is not None
    before = held_back("missing")
    await client.post("/v1/events/alertmanager", json=truncated(node), headers=SENDER)
    assert held_back("missing") == before + 3


def test_an_address_alone_is_enough_for_an_alertmanager() -> None:
    sender = Sender(
        name="p", sources=("alertmanager",), clusters=("a",), bearer=Token(env="T"),
        alertmanager="http://alertmanager:9093",  # type: ignore[arg-type]
    )  # fmt: skip
    assert sender.alertmanager is not None
    assert sender.alertmanager.url == "http://alertmanager:9093"
