"""The guard: one pure class, with an explicit clock, that keeps the sum of disruptions inside its budgets.

The SQL transaction, the simulator and the property tests run this same class.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from medevac.fleet.census import Census
from medevac.fleet.fence import Edge, strongest
from medevac.fleet.guard_queue import Denial, at_once, in_line, next_in_line, turn_of
from medevac.fleet.guard_state import (
    Approved,
    ClosingVote,
    Grant,
    Lease,
    Question,
    Queued,
    Sighting,
    State,
    domains_of,
    scopes_of_request,
    with_item,
    without,
)
from medevac.fleet.guard_stops import stopped, unreadable
from medevac.fleet.guard_sums import fleet_wide, too_many_marks
from medevac.fleet.guard_votes import CLOSING_PEOPLE, Weighed, weigh
from medevac.fleet.lease import Ask, Granted, LeaseAnswer, LeaseRef, LeaseRequest, Waiting
from medevac.fleet.limits import Limits
from medevac.policy.plan import ApprovalNeed

SMALL_POOL = 5
"""In a pool of fewer nodes, one node is no small share: a person says yes to each."""
RETRY_S = 2.0
RETRY_MOST_S = 15.0


class Guard:
    """Leases are permissions to disrupt. Protective edges and everything that ends a disruption always pass."""

    def __init__(self, limits: Limits, fleet: ApprovalNeed, one: ApprovalNeed) -> None:
        """`fleet` says who must agree to what is fleet-wide, `one` to a single node in a small pool."""
        self.limits = limits
        self.fleet = fleet
        self.one = one

    # -- asking ------------------------------------------------------------------------------------------------

    def decide(
        self,
        state: State,
        request: LeaseRequest,
        now: datetime,
        census: Census | None,
        approved: Approved | None = None,
    ) -> tuple[State, LeaseAnswer]:
        """Granted, waiting (which limit, who holds it, where in line), or a question to people.

        `census` is the request's cluster as it is now; None = it can't be read, which destruction waits for.
        `approved` covers this very request, or is None. The same lease id and plan get the same grant.
        """
        state = self._tidy(state, now)
        if request.edge == "mark":
            return self._decide_mark(state, request, now, census, approved)
        held = state.leases.get(request.lease_id)
        if held is not None and _same(held, request) and not held.expired(now):
            return state, Granted(lease_id=held.lease_id, epoch=held.epoch, until=held.until)
        state = _sight(state, request, now)
        # Asked before anything may make it wait: after a long stop the sum would no longer look like one.
        if (why := self._why_ask(state, request, now, census)) and not (approved and approved.fleet_wide):
            return self._ask(state, request, now, why)
        state, stop = stopped(state, request, now, self.limits, census)
        if stop is not None or census is None:
            return self._wait(state, request, now, stop or unreadable(request))
        if small := self._small_pool(request, census, approved):
            return state.put(queue=without(state.queue, request.lease_id)), small
        turn = _turn(state, request, now)
        if (denial := at_once(state, request, turn, self.limits, census)) is not None:
            return self._wait(state, request, now, denial)
        return self._grant(state, request, now, approved)

    def _why_ask(self, state: State, request: LeaseRequest, now: datetime, census: Census | None) -> dict[str, str]:
        why = fleet_wide(state, request, now, self.limits, census or Census(cluster=request.cluster, sizes={}))
        if why:
            return why
        if state.question is not None:
            mine = (domains_of(request)["pool"], f"class:{request.fault_class}")
            why = {trigger: state.question.about[trigger] for trigger in mine if trigger in state.question.about}
        return why or _asked_before(state, request)

    def _small_pool(self, request: LeaseRequest, census: Census, approved: Approved | None) -> Ask | None:
        pool = domains_of(request)["pool"]
        size = census.size(pool)
        if size >= SMALL_POOL or approved is not None or request.person_asked:
            return None
        again = f"-{request.asks}" if request.asks else ""
        approval = re.sub(r"[^A-Za-z0-9._-]+", "-", f"small-pool-{request.incident}-{request.plan_hash}{again}")
        reason = f"{pool} has only {size} nodes; a person says yes to each disruption"
        need = self.one.model_copy(update={"why": (reason,)})
        return Ask(approval=approval, reason=reason, fleet_wide=False, need=need)

    # -- answering ---------------------------------------------------------------------------------------------

    def _grant(
        self, state: State, request: LeaseRequest, now: datetime, approved: Approved | None
    ) -> tuple[State, Granted]:
        epoch = state.epoch + 1
        until = now + timedelta(seconds=self.limits.lease_ttl_s)
        if request.edge != "mark":
            lease = Lease(
                lease_id=request.lease_id,
                incident=request.incident,
                workflow_id=request.workflow_id,
                cluster=request.cluster,
                node=request.node,
                gang=request.gang,
                domains=domains_of(request),
                fault_class=request.fault_class,
                plan_hash=request.plan_hash,
                epoch=epoch,
                granted_at=now,
                until=until,
            )
            state = state.put(
                leases=with_item(state.leases, lease.lease_id, lease), queue=without(state.queue, lease.lease_id)
            )
        grant = Grant(
            epoch=epoch,
            lease_id=request.lease_id,
            edge=request.edge,
            incident=request.incident,
            cluster=request.cluster,
            pool=domains_of(request)["pool"],
            node=request.node,
            fault_class=request.fault_class,
            approval=approved.approval if approved and approved.fleet_wide else None,
            at=now,
        )
        state = state.put(epoch=epoch, grants=with_item(state.grants, epoch, grant))
        return state, Granted(lease_id=request.lease_id, epoch=epoch, until=until)

    def _wait(self, state: State, request: LeaseRequest, now: datetime, denial: Denial) -> tuple[State, Waiting]:
        turn = _turn(state, request, now)
        place = in_line(state, request.lease_id, turn, denial.blocked)
        retry_s = denial.retry_s or min(RETRY_MOST_S, RETRY_S + place / 4)
        queued = Queued(
            lease_id=request.lease_id,
            incident=request.incident,
            workflow_id=request.workflow_id,
            cluster=request.cluster,
            node=request.node,
            gang=request.gang,
            domains=domains_of(request),
            turn=turn,
            blocked=denial.blocked,
            ours=denial.ours,
            gone_after=now + timedelta(seconds=4 * retry_s + 30),
        )
        state = state.put(queue=with_item(state.queue, request.lease_id, queued))
        return state, Waiting(reason=denial.reason, holders=denial.holders, position=place, retry_s=retry_s)

    def _ask(self, state: State, request: LeaseRequest, now: datetime, why: dict[str, str]) -> tuple[State, Ask]:
        """One question for everyone whom it is about, as long as it isn't answered."""
        question = state.question
        if question is None:
            epoch = state.epoch + 1
            question = Question(f"fleet-{now:%Y%m%dT%H%M%S}-{epoch}", now, why)
            state = state.put(epoch=epoch)
        elif not why.keys() <= question.about.keys():
            question = replace(question, about={**why, **question.about})
        state = state.put(
            question=question,
            asked=with_item(state.asked, request.incident, question.approval),
            queue=without(state.queue, request.lease_id),
        )
        need = self.fleet.model_copy(update={"why": tuple(why.values())})
        return state, Ask(approval=question.approval, reason="; ".join(why.values()), need=need)

    def _decide_mark(
        self,
        state: State,
        request: LeaseRequest,
        now: datetime,
        census: Census | None,
        approved: Approved | None,
    ) -> tuple[State, LeaseAnswer]:
        """Marking protects: only its own, far looser budget and a fence on marks hold it."""
        for grant in state.grants.values():
            if grant.edge == "mark" and (grant.incident, grant.node) == (request.incident, request.node):
                until = grant.at + timedelta(seconds=self.limits.lease_ttl_s)
                return state, Granted(lease_id=request.lease_id, epoch=grant.epoch, until=until)
        state = _sight(state, request, now)
        fence = strongest(state.fences, scopes_of_request(request), Edge.MARK)
        if fence is not None:
            reason = f"frozen, marks too: {fence.scope} by {fence.by}: {fence.reason}"
            return state, Waiting(reason=reason, holders=(fence.by,), retry_s=RETRY_S)
        why = too_many_marks(state, request, now, self.limits, census)
        why = why or _asked_before(state, request)
        if why and not (approved and approved.fleet_wide):
            return self._ask(state, request, now, why)
        return self._grant(state, request, now, approved)

    # -- holding and letting go --------------------------------------------------------------------------------

    def renew(self, state: State, ref: LeaseRef, now: datetime) -> tuple[State, Granted | None]:
        """A holder that still runs keeps its lease, expired or not: nobody else got its place. None = not ours."""
        lease = state.leases.get(ref.lease_id)
        if lease is None or lease.epoch != ref.epoch:
            return state, None
        lease = replace(lease, until=now + timedelta(seconds=self.limits.lease_ttl_s))
        state = state.put(leases=with_item(state.leases, lease.lease_id, lease))
        return state, Granted(lease_id=lease.lease_id, epoch=lease.epoch, until=lease.until)

    def release(self, state: State, lease_id: str) -> tuple[State, tuple[str, ...]]:
        """Always succeeds; names the workflows that may go next. Nothing held: only its place in line is given up."""
        lease = state.leases.get(lease_id)
        state = state.put(leases=without(state.leases, lease_id), queue=without(state.queue, lease_id))
        return state, () if lease is None else next_in_line(state, lease)

    def reap(self, state: State, lease_id: str, now: datetime) -> tuple[State, Lease | None]:
        """Takes back an expired lease, once Temporal has said that its holder doesn't run. Never a live one."""
        lease = state.leases.get(lease_id)
        if lease is None or not lease.expired(now):
            return state, None
        return self.release(state, lease_id)[0], lease

    def close_breaker(
        self, state: State, cluster: str, cause: str, by: str, now: datetime
    ) -> tuple[State, Weighed | None]:
        """One person's word that the breaker may close; two distinct people close it, who have seen the same trouble.

        None = it isn't open. `state` has the sightings that `weigh` needs.
        """
        breaker = state.breakers.get((cluster, cause))
        if breaker is None or breaker.closed_at is not None:
            return state, None
        others = tuple(vote for vote in breaker.votes if vote.by != by)
        breaker = replace(breaker, votes=(*others, ClosingVote(by, now)))
        weighed = weigh(breaker, state.sightings.values(), now)
        if len(weighed.votes) >= CLOSING_PEOPLE:
            weighed = replace(weighed, breaker=replace(breaker, votes=weighed.votes, closed_at=now))
        return state.put(breakers=with_item(state.breakers, (cluster, cause), weighed.breaker)), weighed

    def _tidy(self, state: State, now: datetime) -> State:
        """Who has stopped asking has left the line."""
        if all(queued.gone_after >= now for queued in state.queue.values()):
            return state
        return state.put(queue={k: q for k, q in state.queue.items() if q.gone_after >= now})


def _same(lease: Lease, request: LeaseRequest) -> bool:
    return (lease.cluster, lease.node, lease.plan_hash) == (request.cluster, request.node, request.plan_hash)


def _asked_before(state: State, request: LeaseRequest) -> dict[str, str]:
    if request.incident not in state.asked:
        return {}
    return {f"incident:{request.incident}": f"{request.incident} was part of {state.asked[request.incident]}"}


def _turn(state: State, request: LeaseRequest, now: datetime) -> datetime:
    before = state.queue.get(request.lease_id)
    return turn_of(request, now) if before is None else min(before.turn, turn_of(request, now))


def _sight(state: State, request: LeaseRequest, now: datetime) -> State:
    key = (str(request.fault_class), request.cluster, request.node)
    before = state.sightings.get(key)
    if before is not None and before.incident == request.incident:
        return state
    seen = Sighting(request.fault_class, request.cluster, request.node, request.incident, now)
    return state.put(sightings=with_item(state.sightings, key, seen))
