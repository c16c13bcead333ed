"""The one physical call to a machine, and the wait for its proof."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities import steps
from activities.clock import Clock, utcnow
from activities.deadline import deadline
from activities.evidence import Evidence
from activities.failures import Refused, redact, unreadable, waits
from activities.heartbeat import Cancelled, Pulse
from activities.last_look import Frozen
from activities.means import means, of_successor, stub
from activities.ports import Cluster, MachineState, NotAllowed, NotSent, Provider, Unclear, Unreadable, Verb
from activities.precondition import FENCE_RETRY_S, Look
from activities.proof import World, another_machine, frees, missing
from activities.registry import NotConfigured, Registry
from activities.silence import let_go
from activities.storage.intents import Intent, Intents
from activities.storage.ledger import Ledger
from medevac.fleet.node import Identity, Node
from medevac.fleet.places import place_of
from medevac.incident import Outcome, StepKey, StepResult
from medevac.policy.plan import UNCLEAR

T = TypeVar("T")

RETRY_S = 2.0
RENEW_S = 30.0
FREE = timedelta(minutes=3)
"""How long a proved end of a machine waits for what it held to be let go; then that is only told."""
MOST_ANSWER = 2_000
"""Characters of what a provider said, in ledger and history."""
NOT_SENT: dict[str, JsonValue] = {"not_sent": True}
"""Surely nothing was called."""
_REPLACING = frozenset((Verb.REQUEST, Verb.TERMINATE))
_WITHIN = frozenset((Verb.RESTART_AGENT, Verb.RESET_GPU))


class MachineActivities:
    def __init__(
        self,
        registry: Registry,
        look: Look,
        intents: Intents,
        ledger: Ledger,
        clock: Clock = utcnow,
        evidence: Evidence | None = None,
    ) -> None:
        self._registry = registry
        self._look = look
        self._intents = intents
        self._ledger = ledger
        self._clock = clock
        self._evidence = evidence

    @activity.defn(name=sig.ACT.name, no_thread_cancel_exception=True)
    def act(self, request: sig.ActRequest) -> StepResult:
        """Look, intent, call: at most one call for a key, whatever dies in between.

        Ends `done` when the call was made, also when its answer is unclear; the proof is `prove`'s.
        """
        with Pulse():
            return self._act(request)

    def _act(self, request: sig.ActRequest) -> StepResult:
        entered = time.monotonic()
        try:
            if (found := self._intent(request.key)) is not None:
                return self._waits_for_proof(found)
            adapters = means(self._registry, request.pre.cluster, request.pre.provider)
            node = self._look.begin(request.pre)
            own = self._read("what can be done", lambda: adapters.by(request.verb, node, request.key))
            provider, told = of_successor(self._registry, request.at, own, node)
            was = self._read(f"provider {provider.name}", lambda: provider.state(told, request.pre.incident))
            if request.verb in _WITHIN and not node.reachable:
                return self._end(Outcome.FAILED, f"{request.verb} leaves pods running that a silent node can't end")
            known = self._known(request, told)
            self._look.now(request.pre)
            if request.at is not None:
                self._look.fence(request.pre, told)
            looked = time.monotonic()
        except Refused as refused:
            return self._end(Outcome.REFUSED, refused.reason, who=refused.who)
        except NotAllowed as error:
            whom = request.at.provider if request.at else request.pre.provider
            return self._end(Outcome.FAILED, f"{whom} can't be read: {redact(str(error))}", proof=NOT_SENT)
        except NotConfigured as error:
            return self._end(Outcome.FAILED, str(error), proof=NOT_SENT)
        self._still_ours(entered, looked)
        intent, new = self._intents.begin(
            request.key,
            verb=request.verb,
            cluster=request.pre.cluster,
            node=request.pre.node,
            machine_id=node.machine.id,
            boot_id=node.machine.boot_id,
            rung=request.rung,
            fault=request.fault,
            fault_class=request.fault_class,
            at=self._clock(),
            before=was.model_copy(update={"asked_at": request.at}).model_dump(mode="json", exclude_none=True),
        )
        if not new:
            return self._waits_for_proof(intent)
        if request.verb is Verb.REQUEST and (asked := was.successor or was.successor_id):
            # Searched by tag before asking: an earlier step of this incident asked, and its answer was lost.
            self._note_answer(request, f"asked for before: {asked}")
            return self._end(Outcome.ALREADY, f"a successor was asked for before: {asked}", identity=node.identity)
        # From here on the call counts as made. Only a sure "not sent" takes that back.
        try:
            # Writing the intent may have taken seconds: a freeze of that time is older than the call.
            self._look.fence(request.pre, node)
            self._look.fence(request.pre, told)
            self._still_ours(entered, looked)
        except ApplicationError as error:
            self._intents.void(request.key, error.message, self._clock())
            raise
        try:
            with self._look.again(request.pre, node, told):
                answer = provider.do(request.verb, _ordered(told, request.pre), request.pre.incident)
        except NotSent as error:
            self._intents.void(request.key, redact(str(error)), self._clock())
            if isinstance(error, Frozen):
                raise waits(str(error), FENCE_RETRY_S, "Frozen") from None
            if error.final:
                return self._end(Outcome.FAILED, f"{provider.name} refuses: {redact(str(error))}", proof=NOT_SENT)
            raise waits(
                f"{provider.name} did not take the call: {error}", error.retry_after_s or RETRY_S, "NotSent"
            ) from None
        except Exception as error:
            # Any other error may have come after the effect. Calling again could be a second reboot.
            kind = "" if isinstance(error, Unclear) else f"{type(error).__name__}: "
            said = f"{request.verb} called, unclear whether it was done ({kind}{redact(str(error))}); waiting for proof"
            self._note_answer(request, said)
            return self._end(Outcome.DONE, said, identity=node.identity, proof={"unclear": True, **known})
        answer = _kept(answer)
        self._note_answer(request, answer)
        return self._end(
            Outcome.DONE,
            f"{request.verb} called, waiting for proof",
            identity=node.identity,
            proof={"answer": answer, **known},
        )

    @activity.defn(name=sig.PROVE.name, no_thread_cancel_exception=True)
    def prove(self, request: sig.ProveRequest) -> StepResult:
        """Reads until the world shows what the call was for, or the deadline is over. Never calls."""
        intent = self._intent(request.acted)
        if intent is None:
            return self._end(Outcome.FAILED, f"no call was made under {request.acted}; there is nothing to prove")
        was = MachineState.model_validate(intent.before)
        try:
            cluster = self._registry.cluster(request.pre.cluster)
            adapters = means(self._registry, request.pre.cluster, request.pre.provider)
            own = adapters.again(was.told_by, stub(request.pre), request.acted)
            provider, gone = of_successor(self._registry, was.asked_at, own, stub(request.pre))
        except NotConfigured as error:
            return self._end(Outcome.FAILED, str(error))
        before = Identity(uid=request.pre.identity.uid, machine_id=intent.machine_id, boot_id=intent.boot_id)
        until = deadline(request.deadline_s, self._clock())
        poll_s = min(5.0, max(0.05, request.deadline_s / 60))
        lacks, proved_at = "nothing could be read", None
        renew_at = self._clock()
        forcing = steps.Forcing(provider, self._ledger, self._look, request, intent)
        with Pulse() as pulse:
            while True:
                now, held = self._clock(), ""
                if now >= renew_at:
                    self._renew(request.pre)
                    renew_at = now + timedelta(seconds=min(RENEW_S, request.deadline_s / 4))
                try:
                    node = cluster.node(request.pre.node)
                    ours = node if node is not None and node.machine.id == before.machine_id else stub(request.pre)
                    _, told = of_successor(self._registry, was.asked_at, own, ours)
                    frozen = steps.proceed(provider, self._look, request, told)
                    if told is node:
                        frozen = forcing.step(node) or frozen
                    world = World(node, steps.state(provider, cluster, request, told))
                    if not _REPLACING & set(request.verbs) and (other := another_machine(before, world)):
                        return self._end(Outcome.REFUSED, other)
                    lack = [m for verb in request.verbs if (m := missing(verb, before, was, world))]
                    if frees(request.verbs, before, was, world):
                        with self._look.again(request.pre, ours):
                            held = let_go(cluster, ours, world.state)
                    proved_at = proved_at or (None if lack else now)
                    if held and proved_at and self._look.frozen(request.pre, ours):
                        proved_at = now
                    last = min(until - 2 * timedelta(seconds=poll_s), (proved_at or now) + FREE)
                    if not lack and (not held or self._clock() >= last):
                        return self._proved(request, world, cluster, held)
                    lacks = "; ".join(filter(None, (*lack, frozen))) or held
                except steps.Hopeless as error:
                    self._note_end(request.acted, "failed")
                    why = f"the proof can't come any more: {error}"
                    return self._in_vain(Outcome.FAILED, why, request, provider, cluster, gone)
                except (Unreadable, ApplicationError) as error:
                    lacks = f"unreadable: {redact(str(error))}"
                if self._clock() >= until:
                    self._note_end(request.acted, "timed_out" if intent.sent_at else UNCLEAR)
                    why = f"no proof within {request.deadline_s:g} s: {lacks}"
                    return self._in_vain(Outcome.TIMED_OUT, why, request, provider, cluster, gone)
                try:
                    pulse.wait(poll_s)
                except Cancelled:
                    return self._end(Outcome.CANCELLED, f"cancelled while waiting for proof: {lacks}")

    def _known(self, request: sig.ActRequest, node: Node) -> dict[str, JsonValue]:
        """What is known about the machine before it is touched, where no drain has asked before."""
        place: dict[str, JsonValue] = {"place": list(place_of(node))}
        if self._evidence is None or request.verb is Verb.REQUEST:
            return place
        bundle = self._evidence.at_once(request.pre, node)
        return {**place, **bundle.proof()} if bundle else place

    # -- parts -------------------------------------------------------------------------------------------------

    def _intent(self, key: StepKey) -> Intent | None:
        """The intent that stands; one that was voided was surely not sent and may be tried again."""
        intent = self._read("the intents", lambda: self._intents.get(key))
        return intent if intent is not None and not intent.void else None

    def _read(self, what: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except (NotAllowed, NotConfigured):
            raise
        except Exception as error:
            raise unreadable(what, error) from None

    def _still_ours(self, entered: float, looked: float) -> None:
        """An attempt that was silent for too long has a successor, and what it looked at is old: it must not call."""
        info, now = activity.info(), time.monotonic()
        limits = ((entered, info.start_to_close_timeout), (looked, info.heartbeat_timeout))
        over = any(limit is not None and now - since >= limit.total_seconds() for since, limit in limits)
        if over or activity.is_cancelled():
            raise waits("this attempt's time is over; the next one looks again", RETRY_S, "TooLate")

    def _note_answer(self, request: sig.ActRequest, answer: JsonValue) -> None:
        try:
            self._intents.sent(request.key, answer, self._clock())
        except Unreadable as error:
            # The intent itself stands; what the provider said is only for people.
            activity.logger.warning("answer to %s could not be stored: %s", request.key, redact(str(error)))

    def _note_end(self, key: StepKey, outcome: str) -> None:
        try:
            self._intents.ended(key, outcome)
        except Unreadable as error:
            activity.logger.warning("end of %s could not be stored: %s", key, redact(str(error)))

    def _renew(self, pre: sig.Precondition) -> None:
        try:
            self._look.renew(pre)
        except ApplicationError as error:
            # Waiting for proof destroys nothing; it goes on without the lease.
            activity.logger.warning("lease could not be renewed while waiting for proof: %s", error)

    def _waits_for_proof(self, intent: Intent) -> StepResult:
        reason = f"intent of {intent.at:%Y-%m-%d %H:%M:%S} UTC found: not called again, waiting for proof"
        return self._end(Outcome.ALREADY, reason)

    def _in_vain(
        self, outcome: Outcome, why: str, request: sig.ProveRequest, provider: Provider, cluster: Cluster, node: Node
    ) -> StepResult:
        """The proof didn't come: what was asked for and isn't there is nobody's, and is released.

        Unless people are asked about it first.
        """
        if Verb.REQUEST not in request.verbs or (request.keep_late and outcome is Outcome.TIMED_OUT):
            return self._end(outcome, why)
        released = steps.release(provider, cluster, self._look, request.pre, node)
        return self._end(outcome, f"{why}; {released.said}", proof=released.proof())

    def _proved(self, request: sig.ProveRequest, world: World, cluster: Cluster, held: str) -> StepResult:
        successor = world.state.successor if Verb.REQUEST in request.verbs else None
        node = cluster.node(successor) if successor else world.node
        if successor:
            if node is None:  # left again between two reads
                raise Unreadable(f"successor {successor} is not in the cluster any more")
            # The same fault on a successor stops the ladder; that must not depend on this machine's memory.
            old = request.pre.identity.machine_id or f"{request.pre.cluster}/{request.pre.node}"
            self._ledger.record_successor(old, node.machine.id, request.pre.incident, self._clock())
        self._note_end(request.acted, "proved")
        return self._end(
            Outcome.DONE,
            f"proved: {', '.join(request.verbs)}{f'; {held}' if held else ''}",
            identity=node.identity if node else None,
            successor=successor,
            proof={"state": world.state.model_dump(mode="json", exclude_defaults=True)},
        )

    def _end(
        self,
        outcome: Outcome,
        reason: str,
        *,
        who: str = "",
        identity: Identity | None = None,
        successor: str | None = None,
        proof: dict[str, JsonValue] | None = None,
    ) -> StepResult:
        return StepResult(
            outcome=outcome,
            reason=redact(reason),
            who=who,
            identity=identity,
            successor=successor,
            at=self._clock(),
            proof=proof or {},
        )


def _ordered(node: Node, pre: sig.Precondition) -> Node:
    """With the image that a campaign's order names, where there is one."""
    if pre.order is None or pre.order.image is None:
        return node
    return node.model_copy(update={"machine": node.machine.model_copy(update={"image": pre.order.image})})


def _kept(answer: JsonValue) -> JsonValue:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    safe = redact(text, MOST_ANSWER)
    return answer if safe == text else safe
