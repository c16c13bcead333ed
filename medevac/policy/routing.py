"""Which events may open an incident, and with which class."""

from __future__ import annotations

from enum import StrEnum

from medevac.events.event import HealthEvent
from medevac.faults.catalogue import lookup
from medevac.faults.classes import FaultClass
from medevac.policy.policy import Policy


class Route(StrEnum):
    RECORD = "record"
    """A ledger line; a running incident is told, none is opened."""
    INCIDENT = "incident"
    """Joins the node's incident or opens one. What no rule knows ends there as a notice and nothing else."""


def classified(event: HealthEvent, policy: Policy) -> HealthEvent:
    """The event with the class that the policy raises its code to, so that it latches as that class does.

    Only rules that name the code and nothing else apply here: pool and model are not known at the edge.
    """
    if event.fault is None:
        return event
    fault_class = event.fault_class or lookup(event.fault).fault_class
    for rule in policy.rules:
        match = rule.match
        elsewhere = match.classes or match.pools or match.skus or match.providers
        if rule.raise_to is not None and event.fault in match.codes and not elsewhere:
            if fault_class is not FaultClass.MONITOR and rule.raise_to.rank < fault_class.rank:
                fault_class = rule.raise_to
            break
    return event.model_copy(update={"fault_class": fault_class})


def route(event: HealthEvent, policy: Policy) -> Route:
    if event.fault is None or event.marker is not None or not event.actionable:
        return Route.RECORD
    event = classified(event, policy)
    if not event.opens:
        return Route.RECORD
    if event.fault_class in (FaultClass.RECORD, FaultClass.APPLICATION) and not any(
        event.fault in rule.match.codes and rule.raise_to is not None for rule in policy.rules
    ):
        return Route.RECORD
    return Route.INCIDENT
