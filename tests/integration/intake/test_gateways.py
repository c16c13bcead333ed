"""Real gateway processes: two that share what was said, one that is told to stop, one that is sent very much."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from medevac.fleet.node import Node
from simulation import senders
from tests.integration.intake.rig import Process, Rig, delivered, heard, until

NOW = datetime.now(UTC)
CHANCE = random.Random(7)
MANY = 10_000
PATIENT = {"MEDEVAC_SIGNAL_TIMEOUT_S": "60"}
"""What these tests say of Temporal's histories goes there at once, and not by the inbox, on however slow a machine."""
MOST_MB = 512
"""Of a gateway that is sent 20,000 parts in one delivery; it takes about 150 MB to be there at all."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    await rig.close()


async def test_two_gateways_are_one_ear(rig: Rig) -> None:
    """Fault to one, its clear to the other, the fault again to the first: the workflow hears these three, no repeat."""
    await rig.start_temporal()
    one, two = Process(rig, "gateway", "one", **PATIENT), Process(rig, "gateway", "two", **PATIENT)
    await asyncio.gather(one.up(), two.up())
    node = rig.nodes()[0]
    fault = senders.alertmanager_xid(node, 79, NOW)
    clear = senders.alertmanager_xid(node, 79, NOW, resolved_at=NOW + timedelta(seconds=1))
    outcomes = []
    for gateway, sent in ((one, fault), (one, fault), (two, fault), (two, clear), (one, fault), (two, fault)):
        answer = await delivered(rig, [gateway.url], sent, CHANCE)
        [part] = answer.json()["parts"]
        outcomes.append("repeat" in part["reason"])
    assert outcomes == [False, True, True, False, False, True]
    [(_, told)] = await heard(await rig.client(), node)
    assert told == ["fault xid/79", "recovered xid/79", "fault xid/79"]


async def test_a_gateway_that_is_told_to_stop_answers_and_writes_what_it_took(rig: Rig) -> None:
    await rig.start_temporal()
    gateway = Process(rig, "gateway", "gateway", **PATIENT)
    await gateway.up()
    node = rig.nodes()[0]
    sent = senders.kmsg_xid(node, 79, NOW)
    taken = 0
    stopping = asyncio.Event()

    async def send() -> None:
        nonlocal taken
        while True:
            try:
                url = gateway.url + sent.path
                answer = await rig.http.post(url, content=sent.body, headers={**sent.headers, **rig.token})
            except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
                assert stopping.is_set()
                return
            assert answer.status_code == 202, answer.text
            taken += 1
            if taken >= 40:
                stopping.set()

    sending = [asyncio.create_task(send()) for _ in range(8)]
    await stopping.wait()
    assert await gateway.end(signal.SIGTERM) == 0
    await asyncio.gather(*sending)
    lines = [row.outcome for row in rig.stores.ledger.events_since(NOW - timedelta(days=1))]
    counts = [re.search(r"(\d+) times$", line) for line in lines]
    assert sum(int(count[1]) if count else 1 for count in counts) >= taken
    [(_, told)] = await heard(await rig.client(), node)
    assert told == ["fault xid/79"]


def alerts(nodes: list[Node]) -> bytes:
    said = {"fault": "xid/119", "statement": "level"}
    return json.dumps([{"node": nodes[n % len(nodes)].name, "key": f"page-{n}", **said} for n in range(MANY)]).encode()


def samples(nodes: list[Node]) -> bytes:
    measured = {"name": "gpu_temp", "value": 60.0, "unit": "C", "window_s": 60}
    said = {"kind": "measurement", "measurement": measured}
    listed = [
        {"node": nodes[n % len(nodes)].name, "id": f"sample-{n}", "entities": [f"gpu:{n // len(nodes) % 8}"], **said}
        for n in range(MANY)
    ]
    return json.dumps(listed).encode()


def peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


async def test_ten_thousand_alerts_and_as_many_measurements_are_each_taken_in_one_go(rig: Rig) -> None:
    await rig.start_temporal()
    gateway = Process(rig, "gateway", "gateway", **PATIENT)
    await gateway.up()
    nodes = rig.nodes()
    sent = [senders.Delivery("generic", body, senders.JSON) for body in (alerts(nodes), samples(nodes))]
    answers = await asyncio.gather(*(delivered(rig, [gateway.url], one, CHANCE) for one in sent))
    outcomes = [[part["outcome"] for part in answer.json()["parts"]] for answer in answers]
    assert [len(some) for some in outcomes] == [MANY, MANY]
    assert set(outcomes[0]) <= {"accepted", "joined"}
    assert set(outcomes[1]) == {"recorded"}
    peak = peak_mb(gateway.pid)
    print(f"peak {peak:.0f} MB")
    assert peak < MOST_MB

    async def lines_are_there() -> bool:
        seen = await asyncio.to_thread(rig.stores.ledger.events_since, NOW - timedelta(days=1), 3 * MANY)
        return len(seen) >= 2 * MANY

    await until(lines_are_there, "a line of every part")
