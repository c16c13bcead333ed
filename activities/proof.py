"""What proves that a call to a machine had its effect. Pure: the world as read goes in, what is missing comes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from activities.ports import MachineState, Verb
from medevac.fleet.node import Identity, Node


@dataclass(frozen=True, slots=True)
class World:
    """One fresh reading. `node` is None when the cluster doesn't know it (any more)."""

    node: Node | None
    state: MachineState


def missing(verb: Verb, before: Identity, was: MachineState, world: World) -> str | None:
    """What is still missing for the proof, in words; None = proved.

    `before` is the machine that the intent was stored for, `was` what its provider said then. The provider's
    "done" is no proof of a repair: only something that the effect alone changes is.
    """
    match verb:
        case Verb.REBOOT:
            return _new_boot(before, world) or _ready(world)
        case Verb.REINSTALL:
            if world.state.image_mark is None or world.state.image_mark == was.image_mark:
                return "the image's mark has not changed"
            return _new_boot(before, world) or _ready(world)
        case Verb.RESET_GPU | Verb.RESTART_AGENT:
            if world.state.gpu_reset_mark is None or world.state.gpu_reset_mark == was.gpu_reset_mark:
                return "the reset mark has not changed"
            return _ready(world)
        case Verb.REQUEST:
            if world.state.successor is None:
                return "no successor has joined"
            return None if world.state.successor_ready else f"successor {world.state.successor} is not ready"
        case Verb.TERMINATE:
            # One that was off before is still there, and still costs.
            freed = world.state.power == "off" and was.power != "off"
            gone = not world.state.exists or freed
            return None if gone else f"the provider says that the machine is {world.state.power}"


def frees(verbs: Iterable[Verb], before: Identity, was: MachineState, world: World) -> bool:
    """Whether what the machine held may be let go: it was to end and is proved off, and its node is still its own.

    Never for a reboot: a machine that is off for a moment comes back with all that ran on it.
    """
    node = world.node
    ours = node is not None and node.machine.id == before.machine_id and node.uid == before.uid
    return ours and Verb.TERMINATE in verbs and missing(Verb.TERMINATE, before, was, world) is None


def another_machine(before: Identity, world: World) -> str | None:
    """Says so when another machine answers under the node's name: it can prove nothing about ours."""
    if world.node is None or world.node.machine.id == before.machine_id:
        return None
    return f"machine {world.node.machine.id} answers under this name, not {before.machine_id}"


def _new_boot(before: Identity, world: World) -> str | None:
    if world.node is None:
        return "the node is not in the cluster"
    boot = world.node.machine.boot_id
    if boot is None:
        return "the boot id can't be read"
    return f"boot id is still {boot}" if boot == before.boot_id else None


def _ready(world: World) -> str | None:
    if world.node is None:
        return "the node is not in the cluster"
    return None if world.node.ready else "the node is not ready"
