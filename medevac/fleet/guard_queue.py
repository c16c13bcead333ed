"""How many at once, and who goes next: severity, then age, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from medevac.counted import some
from medevac.fleet.census import Census, node_key
from medevac.fleet.guard_state import Lease, Queued, State, domains_of
from medevac.fleet.lease import LeaseRequest
from medevac.fleet.limits import Limits, Share

STEP_S = 1_800.0
"""A fault class is worth this much waiting: a degraded node that waited half an hour goes before a critical one that
didn't. What came later than that never overtakes, so nothing starves."""
BY_MACHINE = frozenset({"provider"})
"""Domains whose limit is about machines, not about jobs: here a gang's nodes count one by one."""
NAMED = 8
"""Holders named in a reason."""
WOKEN = 3


@dataclass(frozen=True, slots=True)
class Denial:
    reason: str
    holders: tuple[str, ...]
    blocked: str = ""
    """The domain that refused, if one did."""
    ours: bool = False
    """Our own leases are in the way, so a place in line makes sense."""
    retry_s: float | None = None


def turn_of(request: LeaseRequest, now: datetime) -> datetime:
    """Lower goes first. Fixed for a request, whenever it is looked at."""
    return min(request.asked_at, now) + timedelta(seconds=STEP_S * request.fault_class.rank)


def at_once(state: State, request: LeaseRequest, turn: datetime, limits: Limits, census: Census) -> Denial | None:
    """The limit that refuses, in any of the request's domains; None when all of them allow it."""
    domains = domains_of(request)
    me = node_key(request.cluster, request.node)
    others = [lease for lease in state.leases.values() if lease.lease_id != request.lease_id]
    free: dict[str, int] = {}
    mine: dict[str, str] = {}
    for kind, share in limits.at_once.items():
        key = domains.get(kind)
        if key is None:
            continue
        leases = [lease for lease in others if lease.domains.get(kind) == key]
        busy = units(kind, leases)
        mine[key] = me if kind in BY_MACHINE else request.gang or me
        if mine[key] in busy:
            continue
        allowed = allowed_at_once(share, census.size(key))
        out = census.out.get(key, frozenset()) - {lease.node_key for lease in leases} - {me}
        free[key] = allowed - len(busy) - len(out)
        if free[key] <= 0:
            holders = (*sorted({lease.incident for lease in leases}), *sorted(out))
            reason = f"{key}: {allowed} at once; {_holders(leases, out)}"
            return Denial(reason, holders[:NAMED], blocked=key, ours=len(busy) >= allowed)
    ahead = _ahead(state, request.lease_id, turn)
    first = min(ahead, key=_order, default=None)
    for key, places in free.items():
        before = [q for q in ahead if key in q.domains.values() and (q.blocked == key or q is first)]
        kind = key.partition(":")[0]
        if len(units(kind, before) - {mine[key]}) >= places:
            names = tuple(q.incident for q in sorted(before, key=_order)[:NAMED])
            reason = f"{key}: {places} free; before this: {', '.join(names)}"
            return Denial(reason, names, blocked=key, ours=True)
    return None


def units(kind: str, those: Iterable[Lease | Queued]) -> set[str]:
    """What counts once in a domain of that kind: nodes of one gang together, except where it is about machines."""
    return {node_key(one.cluster, one.node) if kind in BY_MACHINE else one.unit for one in those}


def allowed_at_once(share: Share, size: int) -> int:
    """Percent rounded down, but at least one where a percentage is given at all."""
    return max(share.of(size), 1 if share.percent > 0 else 0)


def in_line(state: State, lease_id: str, turn: datetime, blocked: str) -> int:
    """1 = next, among those who wait for the same domain."""
    return 1 + sum(1 for q in _ahead(state, lease_id, turn) if blocked in q.domains.values())


def next_in_line(state: State, lease: Lease) -> tuple[str, ...]:
    """Workflows to wake, now that `lease` is gone: the first in line for any of its domains."""
    freed = set(lease.domains.values())
    waiting = sorted((q for q in state.queue.values() if q.blocked in freed), key=_order)
    return tuple(dict.fromkeys(q.workflow_id for q in waiting))[:WOKEN]


def _ahead(state: State, lease_id: str, turn: datetime) -> list[Queued]:
    """Who goes before. Those whom others' outages block keep nobody waiting.

    One keeps a place free only where it was refused: blocked by a full rack, it shouldn't hold the pool's places too.
    But the very first in line keeps a place in all of its domains, so that two of them can't refuse it by turns.
    """
    own = (turn, lease_id)
    return [q for q in state.queue.values() if q.ours and q.lease_id != lease_id and _order(q) < own]


def _order(queued: Queued) -> tuple[datetime, str]:
    return (queued.turn, queued.lease_id)


def _holders(leases: list[Lease], out: frozenset[str]) -> str:
    parts = []
    if leases:
        parts.append("held by " + ", ".join(sorted(f"{lease.incident} ({lease.node})" for lease in leases)[:NAMED]))
    if out:
        parts.append(f"out of service: {some(sorted(out), NAMED)}")
    return "; ".join(parts) or "none are allowed"
