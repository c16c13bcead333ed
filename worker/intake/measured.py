"""Measurements become faults, or their clearing, by the policy's thresholds."""

from __future__ import annotations

from datetime import datetime

from activities.storage.dwells import Dwells, State
from medevac.events.event import HealthEvent, Kind
from medevac.faults.catalogue import classify
from medevac.faults.threshold import Dwell, Threshold, judge
from medevac.policy.policy import Policy


def judge_all(
    dwells: Dwells, event: HealthEvent, cluster: str, node: str, policy: Policy, now: datetime
) -> HealthEvent | None:
    """The fault, or its clearing, that a measurement makes by the policy's thresholds; the worst where several do."""
    said: list[HealthEvent] = []
    name = event.measurement.name if event.measurement else ""
    entity = event.entities[0] if event.entities else ""
    for threshold in policy.thresholds:
        if threshold.name != name:
            continue

        def step(state: State | None, threshold: Threshold = threshold) -> tuple[State, HealthEvent | None]:
            dwell, outcome = judge(threshold, Dwell.model_validate(state) if state else None, event, now)
            return dwell.model_dump(mode="json"), outcome

        key = f"{threshold.name}>{threshold.above:g}:{threshold.fault}"
        if (outcome := dwells.update(cluster, node, entity, key, step)) is not None:
            # Its row says what proves it gone; the class is the threshold's, where that is the worse.
            said.append(classify(outcome))
    return min(
        said, key=lambda e: (e.kind is Kind.RECOVERED, e.fault_class.rank if e.fault_class else 99), default=None
    )
