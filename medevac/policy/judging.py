"""What the policy's rules say about one open fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from medevac.faults.catalogue import lookup
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import OpenFault
from medevac.policy.plan import Drain, Mode, Rung
from medevac.policy.policy import Policy
from medevac.policy.rules import Do, Rule

DRAINS = {
    FaultClass.CRITICAL: Drain.SOON,
    FaultClass.DEGRADED: Drain.CHECKPOINT,
    FaultClass.TRANSIENT: Drain.CHECKPOINT,
    FaultClass.PLANNED: Drain.JOB_END,
}
LADDER_OF = {FaultClass.PLANNED: "planned", FaultClass.MONITOR: "monitor"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rules' word on a fault. Without any rule that says `do`, it is notified and nothing else."""

    fault_class: FaultClass
    """The catalogue's, or a worse one that a rule raised it to."""
    do: Do = Do.NOTIFY
    mode: Mode = Mode.AUTO
    """The strictest that a rule allows; the pool's own is counted elsewhere."""
    drain: Drain | None = None
    ladder: str | None = None
    watch_s: float = 0.0
    ticket: bool = False
    notify: str | None = None
    covers: tuple[Covers, ...] = ()
    rules: tuple[str, ...] = ()
    """Names of the rules that fit, in order."""


@dataclass(frozen=True, slots=True)
class Judged:
    fault: OpenFault
    verdict: Verdict

    @property
    def code(self) -> str:
        return self.fault.code

    @property
    def covers(self) -> tuple[Covers, ...]:
        return self.fault.covers or self.verdict.covers or lookup(self.code).covers

    @property
    def advice(self) -> Rung | None:
        """The rung that the fault's source asks for first."""
        word = self.fault.advice or lookup(self.code).first_rung
        return Rung(word) if word in list(Rung) else None

    @property
    def works(self) -> bool:
        """True where the rules want something done, and the statement can support an action."""
        return self.verdict.do is Do.REPAIR and self.fault.actionable

    @property
    def order(self) -> tuple[int, str, str]:
        """Worst first; the same on every reading."""
        return (self.verdict.fault_class.rank, self.fault.first_seen.isoformat(), self.code)


def verdict(
    policy: Policy, code: str, fault_class: FaultClass, *, pool: str | None, sku: str | None, provider: str
) -> Verdict:
    """Reads the rules from the top."""
    found = Verdict(fault_class=fault_class)
    decided: set[str] = set()
    for rule in policy.rules:
        if not rule.match.fits(code, found.fault_class, pool, sku, provider):
            continue
        found = replace(found, rules=(*found.rules, rule.name))
        if rule.mode is not None and rule.mode.reach < found.mode.reach:
            found = replace(found, mode=rule.mode)
        for setting, value in _settings(rule):
            if value is not None and setting not in decided:
                decided.add(setting)
                found = replace(found, **{setting: value})
        if rule.raise_to is not None and "raised" not in decided:
            decided.add("raised")
            # A monitor's own fault is never a node's, whatever a rule says; and nothing is made harmless here.
            if fault_class is not FaultClass.MONITOR and rule.raise_to.rank < found.fault_class.rank:
                found = replace(found, fault_class=rule.raise_to)
    if "watch_s" not in decided and found.fault_class is FaultClass.TRANSIENT:
        found = replace(found, watch_s=policy.watch)
    if found.drain is None:
        found = replace(found, drain=DRAINS.get(found.fault_class))
    if not found.fault_class.repairable and found.fault_class is not FaultClass.MONITOR:
        # Rule 1: what isn't known to be a node's fault is told, never acted on.
        found = replace(found, do=Do.NOTIFY if found.do is Do.REPAIR else found.do)
    return found


def _settings(rule: Rule) -> tuple[tuple[str, Any], ...]:
    return (
        ("do", rule.do),
        ("drain", rule.drain),
        ("ladder", rule.ladder),
        ("watch_s", rule.watch),
        ("ticket", rule.ticket),
        ("notify", rule.notify),
        ("covers", rule.covers or None),
    )


def judge(policy: Policy, fault: OpenFault, *, pool: str | None, sku: str | None, provider: str) -> Judged:
    found = verdict(policy, fault.code, fault.fault_class, pool=pool, sku=sku, provider=provider)
    if fault.order is not None:
        # The campaign's plan was agreed to by name; rules about faults have no say in it, the pool's mode has.
        found = replace(found, do=Do.REPAIR, drain=Drain(fault.order.drain), ladder=None, watch_s=0.0)
    return Judged(fault, found)
