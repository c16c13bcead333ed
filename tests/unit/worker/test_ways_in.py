"""The doctor's look at queues, pollers and watchers: what is missing and what next, all within its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.registry import Registry
from worker import doctor, ways_in
from worker.config import Config, load_config
from worker.findings import Finding
from worker.parts import Built
from worker.settings import Settings
from worker.stores import Stores

BASE = """\
installation: acme
clusters: [{name: sim-a, kind: simulation}]
providers: [{name: skyline, kind: simulation}]
"""


@pytest.fixture
def examine(registry: Registry, stores: Stores, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    async def look(text: str) -> dict[str, Finding]:
        file = tmp_path / "medevac.yaml"
        file.write_text(BASE + text)
        config: Config = load_config(file)
        monkeypatch.setattr(doctor, "find_config", lambda settings: config)
        monkeypatch.setattr(doctor, "build_parts", lambda config, data_dir: Built.of(registry))
        monkeypatch.setattr(doctor, "open_stores", lambda url: stores)
        return {one.what: one for one in await doctor._ways_in(doctor.House(Settings()))}

    return look


@asynccontextmanager
async def gpud(answers: bool) -> AsyncIterator[str]:
    """Its address. One that doesn't answer takes what it is asked, and is silent."""
    hung = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answers:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]")
            await writer.drain()
        else:
            await hung.wait()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        hung.set()


async def test_a_poller_says_who_answers_and_whether_anybody_asks(
    examine: Callable[[str], Any], stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways_in, "WITHIN_S", 2.0)
    async with gpud(True) as good, gpud(False) as hung:
        text = f"""
pollers:
  - name: good
    clusters: [sim-a]
    targets: [{{url: "{good}", node: gpu-1}}]
  - name: half
    clusters: [sim-a]
    targets: [{{url: "{good}", node: gpu-1}}, {{url: "{hung}", node: gpu-2}}]
  - name: hung
    clusters: [sim-a]
    targets: [{{url: "{hung}", node: gpu-3}}]
"""
        stores.leaders.lead("poll/half", "somebody", datetime.now(UTC), 60)
        began = time.monotonic()
        found = await examine(text)
        assert time.monotonic() - began < 10, "all at once, and bounded"
    assert not found["poller good"].ok
    assert found["poller good"].text == "1 of 1 targets answer, but nobody asks them"
    assert found["poller good"].fix == "start `medevac poll`"
    assert found["poller half"].ok
    assert "1 of 2 targets answer; not: gpu-2 (no answer in time)" in found["poller half"].text
    assert not found["poller hung"].ok
    assert "0 of 1 targets answer; not: gpu-3" in found["poller hung"].text


async def test_a_queue_says_what_its_cloud_says(examine: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def __init__(self, code: str) -> None:
            self.code = code

        def change_message_visibility(self, **_: Any) -> None:
            error = RuntimeError(f"An error occurred ({self.code})")
            error.response = {"Error": {"Code": self.code}}  # type: ignore[attr-defined]
            raise error

    codes = {"well": "ReceiptHandleIsInvalid", "denied": "AccessDenied"}
    monkeypatch.setattr(ways_in, "make_client", lambda queue, **_: Client(codes[queue.name]))
    found = await examine(
        "queues:\n" + "".join(f'  - {{name: {n}, url: "https://sqs/1/{n}", clusters: [sim-a]}}\n' for n in codes)
    )
    assert found["queue well"].ok
    assert (found["queue denied"].ok, "AccessDenied" in found["queue denied"].text) == (False, True)
    assert "the account's rights" in found["queue denied"].fix


async def test_a_watcher_says_whether_anybody_watches(
    examine: Callable[[str], Any], registry: Registry, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "watchers: [{name: nodes, clusters: [sim-a]}]\n"
    assert "tells nothing by itself" in (await examine(text))["watcher nodes"].text
    monkeypatch.setattr(type(registry.cluster("sim-a")), "watch", lambda *_, **__: None, raising=False)
    unwatched = (await examine(text))["watcher nodes"]
    assert (unwatched.ok, unwatched.fix) == (False, "start `medevac watch`")
    stores.leaders.lead("watch/nodes/sim-a", "somebody", datetime.now(UTC), 60)
    assert (await examine(text))["watcher nodes"].ok


async def test_without_any_of_them_nothing_is_said(examine: Callable[[str], Any]) -> None:
    assert await examine("") == {}
