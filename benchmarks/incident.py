"""What one incident costs, beside a bare Temporal workflow with the same activities.

Ours is the real worker with the real activities, ledger and guard on SQLite, over a simulated fleet whose effects
take no time. Both run on one server, by turns, twenty at once; processor time of the worker and of the server counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from activities.signatures import PLAN, PlanRequest, Queue
from benchmarks import _recorded
from benchmarks._bare import BARE, BareWorkflow, queue
from benchmarks._events import fault_of, report
from benchmarks._history import activities, events
from benchmarks._stack import Stack, cpu_s, stack
from medevac.faults.faultset import FaultSet
from medevac.fleet.node import Node
from worker.children import Child
from worker.connection import MedevacPlugin
from workflows.messages import NODE, node_workflow_id
from workflows.node import NodeWorkflow

RATIO_AIM, ACTIVITIES_AIM, EVENTS_AIM = 1.25, 14, 80
TIMEOUT_S = 60.0
RETURNED = "returned"
REPLAYS = 100


@dataclass(slots=True)
class Arm:
    """One of the two that are compared."""

    name: str
    worker: Child
    worker_s: list[float] = field(default_factory=list)
    server_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def both(self, at_once: int) -> list[float]:
        """Seconds per workflow, of each turn."""
        return [(w + s) / at_once for w, s in zip(self.worker_s, self.server_s, strict=True)]


async def run_one(up: Stack, node: Node, workflow: str) -> str:
    handle = await report(up.client, node, workflow, Queue.MAIN if workflow == NODE else queue(Queue.MAIN))
    async with asyncio.timeout(TIMEOUT_S):
        return await handle.result()


async def turn(up: Stack, arm: Arm, nodes: list[Node], workflow: str) -> list[str]:
    began, worker, server = time.monotonic(), cpu_s(arm.worker), cpu_s(up.server)
    ends = await asyncio.gather(*(run_one(up, node, workflow) for node in nodes))
    arm.wall_s.append(time.monotonic() - began)
    arm.worker_s.append(cpu_s(arm.worker) - worker)
    arm.server_s.append(cpu_s(up.server) - server)
    return ends


def record(history: WorkflowHistory, node: Node, path: Path) -> None:
    """The steps of one incident, for the bare workflow to go through."""
    found = activities(history)
    now, event = datetime.now(UTC), fault_of(node)
    faults = FaultSet().observe(event, now).faults
    request = PlanRequest(
        incident="inc-0123456789", n=1, cluster=node.cluster, node=node.name, faults=faults, opened_at=now
    )
    for step in found:
        if step["name"] == PLAN.name:
            step["takes"] = request.model_dump(mode="json")
    path.write_text(json.dumps(found), encoding="utf-8")


async def start_cost_s(history: WorkflowHistory, workflow: type) -> float:
    """Processor time of a workflow's first task: the sandbox, the definition, and what runs up to the first wait."""
    started = next(
        i for i, event in enumerate(history.events) if event.HasField("workflow_task_completed_event_attributes")
    )
    first = history.events[: started + 1]

    async def copies(count: int) -> Any:
        for _ in range(count):
            yield WorkflowHistory(str(uuid.uuid4()), first)

    async def replay(count: int) -> float:
        began = time.process_time()
        replayer = Replayer(workflows=[workflow], plugins=[MedevacPlugin()])
        await replayer.replay_workflows(copies(count), raise_on_replay_failure=False)
        return time.process_time() - began

    await replay(2)
    few = await replay(10)
    return (await replay(10 + REPLAYS) - few) / REPLAYS


