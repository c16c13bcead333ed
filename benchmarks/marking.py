"""From a delivery to the marked node: kernel log lines posted to the gateway, marks seen in the simulated world.

The whole way counts: HTTP, parsing, inventory, Temporal, the plan, the guard, the ledger, and the call that marks.
Only the mark budget is widened: once marked, the incidents wait for leases and for people, as they would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
from rich.console import Console
from rich.table import Table
from temporalio.service import RPCError

from benchmarks import _wide
from benchmarks._stack import Stack, quantile, stack, until
from medevac.fleet.node import Node
from simulation.hazards import Effect
from simulation.senders import Delivery, kmsg_xid

AT_ONCE = {1: 20, 20: 3, 200: 1}
"""Nodes at once, and how often: together about as many marks of each."""
WARM_UP = 20
TIMEOUT_S = 180.0


@dataclass(slots=True)
class Found:
    seconds: list[float] = field(default_factory=list)
    """From each delivery's first attempt to its mark."""
    again: int = 0
    """Deliveries that were answered 503 and sent again after the Retry-After, as senders do."""


async def post(client: httpx.AsyncClient, up: Stack, node: Node, found: Found) -> tuple[str, float]:
    """The node's name, and when its delivery was first sent."""
    delivery: Delivery = kmsg_xid(node, 79, datetime.now(UTC))
    headers = {**delivery.headers, "Authorization": f"Bearer {up.sender_token}"}
    began = time.time()
    while True:
        answer = await client.post(up.url + delivery.path, content=delivery.body, headers=headers)
        if answer.status_code == httpx.codes.ACCEPTED:
            return node.name, began
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.time() - began > TIMEOUT_S:
            raise SystemExit(f"the delivery for {node.name} was answered {answer.status_code}: {answer.text[:500]}")
        found.again += 1
        await asyncio.sleep(float(answer.headers["Retry-After"]))


async def mark_at_once(up: Stack, nodes: list[Node], found: Found) -> None:
    limits = httpx.Limits(max_connections=len(nodes))
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:
        sent = dict(await asyncio.gather(*(post(client, up, node, found) for node in nodes)))
    with up.world as world:

        def marks() -> dict[str, float]:
            effects = world.effects(verb=Effect.MARK)
            return {one.node: one.at.timestamp() for one in effects if one.applied and one.node in sent}

        await until(lambda: len(marks()) == len(sent), TIMEOUT_S, f"{len(sent)} marks")
        marked = marks()
    found.seconds += [marked[node] - at for node, at in sent.items()]


async def end(up: Stack) -> None:
    """Ends what waits now, so that it doesn't share the machine with the next nodes."""
    running = "ExecutionStatus = 'Running'"
    async with asyncio.timeout(TIMEOUT_S):
        while (await up.client.count_workflows(running)).count:
            async for one in up.client.list_workflows(running):
                with suppress(RPCError):  # it ended by itself meanwhile
                    await up.client.get_workflow_handle(one.id).terminate("measured")
            await asyncio.sleep(0.5)


async def main() -> None:
    console = Console()
    found: dict[int, Found] = {}
    nodes = WARM_UP + sum(at_once * times for at_once, times in AT_ONCE.items())
    async with stack(nodes=-(-nodes // 8) * 8, gateway=True) as up:
        await up.worker("worker", **{_wide.VARIABLE: "marks"})
        with up.world as world:
            fleet = world.nodes()
        for at_once, times in ((WARM_UP, 1), *AT_ONCE.items()):
            found[at_once] = Found()  # the warm-up's is replaced
            for _ in range(times):
                chosen, fleet = fleet[:at_once], fleet[at_once:]
                await mark_at_once(up, chosen, found[at_once])
                await end(up)
    table = Table(title="From the delivery to the mark")
    for column in ("nodes at once", "marks", "p50 s", "p99 s", "sent again"):
        table.add_column(column, justify="right")
    for at_once in AT_ONCE:
        seconds = found[at_once].seconds
        table.add_row(
            str(at_once), str(len(seconds)), f"{quantile(seconds, 0.5):.3f}", f"{quantile(seconds, 0.99):.3f}",
            str(found[at_once].again),
        )  # fmt: skip
    console.print(table)
    result = {
        str(at_once): {
            "marks": len(found[at_once].seconds),
            "p50_s": round(quantile(found[at_once].seconds, 0.5), 3),
            "p99_s": round(quantile(found[at_once].seconds, 0.99), 3),
            "sent_again": found[at_once].again,
        }
        for at_once in AT_ONCE
    }
    print(json.dumps({"benchmark": "marking", "at_once": result}))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
