"""Empties a node: notice, time to finish or checkpoint, eviction by tier, termination."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import JsonValue
from temporalio import activity

from activities import signatures as sig
from activities.clock import Clock, utcnow
from activities.deadline import MARGIN_S, deadline
from activities.drain import NOW_GRACE_S, Times, leaving, next_tier, told
from activities.evidence import Bundle, Evidence
from activities.failures import Refused, redact
from activities.gangs import Gangs
from activities.heartbeat import Cancelled, Pulse
from activities.planned import Notice, Notices
from activities.ports import CanProbe, CanRequeue, Cluster, Eviction, HasVolumes, NotSent, Pod, Unclear, Unreadable
from activities.precondition import Look, RecentLook
from activities.registry import NotConfigured, Registry
from activities.silence import OFF_S, Silence
from activities.storage.policies import Policies
from medevac.counted import more, some
from medevac.fleet.node import Workload
from medevac.incident import Outcome, StepResult
from medevac.policy.checkpoints import seen
from medevac.policy.plan import Drain
from medevac.policy.settings import Checkpoint
from medevac.policy.stakes import of_work, with_owner

MOMENT_S = 0.05
EVIDENCE_S, EVIDENCE_SHARE = 120.0, 0.25
"""How long evidence may take, at most, and of the drain's time."""
BUDGET_PATIENCE_S = 60.0
"""A budget that refuses now often lets go a moment later, when the pod before this one is ready elsewhere."""
LISTED = 20
"""Names in a result; the rest are counted."""


class EvacuationActivities:
    def __init__(
        self,
        registry: Registry,
        look: Look,
        clock: Clock = utcnow,
        policies: Policies | None = None,
        evidence: Evidence | None = None,
        notices: Notices | None = None,
    ) -> None:
        self._registry = registry
        self._look = look
        self._clock = clock
        self._policies = policies
        self._evidence = evidence
        self._notices = notices

    @activity.defn(name=sig.EVACUATE.name, no_thread_cancel_exception=True)
    def evacuate(self, request: sig.EvacuateRequest) -> StepResult:
        """Done only when nothing that must leave is left, by two listings; how it ended otherwise says the outcome.

        Every attempt reads the node anew and goes on from there: nothing of an earlier attempt is needed.
        """
        start, last_s = activity.info().scheduled_time, min(request.pod_grace_s, NOW_GRACE_S)
        until = deadline(request.drain_s, self._clock(), margin_s=last_s + MARGIN_S)
        times = Times.of(request.drain, start, request.drain_s, request.pod_grace_s, until)
        with Pulse() as pulse:
            try:
                recent = RecentLook(self._look, request.pre)
                recent.begin()
                cluster = self._registry.cluster(request.pre.cluster)
                gangs = Gangs(cluster, request.pre.node, request.pre.incident)
                silence = Silence(self._registry, cluster, request.pre, min(OFF_S, request.drain_s / 5))
                work = _Evacuation(
                    request,
                    cluster,
                    self._look,
                    recent,
                    times,
                    pulse,
                    self._clock,
                    gangs,
                    silence,
                    self._checkpoints(),
                    self._evidence,
                    self._notices.of(request.pre) if self._notices else None,
                )
            except Refused as refused:
                if activity.info().attempt > 1:
                    self._nothing_stays_stopped(request.pre)
                    self._nobody_stays_told(request.pre, times)
                return StepResult(
                    outcome=Outcome.REFUSED,
                    reason=refused.reason,
                    who=refused.who,
                    at=self._clock(),
                    proof=_earlier(requeued=False),
                )
            try:
                with self._look.again(request.pre, *filter(None, [recent.node])):
                    return work.run()
            except Refused as refused:
                return work.end(Outcome.REFUSED, refused.reason, who=refused.who)
            except Cancelled:
                return work.end(Outcome.CANCELLED, "cancelled; pods may be left on the node")
            finally:
                gangs.never_left_stopped()

    def _nothing_stays_stopped(self, pre: sig.Precondition) -> None:
        """By an attempt before this one, which finds nothing to go on with."""
        try:
            gangs = Gangs(self._registry.cluster(pre.cluster), pre.node, pre.incident)
        except NotConfigured:
            return
        gangs.never_left_stopped(by_earlier=True)

    def _nobody_stays_told(self, pre: sig.Precondition, times: Times) -> None:
        try:
            take_back(self._registry.cluster(pre.cluster), pre.node, times)
        except NotConfigured:
            return

    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        """As the policy in force says where the checkpoints of jobs show; without one, only by their own word."""
        try:
            return self._policies.active().policy.checkpoints if self._policies else ()
        except Exception as error:
            activity.logger.warning(
                "the policy can't be read, so checkpoints are known by the jobs' own word only: %s", error
            )
            return ()