async def main(at_once: int, turns: int) -> None:
    console = Console()
    nodes_needed = at_once * (turns + 1) + 1
    async with stack(nodes=-(-nodes_needed // 8) * 8) as up:
        with up.world as world:
            fleet = world.nodes()
        ours = Arm("medevac", await up.worker("worker"))
        first = fleet.pop()
        if (end := await run_one(up, first, NODE)) != RETURNED:
            raise SystemExit(f"the first incident ended as {end}, not as {RETURNED}")
        history = await up.client.get_workflow_handle(node_workflow_id(first.cluster, first.name)).fetch_history()
        recorded = up.home.path / "recorded.json"
        record(history, first, recorded)
        os.environ[_recorded.VARIABLE] = str(recorded)
        _recorded.steps()  # read once, here and in the bare worker: a workflow must not touch files
        bare = Arm("bare", up.child("bare", "benchmarks._worker", "bare", **{_recorded.VARIABLE: str(recorded)}))
        await bare.worker.start()
        up.workers.append(bare.worker)

        counted: list[tuple[int, int]] = []
        kinds: Counter[str] = Counter()
        for number in range(turns + 1):
            chosen, fleet = fleet[:at_once], fleet[at_once:]
            ends: list[str] = []
            # Now one first, now the other: what the server still does for one turn falls into the next.
            for arm in (ours, bare) if number % 2 else (bare, ours):
                if arm is ours:
                    ends = await turn(up, ours, chosen, NODE)
                else:
                    await turn(up, bare, chosen, BARE)
            if wrong := [end for end in ends if end != RETURNED]:
                raise SystemExit(f"{len(wrong)} incidents ended otherwise: {', '.join(sorted(set(wrong)))}")
            if number == 0:
                for arm in (ours, bare):  # the first turn only warms up
                    for values in (arm.worker_s, arm.server_s, arm.wall_s):
                        values.clear()
            for node in chosen:
                found = await up.client.get_workflow_handle(node_workflow_id(node.cluster, node.name)).fetch_history()
                counted.append((len(activities(found)), len(found.events)))
                kinds = events(found)
        bare_id = next(iter([w.id async for w in up.client.list_workflows(f"WorkflowType = '{BARE}'", limit=1)]))
        bare_history = await up.client.get_workflow_handle(bare_id).fetch_history()
        idle = cpu_s(up.server), cpu_s(ours.worker), cpu_s(bare.worker)
        await asyncio.sleep(5)
        idle_now = cpu_s(up.server), cpu_s(ours.worker), cpu_s(bare.worker)
    starts = {
        "medevac": await start_cost_s(history, NodeWorkflow),
        "bare": await start_cost_s(bare_history, BareWorkflow),
    }

    ratios = [a / b for a, b in zip(ours.both(at_once), bare.both(at_once), strict=True)]
    ratio = sum(ours.both(at_once)) / sum(bare.both(at_once))
    most_activities, most_events = max(a for a, _ in counted), max(e for _, e in counted)
    table = Table(title=f"One incident beside a bare workflow, {at_once} at once, {turns} turns each")
    for column in ("", "worker ms", "server ms", "both ms", "wall s a turn", "first task ms"):
        table.add_column(column, justify="left" if not column else "right")
    for arm in (ours, bare):
        table.add_row(
            arm.name,
            *(f"{1e3 * sum(values) / turns / at_once:.1f}" for values in (arm.worker_s, arm.server_s)),
            f"{1e3 * sum(arm.both(at_once)) / turns:.1f}",
            f"{median(arm.wall_s):.2f}",
            f"{1e3 * starts[arm.name]:.1f}",
        )
    console.print(table)
    console.print(f"ratio {ratio:.2f} (turns {min(ratios):.2f} to {max(ratios):.2f}); aim ≤ {RATIO_AIM}")
    console.print(f"activities {most_activities} (aim ≤ {ACTIVITIES_AIM}), events {most_events} (aim ≤ {EVENTS_AIM})")
    console.print(
        f"the bare workflow has {len(activities(bare_history))} activities, {len(bare_history.events)} events"
    )
    used = [(now - then) / 5 for now, then in zip(idle_now, idle, strict=True)]
    console.print(f"idle, of one core: server {used[0]:.1%}, our worker {used[1]:.1%}, bare worker {used[2]:.1%}")
    result = {
        "benchmark": "incident", "at_once": at_once, "turns": turns, "ratio": round(ratio, 3),
        "ratio_min": round(min(ratios), 3), "ratio_max": round(max(ratios), 3),
        **{
            f"{arm.name}_{part}_ms": round(1e3 * sum(values) / turns / at_once, 2)
            for arm in (ours, bare) for part, values in (("worker", arm.worker_s), ("server", arm.server_s))
        },
        "activities": most_activities, "events": most_events, "event_kinds": dict(kinds),
        "bare_events": len(bare_history.events),
        **{f"{name}_first_task_ms": round(1e3 * value, 2) for name, value in starts.items()},
        "idle_server": round(used[0], 4), "idle_worker": round(used[1], 4),
        "ok": ratio <= RATIO_AIM and most_activities <= ACTIVITIES_AIM and most_events <= EVENTS_AIM,
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    asyncio.run(main(given.at_once, given.turns))
