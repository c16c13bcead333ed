"""What two policies decide, side by side: who is newly let act, and what becomes of the incidents at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from medevac.faults.classes import FaultClass
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from medevac.policy.judging import Verdict, verdict
from medevac.policy.plan import Mode
from medevac.policy.planner import Context, plan
from medevac.policy.policy import Policy
from medevac.policy.rules import Do


class Effect(Model):
    """What the new policy would do otherwise about one open incident or recent event."""

    incident: str
    cluster: str
    node: str
    fault: str | None
    old: str
    new: str
    changed: bool


def newly_let_act(old: Policy, new: Policy) -> list[str]:
    """In words: which pools may newly do what about which faults."""
    lines = []
    for pool in new.pools:
        gained: dict[tuple[Mode, Mode], list[str]] = {}
        for what, before, after in verdicts(old, new, pool):
            was, now = _reach(old, pool, before), _reach(new, pool, after)
            if now.reach > was.reach:
                gained.setdefault((was, now), []).append(what)
        for (was, now), whats in gained.items():
            does = "may act by itself" if now is Mode.AUTO else "may act when a person confirms"
            listed = ", ".join(dict.fromkeys(whats))
            lines.append(f"pool `{pool}` {does} on {listed} (until now: {was})")
    newcomers = [rung.value for rung in new.auto if rung not in old.auto]
    if newcomers:
        lines.append(f"mode auto no longer asks before {', '.join(newcomers)}")
    for threshold in new.thresholds:
        if threshold not in old.thresholds:
            lines.append(
                f"{threshold.name} above {threshold.above:g} for {threshold.dwell_s:g} s becomes {threshold.fault}"
            )
    return lines


def effect(old: PolicyVersion, new: PolicyVersion, contexts: Iterable[Context], now: datetime) -> list[Effect]:
    """The plans of both policies side by side, for open incidents and what recent events would have opened."""
    rows = []
    for context in contexts:
        before, after = plan(context, old, now), plan(context, new, now)
        was, is_now = _said(before), _said(after)
        rows.append(
            Effect(
                incident=context.incident,
                cluster=context.cluster,
                node=context.node_name,
                fault=after.cause or before.cause,
                old=was,
                new=is_now,
                changed=was != is_now,
            )
        )
    return rows


def _said(found: Any) -> str:
    what = f"{found.action} {found.rung}" if found.rung else str(found.action)
    marked = "" if found.mark or found.action not in ("act", "watch", "hand_over") else ", unmarked"
    asks = f", asks {found.approval.threshold} of {', '.join(found.approval.groups)}" if found.approval else ""
    drained = f", drain {found.drain}" if found.drain else ""
    return f"{what}{drained}{asks}{marked}"


@dataclass(frozen=True, slots=True)
class _Case:
    text: str
    code: str
    fault_class: FaultClass


def _cases(old: Policy, new: Policy) -> list[_Case]:
    """Matching is exact, so one code that nobody names stands for all the others of its class."""
    named = {code for policy in (old, new) for rule in policy.rules for code in rule.match.codes}
    plain = [_Case(f"{c} faults", "unnamed", c) for c in FaultClass]
    return [*plain, *(_Case(code, code, c) for code in sorted(named) for c in FaultClass)]


def verdicts(old: Policy, new: Policy, pool: str | None) -> Iterator[tuple[str, Verdict, Verdict]]:
    """Of every fault class and every code that either names: what it is, in words, and both policies' verdicts."""
    rules = (*old.rules, *new.rules)
    skus = [None, *sorted({sku for rule in rules for sku in rule.match.skus})]
    providers = ["", *sorted({name for rule in rules for name in rule.match.providers})]
    for case in _cases(old, new):
        for sku in skus:
            for provider in providers:
                at: dict[str, Any] = {"pool": pool, "sku": sku, "provider": provider}
                yield (
                    case.text,
                    verdict(old, case.code, case.fault_class, **at),
                    verdict(new, case.code, case.fault_class, **at),
                )


def _reach(policy: Policy, pool: str, found: Verdict) -> Mode:
    """How far the policy goes with such a fault in such a pool."""
    if found.do is not Do.REPAIR or pool not in policy.pools:
        return Mode.OBSERVE
    return min(policy.pools[pool].mode, found.mode, key=lambda mode: mode.reach)
