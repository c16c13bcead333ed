"""What a rung destroys, in words that a voter can weigh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from medevac.fleet.node import Machine, Node, Workload
from medevac.policy.cost import loss
from medevac.policy.ladders import gentle
from medevac.policy.plan import Rung
from medevac.policy.settings import Checkpoint

KEEPS_WORK = frozenset({Rung.RESTART_AGENT, Rung.RMA, Rung.ESCALATE})
"""Rungs that evict nobody."""
EMPTIES_MEMORY = frozenset({Rung.RESET_GPU, Rung.REBOOT})
ENDS_IT = frozenset({Rung.REPLACE, Rung.TERMINATE})
"""Its slot and its addresses go with it."""
_IN_MEMORY = ("memory", "tmpfs", "/dev/shm")  # noqa: S108  words of a description, not a path that is used


@dataclass(frozen=True, slots=True)
class Stakes:
    destroys: tuple[str, ...]
    """With amounts, as they are now."""
    at_stake: tuple[str, ...]
    """The same without amounts: equal as long as the same things are at stake."""
    data: tuple[str, ...]
    """Local data that someone uses and that would be gone."""
    slot: bool
    """A reserved slot would be given up."""


def stakes(
    rung: Rung, node: Node, workloads: Iterable[Workload], checkpoints: Iterable[Checkpoint], now: datetime
) -> Stakes:
    texts: list[str] = []
    keys: list[str] = []
    listed = tuple(checkpoints)
    if rung not in KEEPS_WORK:
        for work in sorted(workloads, key=lambda w: w.name):
            texts.append(of_work(work, listed, now))
            keys.append(f"work of {work.name}")
    machine, stays = node.machine, gentle(rung, node.machine)
    data = tuple(sorted(what for what in machine.local_data_in_use if not stays or _in_memory(rung, what)))
    slot = rung in ENDS_IT and machine.reserved
    local = [f"local data in use: {what}" for what in data]
    if not stays and not data:
        local.append("the machine's local disks (nobody is known to use them)")
    if slot:
        local.append(f"the reserved slot of {machine.id}")
    local += _addresses(rung, machine)
    return Stakes((*texts, *local), (*keys, *local), data, slot)


def _in_memory(rung: Rung, what: str) -> bool:
    return rung in EMPTIES_MEMORY and any(word in what.lower() for word in _IN_MEMORY)


def _addresses(rung: Rung, machine: Machine) -> Iterator[str]:
    for address in machine.public_addresses:
        if rung in ENDS_IT:
            yield f"the public address {address} of the machine"
        elif rung is Rung.REBOOT and not gentle(rung, machine):
            yield f"the public address {address} of the machine, unless it is elastic"


def of_work(work: Workload, checkpoints: tuple[Checkpoint, ...], now: datetime) -> str:
    """What evicting one piece of work now would lose, in words."""
    size = f"{work.gpus} GPUs" + (f" on {work.nodes} nodes" if work.nodes > 1 else "")
    return f"{work.kind} {work.name} ({size}): {loss(work, checkpoints, now).words}"


def with_owner(cost: str, owner: str) -> str:
    """The same words, with whose it is; once, however often it is said."""
    said = f" (owner {owner})" if owner else ""
    return cost.removesuffix(said) + said
