"""Measurements become faults, or their clearing, by the policy's thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from activities.storage.dwells import DwellKey, Dwells, State, Step
from activities.storage.inbox import Item
from medevac.events.event import HealthEvent, Kind
from medevac.faults.catalogue import classify
from medevac.faults.threshold import Dwell, Threshold, judge
from medevac.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Sample:
    event: HealthEvent
    cluster: str
    node: str


Holds = Callable[[Sample, HealthEvent], Item]


def judge_all(
    dwells: Dwells, samples: Sequence[Sample], policy: Policy, now: datetime, holds: Holds
) -> list[HealthEvent | None]:
    """Of each sample, the fault, or its clearing, that it makes by the policy's thresholds; the worst where several do.

    A clearing is said only once, so it is held (as what `holds` makes of it) in the transaction that makes it. A fault
    is said again with each sample for as long as it stands. Raises `Unreadable`: then no sample was judged.
    """
    steps: list[tuple[DwellKey, Step[HealthEvent | None]]] = []
    whose: list[int] = []
    for n, sample in enumerate(samples):
        measured, entities = sample.event.measurement, sample.event.entities
        for threshold in policy.thresholds:
            if measured is None or threshold.name != measured.name:
                continue
            name = f"{threshold.name}>{threshold.above:g}:{threshold.fault}"
            key = DwellKey(sample.cluster, sample.node, entities[0] if entities else "", name)
            steps.append((key, partial(_step, threshold, sample.event, now)))
            whose.append(n)

    def worst(outcomes: Sequence[HealthEvent | None]) -> dict[int, HealthEvent]:
        said: dict[int, HealthEvent] = {}
        for n, outcome in zip(whose, outcomes, strict=True):
            if outcome is not None and (n not in said or _badness(outcome) < _badness(said[n])):
                said[n] = outcome
        return said

    def held(outcomes: Sequence[HealthEvent | None]) -> Iterable[Item]:
        return [holds(samples[n], one) for n, one in worst(outcomes).items() if one.kind is Kind.RECOVERED]

    if not steps:
        return [None] * len(samples)
    said = worst(dwells.update_all(steps, held))
    return [said.get(n) for n in range(len(samples))]


def _step(
    threshold: Threshold, event: HealthEvent, now: datetime, state: State | None
) -> tuple[State | None, HealthEvent | None]:
    dwell, outcome = judge(threshold, Dwell.model_validate(state) if state else None, event, now)
    # Its row says what proves it gone; the class is the threshold's, where that is the worse.
    return dwell.model_dump(mode="json"), classify(outcome) if outcome else None


def _badness(event: HealthEvent) -> tuple[bool, int]:
    return event.kind is Kind.RECOVERED, event.fault_class.rank if event.fault_class else 99
