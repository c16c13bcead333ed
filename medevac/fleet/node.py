"""A node, the machine behind it, and the work on it, as read at one moment."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from medevac.model import Model


class Capability(StrEnum):
    """What an adapter of the machine can really do; the planner never offers a rung without it."""

    RESTART_AGENT = "restart_agent"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    REINSTALL = "reinstall"
    REPLACE = "replace"
    TERMINATE = "terminate"
    POWER_STATE = "power_state"
    SERIAL = "serial"
    TICKET = "ticket"
    REBOOT_MOVES = "reboot_moves"
    """No ability, but what its reboot costs: it is a stop and a start, mostly on another host. Local disks are lost by
    it, and a public address that isn't elastic."""


ABLE = frozenset(Capability) - {Capability.REBOOT_MOVES}
"""Everything, and at no more than its usual cost."""


class Identity(Model):
    """Who a plan was made for. If any of it differs at the step, the step refuses and the plan is void."""

    uid: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None


class Machine(Model):
    provider: str
    id: str
    serial: str | None = None
    boot_id: str | None = None
    virtual: bool = True
    """Cloud VM (True) or bare metal (False): chooses the ladder."""
    reserved: bool = False
    """Reserved or capacity-block slot: repaired before replaced, and two approvers."""
    capabilities: frozenset[Capability] = frozenset()
    local_data_in_use: tuple[str, ...] = ()
    """What losing the machine would destroy and someone uses now, e.g. `instance-store /scratch`."""
    public_addresses: tuple[str, ...] = ()
    """By which the world outside reaches it; they go with the machine, unless its provider keeps them for its owner."""
    installation: str | None = None
    """Of the system that is installed on it, and new with each installation: its `/etc/machine-id`."""
    image: str | None = None
    """What a reinstall is to install; None = the provider's own choice."""


class Node(Model):
    cluster: str
    name: str
    uid: str | None = None
    pool: str | None = None
    gpus: int = 0
    sku: str | None = None
    ready: bool = True
    reachable: bool = True
    """False where nobody hears its agent: what it is told doesn't happen, and what it does isn't known."""
    schedulable: bool = True
    machine: Machine
    topology: dict[str, str] = {}
    """Failure domains by name: `rack`, `switch`, `region`, `image`, `pdu`, …"""
    labels: dict[str, str] = {}
    roles: tuple[str, ...] = ()
    """`control-plane`, `storage`, `medevac`, `etcd`, …: never disrupted unless a policy names them."""
    aliases: tuple[str, ...] = ()
    """Other names by which senders know it: addresses, host names, GPU UUIDs. The inventory resolves them."""
    gpu_ids: tuple[str, ...] = ()
    """UUIDs and serials of its GPUs, as far as anybody said: what names a GPU and no machine is found by them."""
    owner: str = ""
    """The object that keeps its machine, where one does: `NodeClaim/default-x7k2`, `Machine/team/node-3`. Of a cloud's
    node group, which is no object of the cluster, `NodeGroup/train`."""
    marked_by: str | None = None
    """Incident that our mark names, if the node carries one."""
    foreign_cordon: str | None = None
    """Who cordoned it or has it in repair, when it wasn't us (`unknown` when nobody says)."""
    hands_off: str | None = None
    """Value of `medevac.dev/hands-off`."""
    requeuing: tuple[str, ...] = ()
    """Workloads that our mark's incident has stopped here and not yet started again."""
    simulated: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(uid=self.uid, machine_id=self.machine.id, boot_id=self.machine.boot_id)

    @property
    def domains(self) -> dict[str, str]:
        """Every failure domain that a disruption of this node counts in. An unknown rack is one shared domain."""
        return {
            "cluster": self.cluster,
            "pool": f"{self.cluster}/{self.pool or '-'}",
            "provider": self.machine.provider,
            "rack": f"{self.cluster}/{self.topology.get('rack', 'unknown')}",
            **{k: v for k, v in self.topology.items() if k in ("region", "switch", "image", "pdu")},
        }


class Workload(Model):
    """A root workload with pods on the node; the unit that is noticed, counted and requeued."""

    name: str
    kind: str = "Job"
    owner: str = ""
    gpus: int = 0
    gang: str | None = None
    """Key shared by all pods that die together."""
    nodes: int = 1
    started_at: datetime | None = None
    """Since when it runs, by its oldest pod; None = unknown."""
    last_checkpoint: datetime | None = None
    """None = unknown, counted as none."""
    times: dict[str, datetime] = {}
    """Annotations that are past times, by name: of the workload or, where it says nothing, of its pods together."""
    ready_to_evict: bool = False
    """It has answered the notice that stands now: nothing is lost if it goes. What it said to another doesn't count."""
    hears_notice: bool = False
    """Its pods read their own annotations, the notice among them, from a file that is kept up to date."""
