"""What may open an incident, and since when a pool may act."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import FaultClass
from medevac.policy.active import acting_since
from medevac.policy.plan import Mode
from medevac.policy.routing import Route, classified, route
from tests.unit.policy.cases import NOW, policy, version

RAISE = {"name": "worse", "match": {"codes": ["xid/13", "monitor/exporter-silent"]}, "raise_to": "degraded"}


def event(fault: str | None, **given: Any) -> HealthEvent:
    return HealthEvent(**({"source": "s", "id": "1", "dedupe_key": "k", "kind": Kind.FAULT, "fault": fault} | given))


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        (event("xid/79"), Route.INCIDENT),
        (event("alert/SomethingIsOdd"), Route.INCIDENT),
        (event("monitor/exporter-silent"), Route.INCIDENT),
        (event("maintenance/reboot", kind=Kind.PLANNED), Route.INCIDENT),
        (event("asg/EC2_INSTANCE_TERMINATING", kind=Kind.LIFECYCLE), Route.INCIDENT),
        (event("asg/EC2_INSTANCE_LAUNCHING", kind=Kind.LIFECYCLE), Route.RECORD),
        (event("instance-state/stopping", kind=Kind.LIFECYCLE), Route.RECORD),
        (event("xid/79", kind=Kind.LIFECYCLE), Route.RECORD),
        (event("xid/13"), Route.RECORD),
        (event("xid/63"), Route.RECORD),
        (event("xid/79", fault_class=FaultClass.RECORD), Route.RECORD),
        (event("xid/79", kind=Kind.RECOVERED), Route.RECORD),
        (event("xid/79", kind=Kind.TEST), Route.RECORD),
        (event("xid/79", kind=Kind.INFO), Route.RECORD),
        (event("xid/79", actionable=False), Route.RECORD),
        (event("xid/79", marker="inc-1"), Route.RECORD),
        (event(None, kind=Kind.MEASUREMENT), Route.RECORD),
    ],
)
def test_route(heard: HealthEvent, expected: Route) -> None:
    assert route(heard, policy()) is expected


def test_a_policy_may_raise_a_code_at_the_edge_and_never_a_monitors() -> None:
    rules = policy().model_dump(mode="json")["rules"]
    worse = policy(rules=[RAISE | {"match": {"codes": ["xid/13"]}}, *rules])
    assert classified(event("xid/13"), worse).fault_class is FaultClass.DEGRADED
    assert route(event("xid/13"), worse) is Route.INCIDENT
    assert classified(event("xid/79"), worse).fault_class is FaultClass.CRITICAL
    forced = worse.model_copy(update={"rules": (worse.rules[0].model_copy(update={
        "match": worse.rules[0].match.model_copy(update={"codes": ("monitor/exporter-silent",)})}),)})  # fmt: skip
    assert classified(event("monitor/exporter-silent"), forced).fault_class is FaultClass.MONITOR


def test_since_when_a_pool_may_act() -> None:
    days = [NOW + i * timedelta(days=1) for i in range(5)]
    modes = (Mode.OBSERVE, Mode.AUTO, Mode.OBSERVE, Mode.APPROVE, Mode.APPROVE)
    applied = [
        version(policy(mode), i).model_copy(update={"applied_at": day})
        for i, (mode, day) in enumerate(zip(modes, days, strict=True))
    ]
    assert acting_since(applied[:1], "train") == days[0]
    assert acting_since(applied[:2], "train") == days[1]
    assert acting_since(applied, "train") == days[3]
    assert acting_since(applied, "nowhere") is None
