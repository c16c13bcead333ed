"""The simulated parts, as the registry takes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulation.adapters import (
    SimulatedChat,
    SimulatedChecks,
    SimulatedCluster,
    SimulatedProvider,
    SimulatedTickets,
)
from simulation.world import Clock, World, real_clock


@dataclass(frozen=True, slots=True)
class Parts:
    world: World
    clusters: tuple[SimulatedCluster, ...]
    providers: tuple[SimulatedProvider, ...]
    checks: SimulatedChecks
    """Of every simulated cluster."""
    tickets: SimulatedTickets
    """Of every simulated provider."""
    chat: SimulatedChat


def parts(path: str | Path, clock: Clock = real_clock) -> Parts:
    """Everything that stands on the world at `path`. Close `world` when done."""
    world = World(path, clock)
    return Parts(
        world=world,
        clusters=tuple(SimulatedCluster(world, name) for name in world.layout.clusters),
        providers=tuple(SimulatedProvider(world, name) for name in world.layout.providers),
        checks=SimulatedChecks(world),
        tickets=SimulatedTickets(world),
        chat=SimulatedChat(world),
    )
