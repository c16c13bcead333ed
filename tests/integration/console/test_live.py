"""Live updates over HTTP: told once, to everybody, by one look of the process; and ended with it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest

from activities.ports import Unreadable
from medevac.approvals.approval import ApprovalState
from medevac.fleet.node import Node
from medevac.incident import Line, State, StepKey
from tests.integration.console.conftest import ENDING, asked, incident_of
from worker.console import live
from worker.console.live import Live
from worker.stores import Stores
from worker.threads import Threads


async def sign_in(client: httpx.AsyncClient) -> None:
    csrf = re.search(r'name="csrf" value="(\w+)"', (await client.get("/login")).text)
    assert csrf
    await client.post("/login", data={"csrf": csrf[1], "token": "ada-token"})


async def told(lines: AsyncIterator[str]) -> set[str]:
    async for line in lines:
        if line.startswith("data: "):
            return set(line.removeprefix("data: ").split())
    return {"over"}


async def test_what_changes_is_told_to_every_page(gateway: str, stores: Stores, sick: Node) -> None:
    changes = (
        ({"incidents"}, lambda: stores.ledger.upsert_incident(incident_of(sick, state=State.ACTING, rev=1))),
        (
            {"incidents"},
            lambda: stores.ledger.begin_step(StepKey(incident="inc-1", step="verify"), "verify", datetime.now(UTC)),
        ),
        (
            {"lines"},
            lambda: stores.ledger.add_lines(
                [Line(key=StepKey(incident="inc-1", step="x"), at=datetime.now(UTC), kind="step", text="x")]
            ),
        ),
        ({"approvals"}, lambda: stores.ledger.upsert_approval(asked(sick, state=ApprovalState.APPROVED, rev=2))),
        ({"guard"}, lambda: stores.fences.freeze("all", "ada", "smoke")),
        ({"guard"}, lambda: stores.fences.thaw("all", "ada")),
    )
    async with httpx.AsyncClient(base_url=gateway, timeout=240) as client:
        await sign_in(client)
        async with client.stream("GET", "/console/events") as one, client.stream("GET", "/console/events") as two:
            assert one.headers["content-type"].startswith("text/event-stream")
            streams = [one.aiter_lines(), two.aiter_lines()]
            assert [await told(stream) for stream in streams] == [{"-"}, {"-"}]
            for topics, change in changes:
                await asyncio.to_thread(change)
                assert [await told(stream) for stream in streams] == [topics, topics]


async def test_a_stream_ends_with_the_process(gateway: str, stores: Stores) -> None:
    async with httpx.AsyncClient(base_url=gateway, timeout=240) as client:
        await sign_in(client)
        async with client.stream("GET", "/console/events") as stream:
            lines = stream.aiter_lines()
            assert await told(lines) == {"-"}
            ENDING[gateway]()
            assert await told(lines) == {"over"}


async def test_open_pages_are_bounded(gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_EACH", 1)
    async with httpx.AsyncClient(base_url=gateway, timeout=240) as client:
        await sign_in(client)
        async with client.stream("GET", "/console/events") as first:
            lines = first.aiter_lines()
            assert await told(lines) == {"-"}
            refused = await client.get("/console/events")
            assert refused.status_code == 503
            assert "too many pages" in refused.text


async def test_one_look_serves_all_and_none_is_taken_where_nobody_listens(stores: Stores) -> None:
    looks = 0

    class Counting:
        def marks(self) -> dict[str, str]:
            nonlocal looks
            looks += 1
            if looks == 3:
                raise Unreadable("the ledger is away")
            return {"incidents": "changed" if looks > 3 else "first"}

    threads = Threads(2)
    watched = Live(Counting(), threads, look_s=0.01)  # type: ignore[arg-type]
    assert looks == 0
    listeners = [await watched.listen("ada") for _ in range(5)]
    assert looks == 1
    topics: list[set[str]] = []
    for one in listeners:
        heard: set[str] = set()
        while not {"unreadable", "incidents"} <= heard:
            await one.woken.wait()
            heard |= set(one.take().split())
        topics.append(heard)
    assert topics == [{"unreadable", "incidents"}] * 5
    for one in listeners:
        watched.leave(one)
    seen = looks
    await asyncio.sleep(0.05)
    assert looks <= seen + 1
    threads.close()
