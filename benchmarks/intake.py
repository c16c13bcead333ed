"""What the gateway takes, beside what Temporal itself takes; and whether one noisy node slows the others.

*Accepted* counts events that were answered 202: held by Temporal, or by the inbox, whose draining is timed apart.
Every event says something new (another fault code), so that nothing is folded away. Bare is the same signal-with-start,
sent by this process straight to the same server. No worker runs meanwhile, neither for one nor for the other.

*Noise*: one node sends 200 lines a second, alternately of 16 kinds, for a minute, while three times 20 others fall ill
one by one; from the delivery of each to its mark, beside as many without noise, half of them before it and half after.
Noise, gateway, worker and Temporal share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from temporalio.common import WorkflowIDConflictPolicy

from activities.signatures import PRODUCTION, Queue
from benchmarks import _wide
from benchmarks._events import fault_of
from benchmarks._stack import Stack, cpu_s, quantile, stack, until
from medevac.fleet.node import Node
from simulation.hazards import Effect
from simulation.senders import kmsg_xid
from worker.children import Child
from worker.settings import Settings
from worker.stores import open_stores
from workflows.messages import NODE, NodeInput, node_workflow_id

AT_ONCE = 32
EVENTS = {1: 1_000, 100: 2_000, 2_000: 2_000}
"""Events by how many distinct nodes they are about."""
NOISE_PER_S = 200
NOISE_KINDS = 16
NOISE_AT_ONCE = 64
OTHERS = 20
BATCHES = 3
TURNS = 3
"""Bare and ours by turns, so that a busier minute of the machine falls on both."""
TIMEOUT_S = 300.0
RATIO_AIM = 1.5
SHARES = (0.5, 0.75, 0.95)

_codes = itertools.count(1_000)
"""Xids that no driver has: each is another statement, and of the class that is only watched."""


@dataclass(frozen=True, slots=True)
class Accepted:
    nodes: int
    per_s: float
    bare_per_s: float
    inbox: int
    drained_s: float
    rss_mb: float

    @property
    def ratio(self) -> float:
        return self.per_s / self.bare_per_s


class Poster:
    """Keeps a connection; a client library of its own would take more of the shared machine than the gateway does."""

    def __init__(self, up: Stack) -> None:
        url = httpx.URL(up.url)
        self._host, self._port = str(url.host), url.port or 80
        self._token = up.sender_token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, content_type: str = "text/plain") -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        status = int((await reader.readline()).split()[1])
        length = 0
        while (line := await reader.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def workers(jobs: Iterator[tuple[Node, int]], up: Stack) -> float:
    """Seconds until all were answered 202."""

    async def work() -> None:
        poster = Poster(up)
        for node, code in jobs:
            sent = kmsg_xid(node, code, datetime.now(UTC))
            status, answer = await poster.post(sent.path, sent.body)
            if status != 202:
                raise SystemExit(f"a delivery was answered {status}: {answer[:500]!r}")
        poster.close()

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.monotonic() - began


async def bare(up: Stack, nodes: Sequence[Node]) -> float:
    """Seconds for a signal-with-start for each, on workflow ids of their own."""
    run = uuid.uuid4().hex[:8]
    jobs = iter(nodes)

    async def work() -> None:
        for node in jobs:
            await up.client.start_workflow(
                NODE,
                NodeInput(cluster=node.cluster, node=node.name, timing=PRODUCTION),
                id=f"{run}/{node_workflow_id(node.cluster, node.name)}",
                task_queue=Queue.MAIN,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal="report",
                start_signal_args=[fault_of(node)],
            )

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.monotonic() - began


def gateway_of(up: Stack) -> Child:
    if up.gateway is None:
        raise SystemExit("this benchmark needs the gateway")
    return up.gateway


def rss_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line.split()[1] for line in fields if line.startswith("VmRSS"))) / 1024


async def accepted(console: Console) -> list[Accepted]:
    found = []
    async with stack(nodes=2_048, gateway=True) as up:
        gateway = gateway_of(up)
        with up.world as world:
            fleet = world.nodes()
        stores = open_stores(Settings(config=up.home.config, data_dir=up.home.path).database)
        await workers(iter([(node, next(_codes)) for node in fleet[-40:]]), up)  # warm
        await until(lambda: stores.inbox.waiting()[0] == 0, TIMEOUT_S, "the warm-up's inbox to be empty")
        for nodes, events in EVENTS.items():
            chosen = fleet[:nodes]
            bare_s = ours_s = 0.0
            for turn in range(TURNS):
                some = range(events * turn // TURNS, events * (turn + 1) // TURNS)
                bare_s += await bare(up, [chosen[n % nodes] for n in some])
                ours_s += await workers(iter([(chosen[n % nodes], next(_codes)) for n in some]), up)
            inbox, _ = stores.inbox.waiting()
            began = time.monotonic()
            # What one node may say is paced, so its backlog is timed only as far as it goes in reason.
            await until(lambda: stores.inbox.waiting()[0] == 0, TIMEOUT_S, "the inbox to be empty", 0.2)
            drained = time.monotonic() - began
            found.append(Accepted(nodes, events / ours_s, events / bare_s, inbox, drained, rss_mb(gateway.pid)))
            console.print(f"{nodes} nodes: {found[-1]}", style="dim")
        seen = len(stores.ledger.events_since(datetime.fromtimestamp(0, UTC), limit=100_000))
        if seen < sum(EVENTS.values()):
            raise SystemExit(f"the ledger has {seen} lines of events, and {sum(EVENTS.values())} were accepted")
        stores.database.close()
    return found


@asynccontextmanager
async def noise(up: Stack, node: Node, kinds: int) -> AsyncIterator[list[int]]:
    """Statuses of what the noisy node sends, `NOISE_PER_S` a second, for as long as it is open."""
    statuses: list[int] = []
    lines = [kmsg_xid(node, next(_codes), datetime.now(UTC)) for _ in range(kinds)]
    ticks = itertools.count()
    began = time.monotonic()

    async def send() -> None:
        poster = Poster(up)
        for n in ticks:
            await asyncio.sleep(max(0.0, began + n / NOISE_PER_S - time.monotonic()))
            sent = lines[n % kinds]
            statuses.append((await poster.post(sent.path, sent.body))[0])

    sending = [asyncio.create_task(send()) for _ in range(NOISE_AT_ONCE)]
    try:
        yield statuses
    finally:
        for one in sending:
            one.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


async def marked(up: Stack, nodes: Sequence[Node], every_s: float) -> list[float]:
    """Seconds from each node's delivery to its mark; one node falls ill each `every_s`."""
    sent: dict[str, float] = {}
    poster = Poster(up)
    began = time.monotonic()
    for n, node in enumerate(nodes):
        await asyncio.sleep(max(0.0, began + n * every_s - time.monotonic()))
        delivery = kmsg_xid(node, 79, datetime.now(UTC))
        sent[node.name] = time.time()
        status, answer = await poster.post(delivery.path, delivery.body)
        if status != 202:
            raise SystemExit(f"a delivery was answered {status}: {answer[:500]!r}")
    with up.world as world:

        def marks() -> dict[str, float]:
            effects = world.effects(verb=Effect.MARK)
            return {one.node: one.at.timestamp() for one in effects if one.applied and one.node in sent}

        await until(lambda: len(marks()) == len(sent), TIMEOUT_S, f"{len(sent)} marks", 0.2)
        return [marks()[name] - at for name, at in sent.items()]


