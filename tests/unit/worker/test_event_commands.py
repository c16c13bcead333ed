"""`medevac send` and `medevac events retry`, over the gateway's own routes."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from medevac.fleet.node import Node
from simulation import senders
from tests.unit.worker.conftest import SENDER, StubEngine, bearer
from worker.cli import api as api_module
from worker.cli.api import Api
from worker.cli.app import run
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores

NOW = datetime.now(UTC)


class Here(httpx.BaseTransport):
    """The gateway's own application, for a client that blocks."""

    def __init__(self, services: Services) -> None:
        self._transport = httpx.ASGITransport(app=create_app(services))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport) as client:
                content = request.read()
                return await client.request(request.method, request.url, headers=request.headers, content=content)

        found = asyncio.run(ask())
        return httpx.Response(found.status_code, content=found.content)


@pytest.fixture(autouse=True)
def gateway(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(authorization: dict[str, str]) -> Api:
        api = Api("http://gateway", "")
        api._client = httpx.Client(transport=Here(services), base_url="http://gateway", headers=authorization)
        return api

    monkeypatch.setattr(api_module, "person_api", lambda *_: made(bearer("otto-token")))
    monkeypatch.setattr(api_module, "sender_api", lambda *_: made(SENDER))


def test_a_commands_exit_code_goes_with_its_output(
    services: Services, monkeypatch: pytest.MonkeyPatch, node: Node, engine: StubEngine, tmp_path: Path
) -> None:
    sender = services.senders.named("prometheus")
    assert sender is not None
    posting = sender.model_copy(update={"sources": ("nvidia_smi",)})
    monkeypatch.setattr(services.senders, "by_headers", lambda headers: posting)
    output, headers = tmp_path / "output", tmp_path / "headers"
    output.write_text("")
    headers.write_text(json.dumps({"X-Medevac-Node": node.name}))
    sent = ["send", "--source", "nvidia_smi", "--headers", str(headers), str(output)]
    assert run([*sent, "--exit-code", "15"]) == 0
    assert [(name, event.fault) for _, name, event in engine.reported] == [(node.name, "gpu-lost")]
    assert run(sent) == 2, "nothing at all is no answer of nvidia-smi"


def test_a_retry_says_what_was_taken_and_what_held_nothing(
    stores: Stores, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = senders.kmsg_xid(node, 79, NOW)
    put = stores.dead_letters.put
    good = put("kmsg", "prometheus", "unreadable", "a bug, by now mended", sent.headers, sent.body, NOW)
    empty = put("kmsg", "prometheus", "too_large", "larger than 9 bytes", {}, b"", NOW)
    cut = put("kmsg", "prometheus", "too_large", "larger than 9 bytes", {}, b"beginning", NOW, 17_000_000)
    assert run(["events", "retry", str(good)]) == 0
    assert f"{good}: accepted (1 parts)" in capsys.readouterr().out
    for one, says in ((empty, "has nothing in it"), (cut, "its sender must repeat it")):
        assert run(["events", "retry", str(one)]) == 2
        assert says in capsys.readouterr().out
    assert {letter.id for letter in stores.dead_letters.listed()} == {empty, cut}
    assert run(["events", "show", str(cut)]) == 0
    assert "the beginning of 17000000 bytes" in capsys.readouterr().out
