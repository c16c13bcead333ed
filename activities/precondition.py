"""The look before the leap: what must still be true right before each irreversible call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError

from activities.approved import Approved
from activities.clock import Clock, utcnow
from activities.failures import UNREADABLE_RETRY_S, Refused, unreadable, waits
from activities.guard.store import GuardStore
from activities.last_look import Frozen, looking
from activities.registry import NotConfigured, Registry
from activities.signatures import Precondition, Target
from activities.storage.fences import Fences
from activities.storage.ledger import Ledger
from medevac.fleet.node import Node

FENCE_RETRY_S = 1.0
"""How soon a fenced step looks again; a thaw resumes within it and the fence's own second."""
FRESH_S = 0.5
"""One look serves all calls within it. With the fence's own second, a freeze stops the next call within 1.5 s."""


class Look:
    """Reads everything afresh, and answers with the node only when nothing speaks against the call.

    A difference is `Refused`. What can't be read counts as a no: it raises a retryable error, so that the step
    waits until its own time is over. A fence makes it wait the same way.
    """

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        guard: GuardStore,
        fences: Fences,
        approved: Approved,
        clock: Clock = utcnow,
    ) -> None:
        self._registry = registry
        self._ledger = ledger
        self._guard = guard
        self._fences = fences
        self._approved = approved
        self._clock = clock

    def begin(self, pre: Precondition) -> Node:
        """At the start of a step: the lease is renewed first, so that it doesn't end while the step runs."""
        self.renew(pre)
        node = self.now(pre)
        if pre.storage_probe and (why := self._registry.storage.why_not(pre.storage_probe, node)):
            raise Refused(f"the storage probe `{pre.storage_probe}` has not passed just now: {why}")
        return node

    def renew(self, pre: Precondition) -> None:
        try:
            self._guard.renew(pre.lease, self._clock())
        except Exception as error:
            raise unreadable("the guard", error) from None

    def now(self, pre: Precondition) -> Node:
        """The node as it is now. The fence is read last; what lies between it and the call looks `again`."""
        self._ledger_agrees(pre)
        self._lease_is_ours(pre)
        for approval in pre.approvals:
            self._approved.check(approval, pre.incident)
        if pre.order is not None:
            self._approved.check_order(pre.order, pre.cluster, pre.node)
        node = self._node(pre)
        if pre.order is not None and (other := pre.order.another(node.identity)):
            raise Refused(f"{pre.node}: {other}")
        self._no_fence(pre, node)
        return node

    def fence(self, pre: Target, node: Node) -> None:
        """Before a later call of a step: what was looked at first has changed by it, but a freeze still stops it."""
        self._no_fence(pre, node)

    def frozen(self, pre: Target, node: Node) -> str:
        """Why nothing may be done to it now, also where that can't be read; empty where something may."""
        try:
            self._no_fence(pre, node)
        except ApplicationError as error:
            return error.message
        return ""

    @contextmanager
    def again(self, pre: Target, *nodes: Node) -> Iterator[None]:
        """Around an adapter's call: it looks at these nodes' freezes right before each of its own."""

        def look() -> None:
            for node in nodes:
                if why := self.frozen(pre, node):
                    raise Frozen(why, retry_after_s=FENCE_RETRY_S)

        with looking(look):
            yield

    def _ledger_agrees(self, pre: Precondition) -> None:
        # A restored, older workflow store doesn't know that its incident is over; the ledger does.
        try:
            view = self._ledger.incident(pre.incident)
        except Exception as error:
            raise unreadable("the ledger", error) from None
        if view is None:
            raise waits(
                f"the ledger doesn't know incident {pre.incident} yet; waiting for its record", UNREADABLE_RETRY_S
            )
        if view.end is not None:
            raise Refused(f"the ledger says that this incident ended ({view.end}); nothing more is done for it")

    def _lease_is_ours(self, pre: Precondition) -> None:
        try:
            why_not = self._guard.check(pre.lease, self._clock())
        except Exception as error:
            raise unreadable("the guard", error) from None
        if why_not is not None:
            raise Refused(f"the lease is not ours any more: {why_not}")

    def _node(self, pre: Precondition) -> Node:
        try:
            node = self._registry.cluster(pre.cluster).node(pre.node)
        except NotConfigured as error:
            raise Refused(str(error)) from None
        except Exception as error:
            raise unreadable(f"cluster {pre.cluster}", error) from None
        if node is None:
            raise Refused(f"node {pre.node} is gone from cluster {pre.cluster}")
        _same_machine(pre, node)
        _nobody_objects(pre, node)
        return node

    def _no_fence(self, pre: Target, node: Node) -> None:
        try:
            pool = pre.scopes.get("pool", "").removeprefix(f"{pre.cluster}/")
            fence = self._fences.blocking(pre.cluster, pre.node, pool, node.machine.provider)
        except Exception as error:
            raise unreadable("the fences", error) from None
        if fence is not None:
            raise waits(
                f"{fence.said}; `medevac thaw {fence.scope}` lets it go on",
                FENCE_RETRY_S,
                "Frozen",
            )


class RecentLook:
    """`Look` for a step of many calls: at most `FRESH_S` old before each of them."""

    def __init__(self, look: Look, pre: Precondition) -> None:
        self._look = look
        self._pre = pre
        self._at = float("-inf")
        self.node: Node | None = None
        """As last seen."""

    def begin(self) -> None:
        """At the start of the step; serves the calls right after it too."""
        self.node = self._look.begin(self._pre)
        self._at = time.monotonic()

    def before_call(self) -> None:
        if time.monotonic() - self._at > FRESH_S:
            self.node = self._look.now(self._pre)
            self._at = time.monotonic()


def _same_machine(pre: Precondition, node: Node) -> None:
    planned, found = pre.identity, node.identity
    if planned.uid is None or planned.machine_id is None:
        raise Refused("the plan doesn't say which machine it was made for (no uid or no machine id)")
    for name in ("uid", "machine_id", "boot_id"):
        was, now = getattr(planned, name), getattr(found, name)
        if was != now:
            raise Refused(f"{name.replace('_', ' ')} was {was} in the plan and is {now} now")


def _nobody_objects(pre: Precondition, node: Node) -> None:
    if pre.mark and node.marked_by != pre.incident:
        if node.marked_by is None:
            raise Refused("our mark was lifted by someone else, which is a veto", who="whoever lifted the mark")
        raise Refused(f"the node carries the mark of incident {node.marked_by}")
    if pre.mark and node.schedulable:
        raise Refused("someone uncordoned the node, which is a veto", who="whoever uncordoned the node")
    if node.hands_off is not None and node.hands_off != pre.hands_off:
        raise Refused(f"hands-off was set by {node.hands_off} after the plan was made")
    if node.foreign_cordon is not None and node.foreign_cordon != pre.foreign_cordon:
        raise Refused(f"the node was cordoned by {node.foreign_cordon} after the plan was made")
