"""Every effect accounted for: intended, permitted, written down, once; and every machine that costs money wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from medevac.approvals.approval import ApprovalState
from medevac.incident import End, Line, Outcome, State
from simulation.evidence import Evidence
from simulation.hazards import Effect
from simulation.reading import Logged

MACHINE = frozenset(
    {Effect.RESTART_AGENT, Effect.RESET_GPU, Effect.REBOOT, Effect.REINSTALL, Effect.REQUEST, Effect.TERMINATE}
)
EVICTING = frozenset({Effect.EVICT, Effect.DELETE})
DESTRUCTIVE = (MACHINE | EVICTING) - {Effect.REQUEST}
ENDS_WORK = frozenset({Effect.RESET_GPU, Effect.REBOOT, Effect.REINSTALL, Effect.TERMINATE})
BY_KEY = frozenset({Effect.TICKET, Effect.CHAT, Effect.CHECK})


def problems(evidence: Evidence) -> Iterator[str]:
    ours = [effect for effect in evidence.effects if not effect.tag.startswith("person:")]
    yield from _once(evidence, ours)
    yield from _intended(evidence, ours)
    for effect in ours:
        if effect.applied and effect.verb in MACHINE | EVICTING:
            yield from _permitted(evidence, effect)
    yield from _paid(evidence)


def _at(effect: Logged) -> str:
    return f"{effect.verb.value} of {effect.node or effect.target} at {effect.at:%H:%M:%S} for {effect.tag or 'nobody'}"


def _once(evidence: Evidence, effects: list[Logged]) -> Iterator[str]:
    """Nothing that carries a key of its own took effect twice."""
    applied = [effect for effect in effects if effect.applied]
    counted = Counter((e.verb.value, e.tag) for e in applied if e.verb in BY_KEY)
    counted.update(("eviction", e.target) for e in applied if e.verb in EVICTING)
    lifts = Counter((e.tag, e.node) for e in applied if e.verb is Effect.LIFT)
    marks = Counter((e.tag, e.node, str(e.detail.get("code"))) for e in applied if e.verb is Effect.MARK)
    for (tag, node, code), count in marks.items():
        if count > 1 + lifts[tag, node]:
            yield f"{node} was marked {count} times with {code} by {tag}"
    for (verb, what), count in counted.items():
        if count > 1:
            yield f"{verb} of {what} took effect {count} times"


def _intended(evidence: Evidence, effects: list[Logged]) -> Iterator[str]:
    """Each machine call that took effect has an intent stored before it, and each intent has its step's line."""
    for tag, verb, machine in dict.fromkeys((e.tag, e.verb, e.target) for e in effects if e.verb in MACHINE):
        calls = [e for e in effects if (e.tag, e.verb, e.target) == (tag, verb, machine) and e.applied]
        intents = [
            intent
            for intent in evidence.intents
            if (intent.key.incident, intent.verb.value, intent.machine_id) == (tag, verb.value, machine)
            and not intent.void
        ]
        if len(calls) > len(intents):
            yield f"{_at(calls[-1])} took effect {len(calls)} times, intended {len(intents)} times"
        for call, intent in zip(calls, intents, strict=False):
            if call.at < intent.at:
                yield f"{_at(call)} took effect before its intent was stored"
    for intent in evidence.intents:
        steps = [line for line in evidence.lines.get(intent.key.incident, ()) if line.kind == "step"]
        if not intent.void and not any(line.key == intent.key for line in steps):
            yield f"the ledger has no line of the step {intent.key}"


def _permitted(evidence: Evidence, effect: Logged) -> Iterator[str]:
    incident = evidence.incidents.get(effect.tag)
    if incident is None:
        yield f"{_at(effect)}: no such incident in the ledger"
        return
    lines = [line for line in evidence.lines.get(incident.id, ()) if line.at <= effect.at]
    if effect.verb in DESTRUCTIVE | {Effect.REQUEST} and not any(
        line.kind == "step" and line.key.step == "acquire" and _outcome(line).ok for line in lines
    ):
        yield f"{_at(effect)}: no lease was granted before it"
    if effect.verb in ENDS_WORK and effect.detail.get("running") and not effect.detail.get("silent"):
        yield f"{_at(effect)}: {effect.detail['running']} pods were still running"
    yield from _approved(evidence, effect, lines)


def _approved(evidence: Evidence, effect: Logged, lines: list[Line]) -> Iterator[str]:
    decision = next((line for line in reversed(lines) if line.kind == "decision"), None)
    if decision is None:
        yield f"{_at(effect)}: the ledger has no decision before it"
        return
    if "approval" not in decision.data:
        yield f"{_at(effect)}: the decision's line doesn't say whether people had to agree"
        return
    asked = [
        approval for approval in evidence.approvals if any(waiter.incident == effect.tag for waiter in approval.waiters)
    ]
    agreed = [
        approval.id
        for approval in asked
        if approval.state is ApprovalState.APPROVED
        and approval.result is not None
        and effect.tag in approval.result.covers
        and approval.result.decided_at <= effect.at
    ]
    if decision.data["approval"] and not agreed:
        yield f"{_at(effect)}: people had to agree, and had not"
    current = decision.data.get("hash")
    for approval in asked:
        shown = any(waiter.incident == effect.tag and waiter.plan_hash == current for waiter in approval.waiters)
        if shown and approval.id not in agreed:
            yield f"{_at(effect)}: approval {approval.id} for this plan is {approval.state}"


def _paid(evidence: Evidence) -> Iterator[str]:
    """A machine that was asked for serves, is gone, or is on a person's list."""
    running = [bill for bill in evidence.bills if bill.requested_by and bill.until is None]
    for bill in running:
        incident = evidence.incidents.get(bill.requested_by or "")
        handed_over = incident is not None and incident.end is None and incident.state is State.HANDED_OVER
        replaced = incident is not None and incident.end is End.REPLACED and bill.node is not None
        if not handed_over and not replaced:
            yield f"{bill.machine_id} was asked for by {bill.requested_by} and costs money for nothing"
    for tag, count in Counter(bill.requested_by for bill in running).items():
        if count > 1:
            yield f"{count} machines that {tag} asked for cost money at once"


def _outcome(line: Line) -> Outcome:
    result = line.data.get("result")
    return Outcome(str(result["outcome"])) if isinstance(result, dict) else Outcome.FAILED
