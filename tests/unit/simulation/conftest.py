from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.layout import Layout
from simulation.world import World
from tests.unit.simulation.worlds import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def world(tmp_path: Path, clock: HandClock) -> Iterator[World]:
    world = World.create(tmp_path / "world", Layout(nodes=32), seed=3, clock=clock)
    yield world
    world.close()
