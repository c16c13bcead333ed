"""The console with 5,000 open incidents over 2,048 nodes: what its pages cost the server, and how soon they follow.

*Server* is the gateway's own word for each page (`Server-Timing`), from the request to the finished page; *cpu* is what
a look costs the gateway in processor time, all told. *Follows* is from the ledger's commit of one incident's change, in
another process, until a page that listens has the part that shows it: the notice by server-sent event and the fetch of
that part, at its default length and at its longest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
from rich.console import Console
from rich.table import Table

from activities.storage.views import LONGEST_LIST
from benchmarks._stack import Stack, cpu_s, quantile, stack
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.incident import IncidentView, State
from worker.settings import Settings
from worker.stores import Stores, open_stores

INCIDENTS = 5_000
NODES = 2_048
LOOKS = 15
CHANGES = 20
OPEN = [state for state in State if state is not State.ENDED]
SERVER_AIM_MS, FOLLOWS_AIM_S = 300.0, 1.0
PAGES = {
    "5,000 incidents": f"/incidents?limit={LONGEST_LIST}",
    "200 of them": "/incidents",
    "fleet map": "/",
    "budgets and blocks": "/guard",
    "audit": "/audit",
}


def incident(n: int, node: Node, rng: random.Random) -> IncidentView:
    at = datetime.now(UTC) - timedelta(seconds=n)
    state = OPEN[n % len(OPEN)]
    return IncidentView(
        id=f"inc-{n:05}", workflow_id=f"node/{node.cluster}/{node.name}", cluster=node.cluster, node=node.name,
        pool="train", machine_id=node.machine.id, fault="xid/79", fault_class=FaultClass.CRITICAL, faults=("xid/79",),
        state=state, opened_at=at, updated_at=at, step=rng.choice(("", "evacuate", "verify")), rung="reboot",
        waiting_for="pool:sim-a/train: 4 of 4 are out" if state is State.WAITING_LEASE else "", plan_hash="0" * 16,
        policy_version=1, summary="xid/79 (GPU has fallen off the bus) is critical",
    )  # fmt: skip


@asynccontextmanager
async def signed_in(up: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=up.url, timeout=60) as client:
        form = (await client.get("/login")).text
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', form)
        if found is None:
            raise SystemExit(f"the gateway shows no sign-in: {form[:200]}")
        answer = await client.post("/login", data={"csrf": found[1], "token": up.home.token("ada")})
        if answer.status_code != 303:
            raise SystemExit(f"signing in was answered {answer.status_code}")
        yield client


async def server_ms(client: httpx.AsyncClient, path: str, rows: int | None = None) -> list[float]:
    times = []
    for _ in range(LOOKS + 1):
        answer = await client.get(path)
        answer.raise_for_status()
        listed = answer.text.count('<th scope="row">')
        if rows is not None and listed != rows:
            raise SystemExit(f"{path} lists {listed} rows, not {rows}")
        times.append(float(answer.headers["server-timing"].partition("dur=")[2]))
    return times[1:]


async def follows_s(client: httpx.AsyncClient, stores: Stores, view: IncidentView, path: str) -> list[float]:
    """Of a page whose part `list` is fetched at each notice, as the console's script does."""
    times: list[float] = []
    async with client.stream("GET", "/console/events") as events:
        notices = events.aiter_lines()
        async for line in notices:
            if line.startswith("data: -"):
                break
        for n in range(CHANGES):
            step = f"step-{n}-{path.partition('=')[2]}"
            changed = view.model_copy(update={"step": step, "rev": int(time.time() * 1_000) % 2**31})
            # Not in step with the gateway's own looks.
            await asyncio.sleep(random.uniform(0.3, 1.0))
            await asyncio.to_thread(stores.ledger.upsert_incident, changed)
            began = time.monotonic()
            async for line in notices:
                if not line.startswith("data: ") or "incidents" not in line:
                    continue
                if step in (await client.get(path, headers={"X-Part": "list"})).text:
                    break
            times.append(time.monotonic() - began)
    return times


async def run(console: Console) -> dict[str, dict[str, float]]:
    rng = random.Random(1)
    async with stack(nodes=NODES, gateway=True) as up:
        with up.world as world:
            fleet = [node for node in world.nodes() if node.gpus]
        stores = open_stores(Settings(config=up.home.config, data_dir=up.home.path).database)
        began = time.monotonic()
        views = [incident(n, fleet[n % len(fleet)], rng) for n in range(INCIDENTS)]
        await asyncio.to_thread(lambda: [stores.ledger.upsert_incident(view) for view in views])
        console.print(f"{INCIDENTS} incidents written in {time.monotonic() - began:.0f} s", style="dim")
        pages: dict[str, float] = {}
        if (gateway := up.gateway) is None:
            raise SystemExit("this benchmark needs the gateway")
        async with signed_in(up) as client:
            for name, path in PAGES.items():
                before = cpu_s(gateway)
                times = await server_ms(client, path, INCIDENTS if str(LONGEST_LIST) in path else None)
                pages[f"{name} cpu"] = (cpu_s(gateway) - before) * 1_000 / (LOOKS + 1)
                pages[f"{name} p50"], pages[f"{name} worst"] = quantile(times, 0.5), max(times)
            follows: dict[str, float] = {}
            for name, path in list(PAGES.items())[:2]:
                times = await follows_s(client, stores, views[0], path)
                follows[f"{name} p50"], follows[f"{name} worst"] = quantile(times, 0.5), max(times)
        stores.database.close()
    return {"server_ms": pages, "follows_s": follows}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    console = Console()
    found = asyncio.run(run(console))
    for what, aim in (("server_ms", SERVER_AIM_MS), ("follows_s", FOLLOWS_AIM_S)):
        table = Table("", "p50", "worst", "cpu", title=f"{what} (aim: below {aim:g})")
        for name in dict.fromkeys(key.rpartition(" ")[0] for key in found[what]):
            cpu = f"{found[what][f'{name} cpu']:.3g}" if f"{name} cpu" in found[what] else ""
            table.add_row(name, f"{found[what][f'{name} p50']:.3g}", f"{found[what][f'{name} worst']:.3g}", cpu)
        console.print(table)
    print(json.dumps({"benchmark": "console", **found}))


if __name__ == "__main__":
    main()
