"""Thresholds on measurements, with dwell and hysteresis: a fault only after the value stayed above for the dwell,
cleared only after it stayed below a lower one for as long. What lies between the two changes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from pydantic import Field, model_validator

from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.classes import FaultClass
from medevac.model import Model, digest


class Threshold(Model):
    """One limit of a policy, e.g. `gpu_temp` above 78 °C for 10 minutes."""

    name: str
    """Of the measurement that it judges."""
    above: float
    """Strictly above this is too much."""
    clear_below: float
    """Strictly below this for the dwell clears."""
    dwell_s: float = Field(ge=0)
    """Time that the samples must cover without a break; a sample covers its own window before it."""
    fault: str
    """Code that it raises, e.g. `thermal/gpu-temp`."""
    fault_class: FaultClass
    min_samples: int = Field(default=2, ge=1)
    unit: str = ""
    """If given, a measurement in another unit is not judged."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.clear_below > self.above:
            raise ValueError(f"clear_below {self.clear_below} must not be greater than above {self.above}")
        return self


class Dwell(Model):
    """How far one threshold has come for one entity of one node."""

    above_since: datetime | None = None
    below_since: datetime | None = None
    samples: int = 0
    """On the present side, in a row."""
    last_at: datetime | None = None
    last_id: str = ""
    raised_at: datetime | None = None
    """Set while the fault stands."""


def judge(
    threshold: Threshold, state: Dwell | None, event: HealthEvent, now: datetime
) -> tuple[Dwell, HealthEvent | None]:
    """One sample. Returns a fault while the value stands above for long enough, a clear once when it is over.

    A pause between samples longer than the dwell (or than twice their window) begins anew: what wasn't
    measured isn't evidence. The clock is ours (`now`); a sample delivered twice counts once.
    """
    state = state or Dwell()
    sample = event.measurement
    if sample is None or sample.name != threshold.name or event.id == state.last_id:
        return state, None
    if threshold.unit and sample.unit and sample.unit != threshold.unit:
        return state, None
    window = timedelta(seconds=min(max(sample.window_s, 0.0), threshold.dwell_s))
    dwell = timedelta(seconds=threshold.dwell_s)
    broken = state.last_at is not None and now - state.last_at > max(dwell, 2 * window)
    seen = {"last_at": now, "last_id": event.id}

    if sample.value > threshold.above:
        goes_on = state.above_since is not None and not broken
        since = state.above_since if goes_on else now - window
        samples = state.samples + 1 if goes_on else 1
        state = state.model_copy(update={**seen, "above_since": since, "below_since": None, "samples": samples})
        if since is None or samples < threshold.min_samples or now - since < dwell:
            return (state, _event(threshold, event, state.raised_at, None)) if state.raised_at else (state, None)
        state = state.model_copy(update={"raised_at": state.raised_at or since})
        return state, _event(threshold, event, state.raised_at, None)

    if sample.value < threshold.clear_below and state.raised_at is not None:
        goes_on = state.below_since is not None and not broken
        since = state.below_since if goes_on else now - window
        samples = state.samples + 1 if goes_on else 1
        if since is not None and samples >= threshold.min_samples and now - since >= dwell:
            return Dwell(last_at=now, last_id=event.id), _event(threshold, event, state.raised_at, now)
        return state.model_copy(update={**seen, "above_since": None, "below_since": since, "samples": samples}), None

    return state.model_copy(update={**seen, "above_since": None, "below_since": None, "samples": 0}), None


def _event(threshold: Threshold, event: HealthEvent, since: datetime | None, ended: datetime | None) -> HealthEvent:
    """The statement that the measurement makes; repeats and the clear share its key."""
    sample = event.measurement
    entity = event.entities[0] if event.entities else ""
    key = f"threshold|{threshold.fault}|{threshold.name}|{threshold.above:g}|{entity}"
    value = f"{sample.value:g} {sample.unit}".strip() if sample else "?"
    words = (
        f"{threshold.name} {value}: below {threshold.clear_below:g} for {threshold.dwell_s:g} s"
        if ended
        else f"{threshold.name} {value}: above {threshold.above:g} for {threshold.dwell_s:g} s"
    )
    return event.model_copy(
        update={
            "id": f"threshold-{digest([key, event.id, bool(ended)])[:24]}",
            "dedupe_key": key,
            "series": None,
            "kind": Kind.RECOVERED if ended else Kind.FAULT,
            "fault": threshold.fault,
            "fault_class": threshold.fault_class,
            "statement": Statement.LEVEL,
            "starts_at": since,
            "ends_at": ended,
            "summary": words,
        }
    )
