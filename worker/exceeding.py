"""Who is over a threshold already when it is switched on: a fleet must not be ejected by the stroke of a pen."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from activities.registry import Registry
from activities.storage.ledger import Ledger
from medevac.events.event import HealthEvent
from medevac.faults.threshold import Threshold
from medevac.model import Model
from medevac.policy.policy import Policy

READING_AGE = timedelta(minutes=15)
"""Measurements older than this say nothing about now."""
MOST_READINGS = 20_000
MANY_PERCENT = 2
"""Of a pool. More than that is applied only when a person accepts it."""

Place = tuple[str, str]


class Exceeding(Model):
    """Nodes of a pool that are over a newly set threshold, by their last measurement."""

    pool: str
    threshold: str
    nodes: tuple[str, ...]
    of: int

    @property
    def text(self) -> str:
        named = ", ".join(self.nodes[:5]) + (", ..." if len(self.nodes) > 5 else "")
        return f"{len(self.nodes)} of {self.of} nodes of pool {self.pool} are over {self.threshold} now: {named}"


def exceeding(active: Policy, new: Policy, registry: Registry, ledger: Ledger, now: datetime) -> list[Exceeding]:
    """For each threshold that is new or lower than before, and each pool of the new policy with such nodes."""
    fresh = [one for one in new.thresholds if one.above < _before(active, one)]
    if not fresh:
        return []
    readings = _readings(ledger, now)
    pools: dict[str, set[Place]] = defaultdict(set)
    for cluster in registry.clusters():
        for node in map(new.place, cluster.nodes()):
            if node.pool is not None:
                pools[node.pool].add((node.cluster, node.name))
    found = []
    for one in fresh:
        over = {place for place, event in readings if _over(event, one)}
        for pool, members in pools.items():
            if hot := sorted(name for _, name in members & over):
                words = f"{one.name} {one.above:g}"
                found.append(Exceeding(pool=pool, threshold=words, nodes=tuple(hot), of=len(members)))
    return found


def _before(active: Policy, threshold: Threshold) -> float:
    same = (one.above for one in active.thresholds if (one.name, one.fault) == (threshold.name, threshold.fault))
    return min(same, default=float("inf"))


def _readings(ledger: Ledger, now: datetime) -> list[tuple[Place, HealthEvent]]:
    """The last one of each measurement and entity of each node."""
    latest: dict[tuple[Place, str, tuple[str, ...]], HealthEvent] = {}
    for seen in ledger.events_since(now - READING_AGE, MOST_READINGS):
        event = seen.event
        if event.measurement is not None and seen.node is not None and event.cluster is not None:
            # Newest first: the first one stays.
            latest.setdefault(((event.cluster, seen.node), event.measurement.name, event.entities), event)
    return [(place, event) for (place, _, _), event in latest.items()]


def _over(event: HealthEvent, threshold: Threshold) -> bool:
    sample = event.measurement
    return sample is not None and sample.name == threshold.name and sample.value > threshold.above
