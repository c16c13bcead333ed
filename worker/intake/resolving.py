"""Which node each event of a delivery is about, what class it has, and what its measurements say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from activities.ports import Unreadable
from activities.storage.inbox import Item
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults import catalogue
from medevac.policy.policy import Policy
from medevac.policy.routing import Route, classified, route
from worker.intake.held import UNKNOWN_FOR, WORTH_KEEPING, Codes, Held, Strangers, item_of, stranger_lane
from worker.intake.inventory import Found, Inventory, NotFound
from worker.intake.lanes import lane_of
from worker.intake.measured import Sample, judge_all
from worker.intake.part import Outcome, Part
from worker.stores import Stores

POLICY_S = 1.0
AT_ONCE = 16
"""Events of one delivery that are resolved without a thread, which would cost more than they do."""
INBOX = "held in the inbox until the workflow engine takes it"


class Resolver:
    def __init__(self, inventory: Inventory, stores: Stores, clock: Callable[[], float] = time.monotonic) -> None:
        self._inventory = inventory
        self._stores = stores
        self._clock = clock
        self._policy: Policy | None = None
        self._policy_at = -POLICY_S
        self.strangers = Strangers()
        self.codes = Codes()

    def policy(self) -> Policy:
        """The active one, at most `POLICY_S` old; while the ledger can't be read, the one before. Blocking."""
        if self._policy is not None and self._clock() - self._policy_at < POLICY_S:
            return self._policy
        try:
            self._policy = self._stores.policies.active().policy
            self._policy_at = self._clock()
        except Unreadable:
            if self._policy is None:
                raise
        return self._policy

    def at_once(self, events: Sequence[HealthEvent], clusters: Sequence[str]) -> list[Part] | None:
        """What needs no reading; None = `resolve` must do it. Never blocks."""
        policy = self._policy
        if policy is None or self._clock() - self._policy_at >= POLICY_S or len(events) > AT_ONCE:
            return None
        parts = []
        for event in events:
            found = self._inventory.cached(event.subject, event.cluster, clusters, event.gpu_ids)
            if found is None or event.kind in (Kind.TEST, Kind.HANDSHAKE, Kind.MEASUREMENT):
                return None
            parts.append(_meant(_part(event, policy), found, policy))
        return parts

    def resolve(self, events: Sequence[HealthEvent], clusters: Sequence[str], now: datetime) -> list[Part]:
        """Settles what needs nothing more. Blocking. Raises `Unreadable` when no node can be told."""
        policy = self.policy()
        parts, measured = [], []
        for event in events:
            part = _part(event, policy)
            parts.append(part)
            if event.kind in (Kind.TEST, Kind.HANDSHAKE):
                part.settle(Outcome.RECORDED, f"a {event.kind} asks for nothing")
                continue
            where = self._inventory.resolve(event.subject, event.cluster, clusters, event.gpu_ids)
            if isinstance(where, Found):
                _meant(part, where, policy)
                if event.kind is Kind.MEASUREMENT:
                    measured.append(part)
            elif where.forbidden:
                part.settle(Outcome.REFUSED, where.text)
            else:
                self._unknown(part, where, clusters, now)
        self._judge(measured, policy, clusters, now)
        return parts

    def of_an_earlier_boot(self, part: Part) -> bool:
        """A log line sent once more after a repair is no new fault. Reads the boot anew. Blocking."""
        boot_id = self._inventory.boot_id(part.cluster, part.node)
        return boot_id is not None and boot_id != part.event.boot_id

    def _unknown(self, part: Part, where: NotFound, clusters: Sequence[str], now: datetime) -> None:
        event, reason = part.event, where.text
        if where.elsewhere:
            reason += "; where it is one of ours, say so in its sender's `cluster_names`"
        elif (event.subject or event.gpu_ids) and event.kind in WORTH_KEEPING and self.strangers.admit(now):
            held = Held(event=event, clusters=tuple(clusters), until=now + UNKNOWN_FOR)
            lane = stranger_lane(event)
            part.item = item_of(held, lane, now, new_code=self.codes.is_new(lane, event.fault, now))
            reason += f"; tried again for {UNKNOWN_FOR.seconds // 60} minutes"
        part.settle(Outcome.UNKNOWN_NODE, reason)

    def _judge(self, parts: Sequence[Part], policy: Policy, clusters: Sequence[str], now: datetime) -> None:
        def holds(sample: Sample, clear: HealthEvent) -> Item:
            held = Held(
                event=classified(clear, policy), clusters=tuple(clusters), cluster=sample.cluster, node=sample.node
            )
            return item_of(held, lane_of(sample.cluster, sample.node), now)

        samples = [Sample(part.event, part.cluster, part.node) for part in parts]
        try:
            outcomes = judge_all(self._stores.dwells, samples, policy, now, holds)
        except Unreadable as error:
            for part in parts:
                part.settle(Outcome.UNAVAILABLE, f"the ledger does not answer: {error}")
            return
        for part, judged in zip(parts, outcomes, strict=True):
            if judged is None:
                part.settle(Outcome.RECORDED, "no threshold is crossed")
                continue
            part.event, part.reason = classified(judged, policy), judged.summary
            part.opens = opens(part.event, policy)
            if judged.kind is Kind.RECOVERED:
                part.in_inbox = True
                part.settle(Outcome.ACCEPTED, f"{judged.summary}; {INBOX}")


def names_a_boot(event: HealthEvent) -> bool:
    return event.statement is Statement.EDGE and event.boot_id is not None


def _part(event: HealthEvent, policy: Policy) -> Part:
    return Part(classified(catalogue.classify(event), policy))


def _meant(part: Part, where: Found, policy: Policy) -> Part:
    part.stranger = stranger_lane(part.event)
    part.cluster, part.node = where.cluster, where.node.name
    part.event = part.event.model_copy(update={"cluster": part.cluster})
    part.opens = opens(part.event, policy)
    return part


def opens(event: HealthEvent, policy: Policy) -> bool:
    return event.kind is not Kind.RECOVERED and route(event, policy) is Route.INCIDENT
