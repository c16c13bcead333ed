"""Marks a sick node, and lifts our own marks again."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Literal

from temporalio import activity

from activities import signatures as sig
from activities.census import CensusTaker
from activities.clock import Clock, utcnow
from activities.failures import Bounded, Slow, redact, unreadable, waits
from activities.guard.store import GuardStore
from activities.ports import NotSent
from activities.registry import NotConfigured, Registry
from activities.storage.ledger import Ledger
from medevac.fleet.census import Census
from medevac.fleet.lease import Ask, LeaseAnswer, LeaseRequest, Waiting
from medevac.fleet.node import Node
from medevac.incident import Outcome, State, StepResult

GUARD_S = 1.0
PATIENT_ATTEMPTS = 2
"""So often a guard that doesn't answer is asked again before a mark goes without it."""
BUSY_S = 5.0
"""One that has answered others within this time is busy, not lost: a mark waits for its answer."""
ALONE = 3
ALONE_WINDOW_S = 600.0
"""Marks that one process makes while the guard can't be reached: the least that the shipped budget allows a pool."""
RETRY_S = 1.0


class AloneBudget:
    """Keeps a process that has lost the guard from marking a fleet."""

    def __init__(self, count: int = ALONE, window_s: float = ALONE_WINDOW_S) -> None:
        self._count = count
        self._window_s = window_s
        self._lock = threading.Lock()
        self._spent: deque[float] = deque()

    def take(self) -> bool:
        now = time.monotonic()
        with self._lock:
            while self._spent and now - self._spent[0] >= self._window_s:
                self._spent.popleft()
            if len(self._spent) >= self._count:
                return False
            self._spent.append(now)
            return True


