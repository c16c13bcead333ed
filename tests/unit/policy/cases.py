"""A small fleet's facts, to plan about: one node of a pool, faults by their catalogue row, a policy to vary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from medevac.faults.catalogue import lookup
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import FaultSet, OpenFault
from medevac.fleet.node import ABLE, Machine, Node, Workload
from medevac.policy.active import PolicyVersion
from medevac.policy.loading import load, preset
from medevac.policy.plan import Attempt, History, Mode, PastIncident, Plan, Rung
from medevac.policy.planner import Context, plan
from medevac.policy.policy import Policy

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def machine(**given: Any) -> Machine:
    defaults: dict[str, Any] = {
        "provider": "skyline", "id": "vm-1", "boot_id": "boot-1", "capabilities": ABLE
    }  # fmt: skip
    return Machine(**(defaults | given))


def node(**given: Any) -> Node:
    own = {name: given.pop(name) for name in list(given) if name in Machine.model_fields}
    defaults: dict[str, Any] = {
        "cluster": "c", "name": "n1", "uid": "uid-1", "pool": "train", "gpus": 8, "sku": "h100",
        "machine": machine(**own),
    }  # fmt: skip
    return Node(**(defaults | given))


def bare(**given: Any) -> Node:
    return node(provider="ironworks", id="bm-1", virtual=False, **given)


def fault(code: str, **given: Any) -> OpenFault:
    row = lookup(code)
    defaults: dict[str, Any] = {
        "code": code, "fault_class": row.fault_class, "covers": row.covers, "first_seen": NOW, "last_seen": NOW,
        "raised_by": (),
    }  # fmt: skip
    return OpenFault(**(defaults | given))


def faults(*found: str | OpenFault) -> FaultSet:
    return FaultSet(faults=tuple(f if isinstance(f, OpenFault) else fault(f) for f in found))


def job(name: str = "research/llm-1", **given: Any) -> Workload:
    return Workload(**({"name": name, "gpus": 64, "nodes": 8} | given))


def attempt(
    rung: Rung, *, of: str = "inc-0", ago: timedelta = DAY, fault_class: FaultClass = FaultClass.CRITICAL
) -> Attempt:
    return Attempt(incident=of, rung=rung, fault_class=fault_class, fault="xid/79", at=NOW - ago, outcome="proved")


def past(
    incident: str, *, ago: timedelta = DAY, fault_class: FaultClass = FaultClass.CRITICAL, **given: Any
) -> PastIncident:
    defaults: dict[str, Any] = {
        "incident": incident, "fault": "xid/79", "fault_class": fault_class, "opened_at": NOW - ago, "end": "returned",
    }  # fmt: skip
    return PastIncident(**(defaults | given))


def policy(mode: Mode = Mode.AUTO, **given: Any) -> Policy:
    """The shipped default with one pool `train` of cluster `c`."""
    base = load(preset("default")).model_dump(mode="json")
    base["pools"] = {"train": {"clusters": ["c"], "select": {"pool": "train"}, "mode": mode}}
    return Policy.model_validate(base | given)


def with_pool(policy: Policy, **given: Any) -> Policy:
    base = policy.model_dump(mode="json")
    base["pools"]["train"] |= given
    return Policy.model_validate(base)


def version(policy: Policy, number: int = 1) -> PolicyVersion:
    return PolicyVersion.of(policy.model_dump_json(), "ann", NOW - DAY, version=number)


def decide(
    *found: str | OpenFault,
    under: Policy | None = None,
    at: datetime = NOW,
    where: Node | None = None,
    nowhere: bool = False,
    history: History | None = None,
    **given: Any,
) -> Plan:
    defaults: dict[str, Any] = {
        "incident": "inc-1",
        "n": 1,
        "cluster": "c",
        "node_name": "n1",
        "node": None if nowhere else where or node(),
        "faults": faults(*found),
        "history": history or History(),
        "opened_at": NOW,
        "check_covers": frozenset(Covers),
    }
    return plan(Context(**(defaults | given)), version(under or policy()), at)


def said(plan: Plan) -> str:
    """Everything that a person reads in the plan."""
    return "\n".join((*plan.reasons, *(f"{p.rung}: {p.why}" for p in plan.passed_over), plan.would))
