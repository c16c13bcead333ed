"""What a rung destroys, in words that a voter can weigh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from medevac.fleet.node import Node, Workload
from medevac.policy.cost import loss
from medevac.policy.plan import Rung
from medevac.policy.settings import Checkpoint

KEEPS_WORK = frozenset({Rung.RESTART_AGENT, Rung.RMA, Rung.ESCALATE})
"""Rungs that evict nobody."""
EMPTIES_MEMORY = frozenset({Rung.RESET_GPU, Rung.REBOOT})
LOSES_DISKS = frozenset({Rung.REINSTALL, Rung.REPLACE, Rung.TERMINATE})
LOSES_SLOT = frozenset({Rung.REPLACE, Rung.TERMINATE})
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
    data = tuple(sorted(what for what in node.machine.local_data_in_use if _gone(rung, what)))
    slot = rung in LOSES_SLOT and node.machine.reserved
    local = [f"local data in use: {what}" for what in data]
    if rung in LOSES_DISKS and not data:
        local.append("the machine's local disks (nobody is known to use them)")
    if slot:
        local.append(f"the reserved slot of {node.machine.id}")
    return Stakes((*texts, *local), (*keys, *local), data, slot)


def _gone(rung: Rung, what: str) -> bool:
    if rung in LOSES_DISKS:
        return True
    return rung in EMPTIES_MEMORY and any(word in what.lower() for word in _IN_MEMORY)


def of_work(work: Workload, checkpoints: tuple[Checkpoint, ...], now: datetime) -> str:
    """What evicting one piece of work now would lose, in words."""
    size = f"{work.gpus} GPUs" + (f" on {work.nodes} nodes" if work.nodes > 1 else "")
    return f"{work.kind} {work.name} ({size}): {loss(work, checkpoints, now).words}"


def with_owner(cost: str, owner: str) -> str:
    """The same words, with whose it is; once, however often it is said."""
    said = f" (owner {owner})" if owner else ""
    return cost.removesuffix(said) + said