class MarkActivities:
    def __init__(
        self,
        registry: Registry,
        guard: GuardStore,
        census: CensusTaker,
        bounded: Bounded,
        clock: Clock = utcnow,
        alone: AloneBudget | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Without `ledger` no mark but this incident's own is known to be ours, and another's is never taken over."""
        self._registry = registry
        self._guard = guard
        self._census = census
        self._bounded = bounded
        self._clock = clock
        self._alone = alone or AloneBudget()
        self._ledger = ledger

    @activity.defn(name=sig.MARK.name, no_thread_cancel_exception=True)
    def mark(self, request: sig.MarkRequest) -> StepResult:
        """`blocked` by an approval where the mark budget is used up; it is asked about, not marked."""
        try:
            cluster = self._registry.cluster(request.cluster)
        except NotConfigured as error:
            return self._end(Outcome.FAILED, str(error))
        try:
            node = cluster.node(request.node)
        except Exception as error:
            raise unreadable(f"cluster {request.cluster}", error) from None
        left_by = self._left_by(node, request)
        if (ended := self._before(request, node, left_by)) is not None:
            return ended
        # A mark that stands was counted when it was made; what it says costs no budget.
        stands = node is not None and node.marked_by == request.mark.incident
        answer = None if stands else self._permission(request)
        if isinstance(answer, Ask):
            need = answer.need.model_dump(mode="json")
            result = self._end(Outcome.BLOCKED, answer.reason, node, who=answer.approval)
            return result.model_copy(update={"proof": {"need": need}})
        if isinstance(answer, Waiting):
            raise waits(answer.reason, answer.retry_s)
        try:
            mark = request.mark.model_copy(update={"instead_of": left_by})
            made: Literal["done", "already"] = cluster.mark(request.node, mark)
        except NotSent as error:
            if error.final:
                return self._end(Outcome.REFUSED, redact(str(error)), node)
            raise waits(f"not marked: {error}", error.retry_after_s or RETRY_S, "NotSent") from None
        said = f"in place of the mark that {left_by} left" if left_by else ""
        if made == "already":
            return self._end(Outcome.ALREADY, said or "marked by this incident", node)
        return self._end(Outcome.DONE, said, node)

    @activity.defn(name=sig.LIFT.name, no_thread_cancel_exception=True)
    def lift(self, request: sig.LiftRequest) -> StepResult:
        """Only what this incident put there. Never held back by a budget, a freeze or a guard that is down."""
        try:
            made = self._registry.cluster(request.cluster).lift(request.node, request.incident)
        except NotConfigured as error:
            return self._end(Outcome.FAILED, str(error))
        except NotSent as error:
            if error.final:
                return self._end(Outcome.FAILED, redact(str(error)))
            raise waits(f"not lifted: {error}", error.retry_after_s or RETRY_S, "NotSent") from None
        return self._end(Outcome.DONE if made == "done" else Outcome.ALREADY, "")

    def _left_by(self, node: Node | None, request: sig.MarkRequest) -> str | None:
        """The incident of this installation that is over and has left its mark here: a person closed it with a latched
        fault, or its workflow was ended from outside. Of others' marks, or open incidents' ones: None."""
        marked_by = node.marked_by if node else None
        if marked_by in (None, request.mark.incident) or self._ledger is None:
            return None
        try:
            view = self._ledger.incident(marked_by)
        except Exception as error:
            raise unreadable("the ledger", error) from None
        if view is None or view.cluster != request.cluster:
            return None
        return marked_by if view.end is not None or view.state is State.ENDED else None

    def _before(self, request: sig.MarkRequest, node: Node | None, left_by: str | None) -> StepResult | None:
        if node is None:
            return self._end(Outcome.REFUSED, f"node {request.node} is gone from cluster {request.cluster}")
        if node.uid != request.identity.uid:
            return self._end(Outcome.REFUSED, f"uid was {request.identity.uid} in the plan and is {node.uid} now", node)
        if node.marked_by is None and request.again:
            why = "our mark was lifted by someone else, which is a veto"
            return self._end(Outcome.REFUSED, why, node, who="whoever lifted the mark")
        if node.marked_by in (None, left_by):
            return None
        if node.marked_by != request.mark.incident:
            return self._end(Outcome.REFUSED, f"the node carries the mark of incident {node.marked_by}", node)
        if node.schedulable:
            # Marking it again would overrule the person who uncordoned it.
            return self._end(
                Outcome.REFUSED, "someone uncordoned the node, which is a veto", node, who="whoever uncordoned the node"
            )
        return None

    def _permission(self, request: sig.MarkRequest) -> LeaseAnswer | None:
        """The guard's answer; None where it can't be reached and this process may still mark a few alone."""
        lease = LeaseRequest(
            lease_id=f"{request.mark.incident}/mark",
            incident=request.mark.incident,
            workflow_id=request.view.workflow_id,
            cluster=request.cluster,
            node=request.node,
            pool=request.pool,
            domains=request.domains,
            edge="mark",
            fault=request.view.fault or request.mark.code,
            fault_class=request.fault_class,
            plan_hash=request.plan_hash,
            approval=request.approval,
            campaign=request.campaign,
            asked_at=request.view.opened_at,
        )
        try:
            return self._bounded.call(GUARD_S, self._guard.mark_grant, lease, self._clock(), self._count(request))
        except Exception as error:
            busy = isinstance(error, Slow) and self._guard.alive(BUSY_S)
            if busy or activity.info().attempt <= PATIENT_ATTEMPTS:
                raise waits(f"the guard does not answer: {error}", 0.2, "Unreadable") from None
            if self._alone.take():
                activity.logger.warning("guard can't be reached, marking without it: %s", redact(str(error)))
                return None
            raise waits(
                f"the guard can't be reached and this process has marked {ALONE} nodes without it: {error}", 10.0
            ) from None

    def _count(self, request: sig.MarkRequest) -> Census | None:
        try:
            return self._census.take(request.cluster, wait_s=0.5)
        except Exception as error:
            activity.logger.warning("cluster %s is not counted: %s", request.cluster, redact(str(error)))
            return None

    def _end(self, outcome: Outcome, reason: str, node: Node | None = None, who: str = "") -> StepResult:
        identity = node.identity if node else None
        return StepResult(outcome=outcome, reason=reason, who=who, identity=identity, at=self._clock())
