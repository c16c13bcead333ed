"""The normal form: what `medevac parse` prints, one JSON object per event."""

from __future__ import annotations

from typing import Any

from medevac.events import registry
from medevac.events.event import HealthEvent
from medevac.events.parsing import Parsed, Payload
from medevac.faults.catalogue import classify


def read(source: str | None, payload: Payload) -> Parsed:
    """Parsed by the named source's parser, or by the one that knows the payload, and classified.

    Raises `ParseError`, and nothing else, for what can't be read.
    """
    parsed = registry.read(source, payload)
    return Parsed(tuple(classify(event) for event in parsed.events), parsed.refused, parsed.truncated)


def normal_form(event: HealthEvent) -> dict[str, Any]:
    """JSON-able; times are ISO 8601 in UTC. Absent values are null, so that every line has the same shape."""
    said = event.model_dump(mode="json")
    first = ("subject", "kind", "fault", "severity", "entities", "starts_at", "not_before", "ends_at")
    form = {name: said.pop(name) for name in (*first, "actionable", "dedupe_key", "source", "id")}
    form["class"] = said.pop("fault_class")
    return form | said