async def beside_noise(seconds: float, kinds: int) -> dict[str, float]:
    count = OTHERS * BATCHES
    async with stack(nodes=2 * count + 16, gateway=True) as up:
        gateway = gateway_of(up)
        await up.worker("worker", **{_wide.VARIABLE: "marks"})
        with up.world as world:
            fleet = world.nodes()
        warm, noisy, *others = fleet[:4], fleet[4], *fleet[5:]
        ill, before, after = others[:count], others[count : count + count // 2], others[count + count // 2 :]
        every = seconds / count
        await marked(up, warm, 1.0)
        quiet = await marked(up, before, every)
        async with noise(up, noisy, kinds) as statuses:
            await asyncio.sleep(2)
            first, cpu, began, sent = rss_mb(gateway.pid), cpu_s(gateway), time.monotonic(), len(statuses)
            during = await marked(up, ill, every)
            last, took = rss_mb(gateway.pid), time.monotonic() - began
            cpu, sent = cpu_s(gateway) - cpu, len(statuses) - sent
        quiet += await marked(up, after[: count - count // 2], every)
        found = {
            "samples": float(count),
            "noise_s": took,
            "noise_per_s": sent / took,
            "noise_not_202": float(len([status for status in statuses if status != 202])),
            "gateway_cpu": cpu / took,
            "gateway_mb_first": first,
            "gateway_mb_last": last,
        }
        for share in SHARES:
            name = f"p{share * 100:.0f}"
            found |= {f"quiet_{name}_s": quantile(quiet, share), f"noisy_{name}_s": quantile(during, share)}
            found[f"ratio_{name}"] = found[f"noisy_{name}_s"] / found[f"quiet_{name}_s"]
        return found


def show_rates(console: Console, rates: Sequence[Accepted]) -> dict[str, dict[str, float]]:
    table = Table(title="Events durably accepted, each delivered by itself")
    for column in ("nodes", "accepted/s", "bare/s", "ratio", "by the inbox", "drained in s", "gateway MB"):
        table.add_column(column, justify="right")
    for one in rates:
        table.add_row(
            str(one.nodes), f"{one.per_s:.0f}", f"{one.bare_per_s:.0f}", f"{one.ratio:.2f}", str(one.inbox),
            f"{one.drained_s:.1f}", f"{one.rss_mb:.0f}",
        )  # fmt: skip
    console.print(table)
    return {
        str(one.nodes): {
            "per_s": round(one.per_s, 1),
            "bare_per_s": round(one.bare_per_s, 1),
            "ratio": round(one.ratio, 2),
            "by_inbox": one.inbox,
            "drained_s": round(one.drained_s, 1),
        }
        for one in rates
    }


def show_noise(console: Console, found: dict[str, float]) -> dict[str, float]:
    table = Table(title=f"{found['samples']:.0f} nodes marked, beside one that sends {NOISE_PER_S} lines a second")
    for column in ("", "quiet s", "noisy s", f"ratio (aim {RATIO_AIM})"):
        table.add_column(column, justify="right")
    for share in (f"p{share * 100:.0f}" for share in SHARES):
        quiet, noisy = found[f"quiet_{share}_s"], found[f"noisy_{share}_s"]
        table.add_row(share, f"{quiet:.3f}", f"{noisy:.3f}", f"{noisy / quiet:.2f}")
    console.print(table)
    console.print(
        f"noise: {found['noise_per_s']:.0f}/s for {found['noise_s']:.0f} s, {found['noise_not_202']:.0f} not taken; "
        f"gateway {found['gateway_cpu']:.2f} of a core, "
        f"{found['gateway_mb_first']:.0f} → {found['gateway_mb_last']:.0f} MB"
    )
    return {name: round(value, 3) for name, value in found.items()}


async def main(parts: Sequence[str], seconds: float, kinds: int) -> None:
    console = Console()
    result: dict[str, object] = {"benchmark": "intake", "load_before": os.getloadavg()}
    if "rates" in parts:
        result["accepted"] = show_rates(console, await accepted(console))
    if "noise" in parts:
        result["noise"] = show_noise(console, await beside_noise(seconds, kinds))
    result["load_after"] = os.getloadavg()
    console.print(f"load of the machine: {result['load_before']} before, {result['load_after']} after", style="dim")
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of noise")
    parser.add_argument("--kinds", type=int, default=NOISE_KINDS, help="of lines that the noisy node sends")
    parser.add_argument("--part", action="append", choices=["rates", "noise"], help="only this one")
    given = parser.parse_args()
    asyncio.run(main(given.part or ["rates", "noise"], given.seconds, given.kinds))
