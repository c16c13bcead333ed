"""What a simulated fleet looks like and how long things take in it."""

from __future__ import annotations

from pydantic import Field

from medevac.faults.classes import Covers
from medevac.fleet.node import ABLE, Capability
from medevac.model import Model
from simulation.hazards import Hazard

SKYLINE = "skyline"
IRONWORKS = "ironworks"


class Durations(Model):
    """Seconds that the world takes for each thing. Defaults are production-like."""

    restart_agent: float = 20
    reset_gpu: float = 60
    reboot: float = 600
    reinstall: float = 1_800
    join: float = 120
    """From the request of a machine to its node object."""
    first_boot: float = 180
    """From the node object to Ready."""
    terminate: float = 90
    pod_exit: float = 20
    """A pod's own time to stop; cut short by its grace."""
    pod_start: float = 60
    """Until a lost pod's successor is placed, where there is room."""
    checkpoint_every: float = 1_800
    checkpoint_write: float = 30
    """From a notice until a cooperative job has saved its state."""
    check: float = 120

    def scaled(self, factor: float) -> Durations:
        return Durations(**{name: value * factor for name, value in self.model_dump().items()})


PRODUCTION = Durations()
DEMO = Durations(
    restart_agent=0.5, reset_gpu=1, reboot=3, reinstall=4, join=1.5, first_boot=2, terminate=1, pod_exit=1,
    pod_start=1, checkpoint_every=20, checkpoint_write=1, check=1.5,
)  # fmt: skip
TEST = Durations(
    restart_agent=0.1, reset_gpu=0.1, reboot=0.3, reinstall=0.3, join=0.2, first_boot=0.2, terminate=0.1, pod_exit=0.1,
    pod_start=0.1, checkpoint_every=5, checkpoint_write=0.1, check=0.2,
)  # fmt: skip
INSTANT = PRODUCTION.scaled(0).model_copy(update={"checkpoint_every": 1_800.0})
"""Effects that take no time, for benchmarks of the engine itself."""


class ProviderKind(Model):
    """What machines of one provider are and can."""

    virtual: bool
    capabilities: frozenset[Capability]
    stock: int | None = None
    """Machines that can still be asked for; None = always one more."""


PROVIDERS = {
    SKYLINE: ProviderKind(
        virtual=True,
        capabilities=ABLE - {Capability.REINSTALL, Capability.SERIAL},
    ),
    IRONWORKS: ProviderKind(
        virtual=False,
        capabilities=ABLE - {Capability.REPLACE, Capability.TERMINATE},
    ),
}


class Layout(Model):
    """Racks alternate between the providers; the last quarter of a cluster's racks is the pool `serve`."""

    clusters: tuple[str, ...] = Field(default=("sim-a",), min_length=1)
    nodes: int = Field(default=64, ge=1)
    """GPU nodes in each cluster."""
    gpus: int = 8
    sku: str = "h100-sxm-80g"
    rack_size: int = Field(default=8, ge=1)
    racks_per_switch: int = 4
    providers: dict[str, ProviderKind] = PROVIDERS
    serve_share: float = 0.25
    """Of the racks; 0 = everything is the pool `train`."""
    spares: int = 2
    """Idle nodes of each pool of a cluster, labelled `medevac.dev/spare`."""
    busy: float = 0.9
    """Share of the other nodes with work on them."""
    control: int = 0
    """Control-plane nodes without GPUs in each cluster, beside `nodes`."""
    reserved: float = 0.0
    """Share of nodes in reserved capacity."""
    local_data: float = 0.0
    """Share of nodes whose local data someone uses."""
    durations: Durations = PRODUCTION
    check_covers: frozenset[Covers] = frozenset(Covers)
    hazards: tuple[Hazard, ...] = ()
    """Seeded misfortunes of every call; `World.script` makes certain ones."""
