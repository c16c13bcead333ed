"""Whether what a person has named is there: a mistyped name holds nobody, and that must be said at once."""

from __future__ import annotations

from activities.ports import Unreadable
from activities.storage.policies import NoPolicy
from worker.gateway.services import Services
from worker.intake.inventory import Found


def doubt(
    served: Services,
    *,
    cluster: str | None = None,
    provider: str | None = None,
    pool: str | None = None,
    node: str | None = None,
) -> str:
    """Added to an answer; empty where all of it is there, or can't be told now."""
    try:
        there = _there(served, cluster, provider, pool, node)
    except (NoPolicy, Unreadable):
        return ""
    return "" if there else ". BUT nothing here is called that, so it may hold nobody: mind the spelling"


def _there(served: Services, cluster: str | None, provider: str | None, pool: str | None, node: str | None) -> bool:
    clusters = {one.name for one in served.registry.clusters()}
    if cluster is not None and cluster not in clusters:
        return False
    if provider is not None and provider not in {one.name for one in served.registry.providers()}:
        return False
    if pool is not None:
        known = served.stores.policies.active().policy.pools.get(pool)
        if known is None or cluster not in (None, *known.clusters):
            return False
    if node is None:
        return True
    found = served.inventory.resolve(node, cluster, clusters)
    if isinstance(found, Found):
        return found.node.name == node
    return any(one.partition("/")[2] == node for one in found.ambiguous)
