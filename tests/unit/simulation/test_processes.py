"""Several processes on one world, and processes that are killed in the middle of a call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import killpoints
from simulation.hazards import Effect
from simulation.world import World

CALLS = """
import sys
from activities.ports import Verb
from simulation.build import parts
path, verb, times = sys.argv[1], Verb(sys.argv[2]), int(sys.argv[3])
made = parts(path)
node = next(n for n in made.world.nodes() if n.machine.provider == "skyline")
provider = next(p for p in made.providers if p.name == "skyline")
for _ in range(times):
    provider.do(verb, node, "inc-1")
    made.clusters[0].node(node.name)
"""


def start(world: World, verb: str, times: int, plan: Path | None = None) -> subprocess.Popen[bytes]:
    env = {**os.environ, **({killpoints.VARIABLE: str(plan)} if plan else {})}
    return subprocess.Popen([sys.executable, "-c", CALLS, str(world.path), verb, str(times)], env=env)


def test_no_call_of_any_process_is_lost(world: World) -> None:
    processes = [start(world, "restart_agent", 40) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    effects = world.effects(verb=Effect.RESTART_AGENT)
    assert len(effects) == 120
    assert {effect.pid for effect in effects} == {process.pid for process in processes}


@pytest.mark.parametrize(("point", "applied"), [("before", 0), ("after", 1)])
def test_a_process_dies_at_its_point_and_the_world_knows_what_happened(
    world: World, tmp_path: Path, point: str, applied: int
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"effect": "reboot", "point": point}]))
    assert killpoints.hits(plan) == set()
    assert start(world, "reboot", 1, plan).wait(60) == -signal.SIGKILL
    assert len(world.effects(verb=Effect.REBOOT)) == applied
    assert killpoints.hits(plan) == {0}


def test_a_cell_kills_one_process_only(world: World, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"effect": "reboot", "point": "before"}]))
    processes = [start(world, "reboot", 1, plan) for _ in range(3)]
    assert sorted(process.wait(60) for process in processes) == [-signal.SIGKILL, 0, 0]


def test_a_cell_of_another_node_or_effect_kills_nobody(world: World, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps([{"effect": "reboot", "point": "before", "node": "elsewhere"}, {"effect": "mark", "point": "after"}])
    )
    assert start(world, "reboot", 1, plan).wait(60) == 0
    assert killpoints.hits(plan) == set()
