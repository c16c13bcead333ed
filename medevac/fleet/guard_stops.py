"""What stops a destructive request whatever the limits say: fences, breakers, missing spares, the pace after a stop."""

from __future__ import annotations

from datetime import datetime, timedelta

from medevac.fleet.census import Census, node_key
from medevac.fleet.fence import Edge, strongest
from medevac.fleet.guard_queue import Denial
from medevac.fleet.guard_state import LEVEL, State, domains_of, scopes_of_request
from medevac.fleet.guard_sums import open_breaker
from medevac.fleet.lease import LeaseRequest
from medevac.fleet.limits import Limits

SLOWEST_S = 15.0


def stopped(
    state: State, request: LeaseRequest, now: datetime, limits: Limits, census: Census | None
) -> tuple[State, Denial | None]:
    """What stops the request whatever the limits say."""
    fence = strongest(state.fences, scopes_of_request(request), Edge.DESTRUCTIVE)
    if fence is not None:
        return state, Denial(fence.said, (fence.by,))
    for lease in state.leases.values():
        if lease.node_key == node_key(request.cluster, request.node) and lease.incident != request.incident:
            reason = f"incident {lease.incident} holds a lease on this node until it lets go or is reaped"
            return state, Denial(reason, (lease.incident,))
    if census is None:
        return state, None
    state, breaker = open_breaker(state, request, now, limits, census)
    if breaker is not None:
        return state, Denial(f"breaker {breaker.cluster}/{breaker.cause} is open: {breaker.reason}", ())
    if (denial := _no_spares(state, request, limits, census)) is not None:
        return state, denial
    return state, _paced(state, request, now, limits)


def _no_spares(state: State, request: LeaseRequest, limits: Limits, census: Census) -> Denial | None:
    pool = domains_of(request)["pool"]
    spares = census.spares.get(pool)
    if spares is None or spares > limits.min_spares or not request.job_running:
        return None
    if _with_its_gang(state, request):
        return None
    return Denial(f"{pool} has {spares} spares and the job still runs on this node", (), blocked=pool)


def _with_its_gang(state: State, request: LeaseRequest) -> bool:
    return bool(request.gang) and any(lease.gang == request.gang for lease in state.leases.values())


def _paced(state: State, request: LeaseRequest, now: datetime, limits: Limits) -> Denial | None:
    """A gang that is disrupted already isn't: its job stands until the last of its nodes is through."""
    if limits.grant_pace_s <= 0 or _with_its_gang(state, request):
        return None
    since = now - timedelta(seconds=limits.fleet_window_s)
    calmed = [at for scope, at in state.thawed.items() if scope in scopes_of_request(request)]
    stopping = (state.breakers.get((request.cluster, cause)) for cause in (LEVEL, str(request.fault_class)))
    calmed += [breaker.closed_at for breaker in stopping if breaker is not None and breaker.closed_at]
    if not any(at > since for at in calmed):
        return None
    pool = domains_of(request)["pool"]
    last = max((g.at for g in state.grants.values() if g.edge == "destructive" and g.pool == pool), default=None)
    wait_s = 0.0 if last is None else limits.grant_pace_s - (now - last).total_seconds()
    if wait_s <= 0:
        return None
    reason = f"{pool} goes slowly after a stop: one grant in {limits.grant_pace_s:g} s"
    return Denial(reason, (), blocked=pool, ours=True, retry_s=max(0.5, min(wait_s, SLOWEST_S)))


def unreadable(request: LeaseRequest) -> Denial:
    return Denial(f"cluster {request.cluster} can't be read, so nobody knows what is out of service", ())
