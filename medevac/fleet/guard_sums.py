"""Rules that look at sums: when is it no longer one node but the fleet, and when must everything stop."""

from __future__ import annotations

from datetime import datetime, timedelta

from medevac.fleet.census import Census, node_key
from medevac.fleet.guard_state import LEVEL, Breaker, State, domains_of, with_item
from medevac.fleet.lease import LeaseRequest
from medevac.fleet.limits import Limits

MARKS_FLOOR = 3
"""So many marks may stand in any pool, however small; a larger share is the policy's."""


def fleet_wide(state: State, request: LeaseRequest, now: datetime, limits: Limits, census: Census) -> dict[str, str]:
    """Why this destructive step is no longer about one node: trigger → words. Empty when it is (rule 3)."""
    why: dict[str, str] = {}
    pool = domains_of(request)["pool"]
    since = now - timedelta(seconds=limits.fleet_window_s)
    allowed = max(limits.fleet_nodes, int(census.size(pool) * limits.fleet_percent / 100))
    disrupted = {
        g.node_key for g in state.grants.values() if g.edge == "destructive" and g.pool == pool and g.at > since
    }
    if len(disrupted | {node_key(request.cluster, request.node)}) > allowed:
        why[pool] = (
            f"{len(disrupted)} nodes of {pool} were disrupted within {_span(limits.fleet_window_s)}; "
            f"more than {allowed} is fleet-wide"
        )
    since = now - timedelta(seconds=limits.same_fault_window_s)
    showing = {s.node_key for s in state.sightings.values() if s.fault_class == request.fault_class and s.at > since}
    if len(showing) >= limits.same_fault_nodes:
        why[f"class:{request.fault_class}"] = (
            f"{limits.same_fault_nodes} nodes or more show a {request.fault_class} fault within "
            f"{_span(limits.same_fault_window_s)}"
        )
    return why


def too_many_marks(
    state: State, request: LeaseRequest, now: datetime, limits: Limits, census: Census | None
) -> dict[str, str]:
    """Why this mark is one too many. Where the cluster can't be read, only the number in the window counts."""
    pool = domains_of(request)["pool"]
    me = node_key(request.cluster, request.node)
    size = 0 if census is None else census.size(pool)
    since = now - timedelta(seconds=limits.marks_window_s)
    lately = {g.node_key for g in state.grants.values() if g.edge == "mark" and g.pool == pool and g.at > since}
    allowed = limits.marks.of(size)
    if len(lately | {me}) > allowed:
        words = f"{len(lately)} nodes of {pool} were marked within {_span(limits.marks_window_s)}; {allowed} may be"
        return {f"marks:{pool}": words}
    if census is None:
        return {}
    standing = lately | census.marked.get(pool, frozenset())
    allowed = max(min(MARKS_FLOOR, limits.marks.count), int(size * limits.marks_standing_percent / 100))
    if len(standing | {me}) > allowed:
        return {f"marks:{pool}": f"{len(standing)} nodes of {pool} carry a mark; {allowed} may"}
    return {}


def open_breaker(
    state: State, request: LeaseRequest, now: datetime, limits: Limits, census: Census
) -> tuple[State, Breaker | None]:
    """The breaker that stops this request, after each was opened or (by level) closed as the world says now."""
    state = _level(state, request, now, limits, census)
    state = _rate(state, request, now, limits)
    for cause in (LEVEL, str(request.fault_class)):
        breaker = state.breakers.get((request.cluster, cause))
        if breaker is not None and breaker.closed_at is None:
            return state, breaker
    return state, None


def _level(state: State, request: LeaseRequest, now: datetime, limits: Limits, census: Census) -> State:
    cluster = f"cluster:{request.cluster}"
    ours = {lease.node_key for lease in state.leases.values() if lease.cluster == request.cluster}
    out = (ours | census.out.get(cluster, frozenset())) - {node_key(request.cluster, request.node)}
    # One node alone is never a level: in a cluster of eight it would be more than the usual tenth.
    threshold = max(2.0, census.size(cluster) * limits.breaker_level_percent / 100)
    before = state.breakers.get((request.cluster, LEVEL))
    is_open = before is not None and before.closed_at is None
    if len(out) >= threshold and not is_open:
        reason = (
            f"{len(out)} of {census.size(cluster)} nodes of cluster {request.cluster} are out of service, "
            f"{limits.breaker_level_percent:g} % or more; it closes by itself when fewer are"
        )
        return _set(state, Breaker(request.cluster, LEVEL, now, reason))
    if len(out) < threshold and is_open and before is not None:
        return _set(state, Breaker(before.cluster, LEVEL, before.opened_at, before.reason, (), now))
    return state


def _rate(state: State, request: LeaseRequest, now: datetime, limits: Limits) -> State:
    cause = str(request.fault_class)
    before = state.breakers.get((request.cluster, cause))
    if before is not None and before.closed_at is None:
        return state
    since = now - timedelta(seconds=limits.breaker_window_s)
    if before is not None and before.closed_at is not None:
        since = max(since, before.closed_at)
    # What people agreed to as fleet-wide is bounded by their list; the rate catches what nobody asked for.
    count = sum(
        1
        for g in state.grants.values()
        if g.edge == "destructive"
        and g.cluster == request.cluster
        and g.fault_class == request.fault_class
        and g.approval is None
        and g.at > since
    )
    if count < limits.breaker_rate:
        return state
    reason = (
        f"{count} destructive grants for {cause} faults in cluster {request.cluster} within "
        f"{_span(limits.breaker_window_s)}; two people close it"
    )
    return _set(state, Breaker(request.cluster, cause, now, reason))


def _set(state: State, breaker: Breaker) -> State:
    return state.put(breakers=with_item(state.breakers, (breaker.cluster, breaker.cause), breaker))


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min"
