"""Whose programs repair the nodes of which pool beside us, and what is to be done about it."""

from __future__ import annotations

from collections import defaultdict

from activities.ports import HasOthers
from activities.registry import Registry
from medevac.fleet.remediator import Remediator
from medevac.model import Model
from medevac.policy.plan import Mode
from medevac.policy.policy import Policy
from medevac.policy.pools import Coexist, Pool


class Beside(Model):
    """One pool with those that may repair its nodes, by name."""

    pool: str
    remediators: tuple[Remediator, ...]
    of: int
    """Nodes of the pool."""

    @property
    def text(self) -> str:
        named = "; ".join(f"{one.name} ({one.seen})" for one in self.remediators)
        return f"pool {self.pool} of {self.of} nodes: {named}"

    @property
    def off(self) -> str:
        return "; ".join(f"{one.name}: {one.off}" for one in self.remediators)

    @property
    def acting(self) -> tuple[Remediator, ...]:
        return tuple(one for one in self.remediators if one.acts)

    def wrong(self, pool: Pool) -> str:
        """What the policy must not say of it, with what to do; empty where it may."""
        if pool.coexist is None and pool.mode is not Mode.OBSERVE:
            return (
                f"say `coexist: yield` for pool {self.pool}, or `own` once they are off ({self.off});"
                " until then it is only observed"
            )
        if pool.coexist is Coexist.OWN and self.acting:
            first = "; ".join(f"{one.name}: {one.off}" for one in self.acting)
            return f"pool {self.pool} says `coexist: own` and is only observed while they act; switch off {first}"
        return ""


def beside(policy: Policy, registry: Registry) -> list[Beside]:
    """Pools that have any. Raises `Unreadable`."""
    found: dict[str, dict[str, Remediator]] = defaultdict(dict)
    sizes: dict[str, int] = defaultdict(int)
    for cluster in registry.clusters():
        if not isinstance(cluster, HasOthers):
            continue
        for node in map(policy.place, cluster.nodes()):
            if node.pool is None:
                continue
            sizes[node.pool] += 1
            for one in cluster.remediators(node):
                known = found[node.pool].get(one.name)
                found[node.pool][one.name] = one if known is None or one.acts else known
    return [
        Beside(pool=pool, remediators=tuple(there[name] for name in sorted(there)), of=sizes[pool])
        for pool, there in sorted(found.items())
        if there and pool in policy.pools
    ]


def newly_owned(active: Policy, new: Policy, registry: Registry) -> list[Beside]:
    """Pools that only the new policy calls medevac's own, with others on their nodes."""

    def says(policy: Policy, name: str) -> bool:
        pool = policy.pools.get(name)
        return pool is not None and pool.coexist is Coexist.OWN

    if not any(says(new, name) and not says(active, name) for name in new.pools):
        return []
    return [one for one in beside(new, registry) if says(new, one.pool) and not says(active, one.pool)]