@dataclass(slots=True)
class _Evacuation:
    request: sig.EvacuateRequest
    cluster: Cluster
    look: Look
    recent: RecentLook
    times: Times
    pulse: Pulse
    clock: Clock
    gangs: Gangs
    silence: Silence
    checkpoints: tuple[Checkpoint, ...]
    evidence: Evidence | None = None
    notice: Notice | None = None
    """Of the provider's own event, where the node is emptied for one."""
    known: Bundle | None = None
    """What was known before the first eviction."""
    sent: dict[str, Pod] = field(default_factory=dict)
    """Evicted by this attempt, by UID: a successor of the same name is another pod."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Why a pod was not evicted the last time, by UID."""
    refused_since: dict[str, datetime] = field(default_factory=dict)
    """When a budget first refused it, by UID."""
    next_try: dict[str, float] = field(default_factory=dict)
    left: list[Pod] = field(default_factory=list)
    attached: list[str] = field(default_factory=list)
    """Volumes of pods that have left: until they are detached, nobody else can write to them safely."""
    silent: bool = False
    """Nobody hears the node just now."""

    def run(self) -> StepResult:
        pre, times = self.request.pre, self.times
        recent = self.recent
        renew_at = time.monotonic() + 30
        empty_since: float | None = None
        trouble = ""
        recent.before_call()
        self.gangs.take_up(recent.node.requeuing if recent.node else ())
        self._notice()
        if self.evidence and recent.node:
            # Jobs have been told: they use this time too. The pulse lets a cancel through.
            seconds = min(EVIDENCE_S, times.drain_s * EVIDENCE_SHARE)
            self.known = self.evidence.gather(pre, recent.node, seconds, self.pulse.check)
        while True:
            # Also while jobs are given time: a veto or a freeze is seen now, not at the first eviction.
            recent.before_call()
            if time.monotonic() >= renew_at:
                self.look.renew(pre)
                if self.notice and recent.node:
                    self.notice.hold(recent.node)
                renew_at = time.monotonic() + 30
            working = True
            try:
                self.left = leaving(self.cluster.pods(pre.node))
                self.attached = self._volumes() if not self.left else []
                trouble = ""
                self.gangs.go_on()
                node = recent.node
                self.silent = node is not None and not node.reachable
                freeing = self.silence.frees(node) if node else None
                if not self.left and not self.attached and not (self.gangs.busy and self.clock() < times.deadline):
                    empty_since = empty_since or time.monotonic()
                    if time.monotonic() - empty_since >= times.settle_s:
                        return self._emptied()
                else:
                    empty_since = None
                if freeing is not None:
                    trouble = freeing
                elif self.silent and self._all_are_told() and not self.silence.deciding:
                    return self._unreachable()
                elif self.left:
                    working = self._evict_those_whose_turn_it_is(recent)
            except Unreadable as error:
                empty_since, trouble = None, f"cluster {pre.cluster} can't be read: {redact(str(error))}"
            if (self.left or self.attached or trouble) and (ended := self._time_is_over(trouble)):
                return ended
            wait_s = min(times.poll_s(working=working), times.settle_s)
            if empty_since is not None:
                # Nothing is done meanwhile that a veto could stop: the second look is the next.
                wait_s = max(MOMENT_S, empty_since + times.settle_s - time.monotonic())
            self.pulse.wait(wait_s)

    def _notice(self) -> None:
        """A courtesy: a cluster that can't pass it on doesn't stop the drain, the pods' grace stays."""
        if self.times.drain is Drain.NOW:
            return  # they go in the same second, and their grace is all the time there is
        try:
            self.cluster.notice(self.request.pre.node, self.times.noticed)
        except (NotSent, Unreadable) as error:
            activity.logger.warning("notice could not be given: %s", redact(str(error)))

    def _volumes(self) -> list[str]:
        return self.cluster.attachments(self.request.pre.node) if isinstance(self.cluster, HasVolumes) else []

    def _checkpointed(self, work: Workload) -> Workload:
        return seen(work, self.checkpoints, self.cluster.probe if isinstance(self.cluster, CanProbe) else None)

    def _evict_those_whose_turn_it_is(self, recent: RecentLook) -> bool:
        """True while something is on its way; False when all are being waited for."""
        now = self.clock()
        # A silent node ends nobody: those that were told don't hold up the next tier.
        turn = next_tier([pod for pod in self.left if not (self.silent and told(pod, now))])
        workloads: dict[str, Workload] = {}
        urgent = self.times.drain is Drain.NOW
        wanted = isinstance(self.cluster, CanRequeue) if urgent else True
        if wanted and any(pod.tier == "workload" and not pod.terminating for pod in turn):
            listed = self.cluster.workloads(self.request.pre.node)
            workloads = {work.name: work if urgent else self._checkpointed(work) for work in listed}
        working = False
        for pod in turn:
            if pod.terminating:
                working = True
            elif self.times.may_go(pod, workloads.get(pod.workload), now):
                working = True
                if self._as_a_gang(pod, workloads.get(pod.workload), recent) and not urgent:
                    continue
                if time.monotonic() >= self.next_try.get(pod.uid, 0.0):
                    self._evict(pod, recent)
        return working

    def _as_a_gang(self, pod: Pod, work: Workload | None, recent: RecentLook) -> bool:
        """Whether its whole gang is being ended. Where a budget guards the pod that would go around it."""
        if work is None or work.gang is None or pod.budget or self.clock() >= self.times.deadline:
            return False
        recent.before_call()
        self.pulse.check()
        return self.gangs.takes(work)

    def _all_are_told(self) -> bool:
        """What a silent node can still be made to do is done: each pod was told, and its grace is over."""
        now, slack_s = self.clock(), self.times.settle_s
        told_all = all(told(pod, now, slack_s) for pod in self.left)
        return bool(self.left or self.attached) and told_all and not self.gangs.busy

    def _unreachable(self) -> StepResult:
        said = f"the node is silent: {_names(self.left)} were told to end" if self.left else "the node is silent"
        volumes = f"; attached: {', '.join(self.attached[:LISTED])}" if self.attached else ""
        return self.end(
            Outcome.UNREACHABLE, f"{said} and can't be seen to; nothing is freed until its machine is off{volumes}"
        )

    def _evict(self, pod: Pod, recent: RecentLook) -> None:
        over = self.clock() >= self.times.deadline and pod.tier == "workload"
        if over and not (self.request.budget_bypass and self.refusals.get(pod.uid)):
            return
        recent.before_call()
        self.pulse.check()
        wait_s = self.times.backoff_s
        try:
            # Past the deadline only where the plan says so: deletion goes around the disruption budget.
            gone = (self.cluster.delete if over and self.request.budget_bypass else self.cluster.evict)(
                pod, self.times.grace_s
            )
        except NotSent as error:
            self.refusals[pod.uid] = f"not taken: {redact(str(error), 200)}"
            wait_s = error.retry_after_s or wait_s
        else:
            if gone is not Eviction.BUDGET:
                self.sent[pod.uid] = pod
                self.refusals.pop(pod.uid, None)
                self.refused_since.pop(pod.uid, None)
                # An accepted eviction that is not seen to terminate is sent again; its UID makes that safe.
                self.next_try[pod.uid] = time.monotonic() + 5 * wait_s
                return
            self.refusals[pod.uid] = f"disruption budget {pod.budget or 'without a name'}"
            self.refused_since.setdefault(pod.uid, self.clock())
        self.next_try[pod.uid] = time.monotonic() + wait_s * random.uniform(1.0, 1.3)  # noqa: S311 - jitter

    def _emptied(self) -> StepResult:
        self.gangs.never_left_stopped()
        told = ""
        if self.notice and self.recent.node:
            self.recent.before_call()
            told = self.notice.acknowledge(self.recent.node)
        if self.sent or self.gangs.requeued:
            return self.end(Outcome.DONE, f"{len(self.sent)} pods evicted and terminated{told}")
        return self.end(Outcome.ALREADY, f"nothing was left to evict{told}")

    def _time_is_over(self, trouble: str) -> StepResult | None:
        now = self.clock()
        if now < self.times.deadline and (trouble or not self._only_budgets_hold(now)):
            return None
        if trouble:
            return self.end(Outcome.TIMED_OUT, trouble) if now >= self.times.end else None
        if self.silent and all(pod.terminating for pod in self.left):
            return self._unreachable() if now >= self.times.end else None
        if not self.left:
            said = f"volumes are still attached: {', '.join(self.attached[:LISTED])}"
            return self.end(Outcome.TIMED_OUT, said) if now >= self.times.end else None
        turn = next_tier(self.left)
        going = [pod for pod in turn if pod.terminating or pod.uid in self.sent]
        staying = [pod for pod in turn if pod not in going]
        forced = self.request.budget_bypass and any(self.refusals.get(pod.uid) for pod in staying)
        if now < self.times.end and (not staying or forced or turn[0].tier != "workload"):
            return None
        if not staying:
            return self.end(Outcome.TIMED_OUT, f"still terminating at the deadline: {_names(going)}")
        running = [pod for pod in staying if pod.uid not in self.refusals]
        held = [pod for pod in staying if "budget" in self.refusals.get(pod.uid, "")]
        if held:
            budgets = sorted({f"{p.budget or '?'}{f' of {p.budget_owner}' if p.budget_owner else ''}" for p in held})
            # Jobs that run on by right are no budget's matter, and a yes to it would end them too.
            only = len(held) == len(staying)
            when = "at the deadline" if now >= self.times.deadline else "and aren't waited for"
            return self.end(
                Outcome.BLOCKED,
                f"disruption budgets refuse {when}: {_names(held)}",
                who=", ".join(f"budget {budget}" for budget in budgets),
                budgets=budgets if only else (),
                running=self._loses(running),
            )
        if refused := [pod for pod in staying if pod.uid in self.refusals]:
            return self.end(Outcome.TIMED_OUT, f"{_names(refused)}: {self.refusals[refused[0].uid]}")
        return self.end(
            Outcome.BLOCKED,
            f"still running at the deadline: {_names(staying)}",
            who=some(sorted({pod.workload or pod.name for pod in staying}), LISTED),
            running=self._loses(running),
        )

    def _loses(self, running: list[Pod]) -> dict[str, str]:
        """What evicting these before their end would lose, by job, with its owner."""
        if not running:
            return {}
        names = sorted({pod.workload or f"{pod.namespace}/{pod.name}" for pod in running})
        try:
            works = {work.name: self._checkpointed(work) for work in self.cluster.workloads(self.request.pre.node)}
        except Unreadable:
            works = {}
        now = self.clock()
        losses = {
            name: with_owner(of_work(works[name], self.checkpoints, now), works[name].owner)
            if name in works
            else f"{name}: nobody knows what it would lose"
            for name in names[:LISTED]
        }
        if beyond := more(names, LISTED):
            # A yes evicts all of them: who gives it must know that the list goes on.
            losses[beyond] = f"{beyond}, of which nobody was told what they lose"
        return losses

    def _only_budgets_hold(self, now: datetime) -> bool:
        """Where that isn't waited for: nothing else of this turn can go, and each was refused for a while."""
        if self.request.budget_waits:
            return False
        turn = next_tier(self.left)
        since = [self.refused_since.get(pod.uid) for pod in turn]
        patience = timedelta(seconds=min(BUDGET_PATIENCE_S, self.times.drain_s / 4))
        return bool(turn) and all(at is not None and now - at >= patience for at in since)

    def end(
        self,
        outcome: Outcome,
        reason: str,
        who: str = "",
        budgets: Sequence[str] = (),
        running: Mapping[str, str] | None = None,
    ) -> StepResult:
        self.gangs.never_left_stopped()
        if outcome not in (Outcome.DONE, Outcome.ALREADY):
            take_back(self.cluster, self.request.pre.node, self.times)
        gangs = [f"{name}: {how}" for name, how in sorted(self.gangs.said.items())[:LISTED]]
        if gangs:
            reason = f"{reason}; {'; '.join(gangs)}"
        proof: dict[str, JsonValue] = {
            "evicted": len(self.sent),
            "workloads": list[JsonValue](sorted({pod.workload for pod in self.sent.values() if pod.workload})[:LISTED]),
            "left": list[JsonValue](sorted(f"{pod.namespace}/{pod.name}" for pod in self.left)[:LISTED]),
        }
        if outcome is Outcome.REFUSED:
            proof |= _earlier(requeued=bool(self.gangs.requeued))
        if budgets:
            proof["budgets"] = list[JsonValue](budgets[:LISTED])
        if running:
            proof["running"] = dict[str, JsonValue](running)
        if self.known:
            proof |= self.known.proof()
        return StepResult(outcome=outcome, reason=redact(reason), who=who, at=self.clock(), proof=proof)


def _earlier(*, requeued: bool) -> dict[str, JsonValue]:
    """Of a refusal: whether somebody may have been ended whom this attempt didn't count."""
    return {"begun": True} if requeued or activity.info().attempt > 1 else {}


def take_back(cluster: Cluster, node: str, times: Times) -> None:
    """Nobody wants the node's pods to go any more. Where they can't be told, the time that they were given passes."""
    if times.drain is Drain.NOW:
        return
    try:
        cluster.take_back_notice(node, times.noticed)
    except (NotSent, Unclear, Unreadable) as error:
        activity.logger.warning("notice could not be taken back: %s", redact(str(error)))


def _names(pods: list[Pod]) -> str:
    return some(sorted(f"{pod.namespace}/{pod.name}" for pod in pods), LISTED)
