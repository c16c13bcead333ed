"""The guard's transaction: lock, read, decide (pure), write.

One row is locked for the whole installation. A finer lock would have to follow everything that a limit may join
(clusters share providers, a fleet-wide sum has no domain at all), in a fixed order, to gain what isn't needed: callers
of one process share a transaction, so that hundreds of requests a second cost a few commits. SQLite locks the whole
file anyway. What a decision reads stays small: open leases, the line, and the grants of the last hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from activities.guard import rows
from activities.guard.batching import Batching, Job
from activities.storage.database import Database
from activities.storage.tables import breakers, leases
from medevac.fleet.census import Census
from medevac.fleet.guard import Guard
from medevac.fleet.guard_state import Breaker, Lease, State
from medevac.fleet.guard_votes import CLOSING_PEOPLE, Weighed, weigh
from medevac.fleet.lease import Granted, LeaseAnswer, LeaseRef, LeaseRequest
from medevac.policy.policy import Policy

FORGET_EVERY = 500


class InForce(Protocol):
    @property
    def policy(self) -> Policy: ...


class ActivePolicy(Protocol):
    def active(self) -> InForce: ...


@dataclass(frozen=True, slots=True)
class _Work:
    now: datetime
    change: Callable[[Guard, State, Connection], tuple[State, Any]]
    request: LeaseRequest | None = None
    closing: tuple[str, str] | None = None
    """Cluster and cause of the breaker that somebody wants closed."""


class GuardStore:
    """Every call is one transaction, idempotent, and raises `Unreadable` when it can't be done in time."""

    def __init__(self, db: Database, policies: ActivePolicy) -> None:
        self._db = db
        self._policies = policies
        self._batching = Batching(self._run, db.timeout_s)
        self._batches = 0
        self._remembered: rows.Remembered | None = None
        self._answered = float("-inf")

    def alive(self, within_s: float) -> bool:
        """Whether it has answered anybody of this process lately: then it is only busy."""
        return time.monotonic() - self._answered < within_s

    def acquire(self, request: LeaseRequest, now: datetime, census: Census | None = None) -> LeaseAnswer:
        """`census`: the request's cluster as it is now (seconds old at most); None = it can't be read."""

        def change(guard: Guard, state: State, connection: Connection) -> tuple[State, Any]:
            return guard.decide(state, request, now, census, rows.approved(connection, request, now))

        answer: LeaseAnswer = self._batching.do(_Work(now, change, request))
        return answer

    def mark_grant(self, request: LeaseRequest, now: datetime, census: Census | None = None) -> LeaseAnswer:
        """Permission to mark, whatever edge the request says; marks have a budget of their own."""
        return self.acquire(request.model_copy(update={"edge": "mark"}), now, census)

    def renew(self, ref: LeaseRef, now: datetime) -> Granted | None:
        """None = it isn't ours (any more)."""
        granted: Granted | None = self._batching.do(_Work(now, lambda g, s, _: g.renew(s, ref, now)))
        return granted

    def release(self, lease_id: str, now: datetime) -> list[str]:
        """Gives lease and place in line back, if there are any; names the workflows that may go next."""
        wake: tuple[str, ...] = self._batching.do(_Work(now, lambda g, s, _: g.release(s, lease_id)))
        return list(wake)

    def check(self, ref: LeaseRef, now: datetime) -> str | None:
        """None = ours and unexpired; else why not. Read afresh, right before each destructive call."""
        with self._db.reading() as connection:
            found = rows.read_leases(connection, leases.c.lease_id == ref.lease_id)
        if not found:
            return f"lease {ref.lease_id} was released or never granted"
        lease = found[0]
        if lease.epoch != ref.epoch:
            return f"lease {ref.lease_id} was granted anew (epoch {lease.epoch}, this is {ref.epoch})"
        if lease.expired(now):
            return f"lease {ref.lease_id} expired at {lease.until:%Y-%m-%d %H:%M:%S} UTC"
        return None

    # -- for the sweep and for people --------------------------------------------------------------------------

    def expired(self, now: datetime) -> list[Lease]:
        """They still count. `reap` each whose workflow Temporal says isn't running."""
        with self._db.reading() as connection:
            return rows.read_leases(connection, leases.c.until <= now)

    def reap(self, lease_id: str, now: datetime) -> Lease | None:
        """Takes an expired lease back; None when it was renewed or released meanwhile. A person looks at its node."""
        lease: Lease | None = self._batching.do(_Work(now, lambda g, s, _: g.reap(s, lease_id, now)))
        return lease

    def leases(self) -> list[Lease]:
        with self._db.reading() as connection:
            return rows.read_leases(connection, sa.true())

    def open_breakers(self) -> list[Breaker]:
        with self._db.reading() as connection:
            return rows.read_breakers(connection, breakers.c.closed_at.is_(None))

    def weighed_breakers(self, now: datetime) -> list[Weighed]:
        """Breakers that are open, and which of the votes to close them count now."""
        with self._db.reading() as connection:
            found = rows.read_breakers(connection, breakers.c.closed_at.is_(None))
            seen = rows.seen_since_votes(connection, found, now)
        return [weigh(breaker, seen.values(), now) for breaker in found]

    def close_breaker(self, cluster: str, cause: str, by: str, now: datetime) -> str:
        """One person's word that a breaker may close, and what it came to; two distinct people close it."""
        work = _Work(now, lambda g, s, _: g.close_breaker(s, cluster, cause, by, now), closing=(cluster, cause))
        weighed: Weighed | None = self._batching.do(work)
        if weighed is None:
            return f"breaker {cluster}/{cause} isn't open"
        if weighed.breaker.closed_at is not None:
            return f"breaker {cluster}/{cause} is closed by {' and '.join(weighed.voters)}"
        stays = f"{len(weighed.votes)} of {CLOSING_PEOPLE} people want to close it"
        return f"breaker {cluster}/{cause} stays open: {'; '.join((stays, *weighed.lapsed))}"

    # -- the transaction ---------------------------------------------------------------------------------------

    def _run(self, batch: list[Job[_Work]]) -> None:
        policy = self._policies.active().policy
        guard = Guard(
            policy.limits, fleet=policy.need(policy.who_may.fleet, ()), one=policy.need(policy.who_may.replace, ())
        )
        now = max(job.work.now for job in batch)
        requests = [job.work.request for job in batch if job.work.request is not None]
        closing = [job.work.closing for job in batch if job.work.closing is not None]
        remembered, self._remembered = self._remembered, None
        with self._db.transaction() as connection:
            before = rows.load(connection, requests, policy.limits, now, remembered, closing)
            state = before.state
            for job in batch:
                try:
                    state, job.result = job.work.change(guard, state, connection)
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    # A mistake about one request must not undo the others' answers; its own state is unchanged.
                    job.error = error
            stamp = rows.save(connection, before.state, state, now, asked_now=bool(requests))
            self._batches += 1
            if self._batches % FORGET_EVERY == 0:
                rows.forget(connection, now)
        self._answered = time.monotonic()
        # Only now: what a failed commit would have changed must not be remembered.
        self._remembered = rows.remember(state, stamp or before.stamp, policy.limits)
