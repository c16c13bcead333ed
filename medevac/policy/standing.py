"""How far medevac may go with one node, and every reason that holds it back."""

from __future__ import annotations

from dataclasses import dataclass

from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator
from medevac.policy.plan import Mode
from medevac.policy.policy import Policy
from medevac.policy.pools import NO_GPUS, Coexist, Pool

STILL_ACTS = "still acts on it"


@dataclass(frozen=True, slots=True)
class Standing:
    mode: Mode
    reasons: tuple[str, ...]
    pool: Pool | None = None
    look_again: bool = False
    """Only what passes by itself holds it back."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known about the node's place in the fleet."""

    remediators: tuple[Remediator, ...] = ()
    """Other programs that may repair this node."""
    storage_ok: bool | None = None
    """The pool's storage probe, asked just now; None = not asked or not answered."""
    storage_why: str = ""
    """Why it didn't pass."""
    certified: bool = True
    """The machine's provider was proved on a real machine of this installation."""
    predates: str = ""
    """Why the trouble is older than the permission to act on it, and nobody has adopted it."""


def standing(policy: Policy, node: Node, around: Surroundings) -> Standing:
    """`node` is placed already (`Policy.place`)."""
    pool = policy.pools.get(node.pool or "")
    if policy.simulated_only and not node.simulated:
        return _observed(f"policy `{policy.name}` is for simulated fleets only, and {node.name} is real", pool)
    if pool is None:
        names = policy.pools_of(node)
        if names:
            return _observed(
                f"{node.name} stands in several pools ({', '.join(names)}): it is in none until one is left"
            )
        return _observed(f"{node.name} is in no pool of the policy, so it is only observed")
    held = tuple(_held(node, pool, around))
    if held:
        waits = held == tuple(_storage(node, pool, around)) and pool.mode is not Mode.OBSERVE
        return Standing(Mode.OBSERVE, held, pool, look_again=waits)
    asked_for = f"pool `{node.pool}` is in mode {pool.mode}"
    if pool.mode is Mode.AUTO and not around.certified and not node.simulated:
        name = node.machine.provider
        proof = f"`medevac provider certify {name} --machine ID`"
        why = f"provider {name} isn't certified here, so people approve; {proof} proves it"
        return Standing(Mode.APPROVE, (asked_for, why), pool)
    return Standing(pool.mode, (asked_for,), pool)


def _held(node: Node, pool: Pool, around: Surroundings) -> list[str]:
    found = []
    if node.gpus == 0 and NO_GPUS not in pool.includes:
        found.append(f"{node.name} has no GPUs, and pool `{node.pool}` doesn't include such nodes")
    if roles := [role for role in node.roles if role not in pool.includes]:
        found.append(f"{node.name} is {', '.join(roles)}: never disrupted unless its pool's `includes` names that")
    found.extend(_storage(node, pool, around))
    found.extend(_others(node, pool, around.remediators))
    if around.predates:
        found.append(f"{around.predates}; `medevac adopt --node {node.cluster}/{node.name}` hands it to medevac")
    return found


def _storage(node: Node, pool: Pool, around: Surroundings) -> list[str]:
    if pool.probe_of(node) is None or around.storage_ok is True:
        return []
    why = f": {around.storage_why}" if around.storage_why else ""
    return [f"the storage probe `{pool.storage_probe}` has not passed just now{why}"]


def _others(node: Node, pool: Pool, remediators: tuple[Remediator, ...]) -> list[str]:
    """A second hand on the same node is worse than a slow one."""
    names = ", ".join(one.name for one in remediators)
    if pool.coexist is None:
        return (
            [f"{names} repairs nodes of pool `{node.pool}` too; say `coexist: yield` or `own` first"] if names else []
        )
    if pool.coexist is Coexist.YIELD:
        keeps = node.foreign_cordon
        return (
            [f"pool `{node.pool}` yields, and {keeps} has cordoned {node.name}; its repair is followed"]
            if keeps
            else []
        )
    return [
        f"pool `{node.pool}` is medevac's own, and {one.name} {STILL_ACTS} ({one.seen}); first: {one.off}"
        for one in remediators
        if one.acts
    ]


def _observed(why: str, pool: Pool | None = None) -> Standing:
    return Standing(Mode.OBSERVE, (why,), pool)
