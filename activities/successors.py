"""What was asked for and nobody waits for any more is taken back: ended, unless it has become a node."""

from __future__ import annotations

from temporalio import activity

from activities import signatures as sig
from activities import steps
from activities.clock import Clock, utcnow
from activities.failures import redact, waits
from activities.heartbeat import Pulse
from activities.means import means, of_successor, stub
from activities.ports import Unreadable
from activities.precondition import Look
from activities.registry import NotConfigured, Registry
from medevac.incident import Outcome, StepResult

TRIES = 5
RETRY_S = 2.0
"""A provider that is busy, or doesn't show yet what was just asked for, is asked again so often and so soon."""


class SuccessorActivities:
    def __init__(self, registry: Registry, look: Look, clock: Clock = utcnow) -> None:
        self._registry = registry
        self._look = look
        self._clock = clock

    @activity.defn(name=sig.TAKE_BACK.name, no_thread_cancel_exception=True)
    def take_back(self, request: sig.TakeBackRequest) -> StepResult:
        """Ends `done` where nothing is left running that is nobody's; `failed` where something may be."""
        with Pulse():
            return self._take_back(request)

    def _take_back(self, request: sig.TakeBackRequest) -> StepResult:
        released = self._released(request)
        settled = released.ended or released.joined
        if not settled and activity.info().attempt < TRIES:
            raise waits(released.said, RETRY_S)
        return StepResult(
            outcome=Outcome.DONE if released.sure else Outcome.FAILED,
            reason=released.said,
            successor=released.joined or None,
            at=self._clock(),
            proof=released.proof(),
        )

    def _released(self, request: sig.TakeBackRequest) -> steps.Released:
        target = request.of
        try:
            cluster = self._registry.cluster(target.cluster)
            node = cluster.node(target.node)
            ours = node if node is not None and node.machine.id == target.identity.machine_id else stub(target)
            own = means(self._registry, target.cluster, target.provider).again("provider", ours, request.key)
            provider, told = of_successor(self._registry, request.at, own, ours)
        except (NotConfigured, Unreadable) as error:
            return steps.Released(f"{steps.MAY_RUN}: {redact(str(error))}", sure=False)
        return steps.release(provider, cluster, self._look, target, told)
