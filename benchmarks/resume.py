"""From `kill -9` of a worker in the middle of a step until another worker goes on with that step.

Production time-outs, and a second worker that is alive. The killed worker dies by its own hand exactly inside the
step (at the far side's call, or between that and its answer); the second one notes when the step begins again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from temporalio.service import RPCError

from benchmarks._events import report
from benchmarks._stack import Stack, quantile, stack, until
from benchmarks._worker import STEPS
from medevac.fleet.node import Node
from simulation import killpoints
from workflows.messages import node_workflow_id

AIM_S = 10.0
TIMEOUT_S = 90.0
STEP_OF = {
    "evict": "evacuate",
    "notice": "evacuate",
    "reboot": "act",
    "check": "verify",
    "chat": "notify",
}
"""Which activity makes a physical call; the others are named after it."""
CELLS = (
    ("plan", "begin"),
    ("plan", "end"),
    ("mark", "before"),
    ("mark", "after"),
    ("acquire", "begin"),
    ("acquire", "end"),
    ("evict", "before"),
    ("evict", "after"),
    ("reboot", "before"),
    ("reboot", "after"),
    ("prove", "end"),
    ("check", "before"),
    ("check", "after"),
    ("record", "end"),
    ("lift", "after"),
)


@dataclass(frozen=True, slots=True)
class Resumed:
    step: str
    point: str
    seconds: float


def notes(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def death(hit: Path) -> tuple[float, int]:
    """When, and which process: it wrote its id right before it died."""
    while not (dead := hit.read_text(encoding="utf-8")):
        time.sleep(0.01)
    return hit.stat().st_mtime, int(dead)


async def one(up: Stack, node: Node, index: int, kills: Path, steps: Path) -> Resumed:
    effect, point = CELLS[index % len(CELLS)]
    step, workflow = STEP_OF.get(effect, effect), node_workflow_id(node.cluster, node.name)
    await report(up.client, node)
    hit = Path(f"{kills}.{index}.hit")
    await until(hit.exists, TIMEOUT_S, f"a worker dies in {effect} {point}")
    killed, dead = await asyncio.to_thread(death, hit)

    def again() -> list[float]:
        return [
            note["at"]
            for note in notes(steps)
            if note["workflow"] == workflow and note["type"] == step and note["pid"] != dead and note["at"] >= killed
        ]

    await until(lambda: bool(again()), TIMEOUT_S, f"{step} goes on after its worker died", poll_s=0.02)
    resumed = min(again())
    # The next one has a second worker beside it, too.
    await up.revive(next(child for child in up.workers if child.pid == dead))
    with suppress(RPCError):  # over already
        await up.client.get_workflow_handle(workflow).terminate("measured")
    return Resumed(step, point, resumed - killed)


async def main(rounds: int) -> None:
    console = Console()
    found: list[Resumed] = []
    count = len(CELLS) * rounds
    async with stack(nodes=-(-count // 8) * 8) as up:
        kills, steps = up.home.path / "kills.json", up.home.path / "steps.jsonl"
        with up.world as world:
            fleet = world.nodes()
        plan = [
            {"effect": effect, "point": point, "node": node.name}
            for (effect, point), node in zip(CELLS * rounds, fleet, strict=False)
        ]
        kills.write_text(json.dumps(plan), encoding="utf-8")
        for name in ("one", "two"):
            await up.worker(name, **{STEPS: str(steps), killpoints.VARIABLE: str(kills)})
        for index, node in enumerate(fleet[:count]):
            found.append(await one(up, node, index, kills, steps))
            console.print(f"killed in {found[-1].step} ({found[-1].point}): goes on after {found[-1].seconds:.1f} s")
    seconds = [each.seconds for each in found]
    table = Table(title="From kill -9 to the resumed step: production time-outs, a second worker alive")
    for column in ("step", "killed", "times", "least s", "most s"):
        table.add_column(column, justify="left" if column in ("step", "killed") else "right")
    for step, point in dict.fromkeys((each.step, each.point) for each in found):
        those = [each.seconds for each in found if (each.step, each.point) == (step, point)]
        table.add_row(step, point, str(len(those)), f"{min(those):.1f}", f"{max(those):.1f}")
    console.print(table)
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    console.print(f"p50 {p50:.1f} s, p99 {p99:.1f} s of {len(seconds)} kills; aim ≤ {AIM_S:g} s p99")
    result = {
        "benchmark": "resume", "kills": len(seconds), "p50_s": round(p50, 2), "p99_s": round(p99, 2),
        "by_step": {
            step: round(max(each.seconds for each in found if each.step == step), 2)
            for step in dict.fromkeys(each.step for each in found)
        },
        "ok": p99 <= AIM_S,
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    asyncio.run(main(parser.parse_args().rounds))
