"""What no policy file may loosen. Each violation names its place in the file, what is wrong, and what to write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from medevac.faults.catalogue import lookup
from medevac.faults.classes import FaultClass
from medevac.policy.ladders import GENTLE, LADDERS
from medevac.policy.plan import Rung
from medevac.policy.pools import STORAGE
from medevac.policy.rules import Do, Rule
from medevac.policy.settings import Settings

MAX_NODES = 3
MAX_PERCENT = 5.0
"""Nothing that destroys is ever allowed more than max(3 nodes, 5 %)."""
WINDOWS_S = {"fleet_window_s": 3_600.0, "marks_window_s": 600.0, "breaker_window_s": 600.0}
MAX_BREAKER_RATE = 10
NEVER_A_NODE = (FaultClass.APPLICATION, FaultClass.RECORD, FaultClass.MONITOR, FaultClass.UNKNOWN)
RAISABLE = (FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.TRANSIENT)
AGENT_RUNGS = frozenset({Rung.WAIT, Rung.RESTART_AGENT, Rung.ESCALATE})

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    path: Path
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.what}; {self.fix}"


class OutOfBounds(ValueError):
    """The policy would loosen what never bends, or names what isn't there."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__("\n".join(map(str, violations)))
        self.violations = violations


def violations(policy: Settings, *, stored: bool = False) -> tuple[Violation, ...]:
    """`stored`: the policy was taken once; a newer catalogue that agrees with it by itself makes it no worse."""
    parts = (_auto, _limits, _people, _pools, _rules, _ladders, _thresholds, _checkpoints)
    found = [violation for part in parts for violation in part(policy)]
    if not stored:
        found += [v for i, rule in enumerate(policy.rules) for v in _against_the_catalogue(("rules", i), rule)]
    return tuple(found)


def _auto(policy: Settings) -> Iterator[Violation]:
    for i, rung in enumerate(policy.auto):
        if rung not in GENTLE and not policy.simulated_only:
            yield Violation(
                ("auto", i),
                f"`{rung}` destroys a machine or its disks and never goes without asking on real machines",
                "remove it; in mode `auto` such a rung asks one approver",
            )


def _limits(policy: Settings) -> Iterator[Violation]:
    limits = policy.limits
    here: Path = ("limits",)
    if limits.fleet_nodes > MAX_NODES:
        yield Violation(
            (*here, "fleet_nodes"),
            f"{limits.fleet_nodes} nodes without a fleet-wide approval",
            f"at most {MAX_NODES}; larger fleets are served by `fleet_percent` (up to {MAX_PERCENT:g})",
        )
    for name, least in WINDOWS_S.items():
        if getattr(limits, name) < least:
            yield Violation((*here, name), "a shorter window lets more through", f"at least {least:g}")
    if limits.breaker_rate > MAX_BREAKER_RATE:
        yield Violation((*here, "breaker_rate"), "the breaker would open too late", f"at most {MAX_BREAKER_RATE}")
    for domain in ("rack", "pool", "cluster"):
        if domain not in limits.at_once:
            yield Violation(
                (*here, "at_once"), f"no limit for one {domain}", f"add `{domain}: {{count: 1, percent: 0}}`"
            )
    if policy.simulated_only:
        return
    shares = [((*here, "at_once", name), share) for name, share in limits.at_once.items()]
    for path, share in [*shares, ((*here, "marks"), limits.marks)]:
        if share.count > MAX_NODES and path[-1] in ("rack", "pool", "cluster", "marks"):
            yield Violation((*path, "count"), f"{share.count} nodes at once", f"at most {MAX_NODES}")
        if share.percent > MAX_PERCENT and path[-1] in ("rack", "pool", "cluster", "marks"):
            yield Violation((*path, "percent"), f"{share.percent:g} % at once", f"at most {MAX_PERCENT:g}")


def _people(policy: Settings) -> Iterator[Violation]:
    who = policy.who_may
    for name, least in (("loss", 2), ("fleet", 2)):
        if getattr(who, name).votes < least:
            yield Violation(
                ("who_may", name, "votes"), f"{getattr(who, name).votes} person decides alone", f"at least {least}"
            )
    if who.fleet.one_of is None:
        yield Violation(
            ("who_may", "fleet"), "nobody who owns the capacity must agree", "add `one_of: capacity-owners`"
        )
    if who.stop.votes > 1 or who.stop.one_of is not None:
        yield Violation(("who_may", "stop"), "one person alone can always stop", "write `votes: 1` and no `one_of`")
    if "viewer" not in who.stop.groups:
        yield Violation(("who_may", "stop", "groups"), "a viewer can always stop", "add `viewer`")
    if who.stop.then:
        yield Violation(("who_may", "stop", "then"), "stopping is never put to a vote", "add them to `groups`")
    for act in type(who).model_fields:
        if both := [name for name in getattr(who, act).then if name in getattr(who, act).groups]:
            yield Violation(("who_may", act, "then"), f"`{both[0]}` may vote from the beginning", "write it once")
    if policy.approval_reminder is not None and policy.approval_reminder >= policy.approval_expires:
        yield Violation(("approval_reminder",), "the question is over by then", "give less than `approval_expires`")


def _pools(policy: Settings) -> Iterator[Violation]:
    for name, pool in policy.pools.items():
        if pool.ladder is not None and pool.ladder not in policy.ladders:
            yield _missing(("pools", name, "ladder"), "ladder", pool.ladder, policy.ladders)
        if STORAGE in pool.includes:
            if pool.storage_probe is None:
                yield Violation(
                    ("pools", name, "includes"),
                    "storage nodes are disrupted only while a probe of the storage passes",
                    "name it in `storage_probe`, or leave `storage` out",
                )
            share = policy.limits.at_once.get(STORAGE)
            if share is None or share.count > 1 or share.percent:
                yield Violation(
                    ("limits", "at_once") if share is None else ("limits", "at_once", STORAGE),
                    "storage nodes go one at a time",
                    "write `storage: {count: 1, percent: 0}`",
                )
    for (one, a), (two, b) in combinations(policy.pools.items(), 2):
        both = set(a.select.nodes) & set(b.select.nodes)
        if both and set(a.clusters) & set(b.clusters):
            yield Violation(
                ("pools", two, "select", "nodes"),
                f"{', '.join(sorted(both))} stands in pool `{one}` as well",
                "a node belongs to one pool: remove it from one of them",
            )


def _rules(policy: Settings) -> Iterator[Violation]:
    names = Counter(rule.name for rule in policy.rules)
    for i, rule in enumerate(policy.rules):
        here: Path = ("rules", i)
        if names[rule.name] > 1:
            yield Violation((*here, "name"), f"`{rule.name}` names {names[rule.name]} rules", "give each its own name")
        if rule.ladder is not None and rule.ladder not in policy.ladders:
            yield _missing((*here, "ladder"), "ladder", rule.ladder, policy.ladders)
        for k, pool in enumerate(rule.match.pools):
            if pool not in policy.pools:
                yield _missing((*here, "match", "pools", k), "pool", pool, policy.pools)
        if rule.notify is not None and rule.notify not in policy.audiences.others:
            yield _missing((*here, "notify"), "audience", rule.notify, policy.audiences.others)
        yield from _raising(here, rule)
        yield from _repairing(here, rule, policy)


def _raising(here: Path, rule: Rule) -> Iterator[Violation]:
    to = rule.raise_to
    if to is None:
        return
    if to not in RAISABLE:
        yield Violation(
            (*here, "raise_to"), f"nothing is raised to `{to}`", f"one of {', '.join(RAISABLE)}, or leave it out"
        )
        return
    if not rule.match.codes and not rule.match.classes:
        yield Violation((*here, "match"), "`raise_to` without saying which faults", "name their `codes`")
    if rule.match.codes:
        return
    for k, fault_class in enumerate(rule.match.classes):
        where = (*here, "match", "classes", k)
        if fault_class is FaultClass.MONITOR:
            yield _monitor(where, fault_class)
        elif fault_class in NEVER_A_NODE:
            yield Violation(
                where,
                f"all `{fault_class}` faults at once can't be made a node's fault",
                "name the `codes` that are meant",
            )
        elif fault_class.rank < to.rank:
            yield _milder(here, fault_class, fault_class)


def _against_the_catalogue(here: Path, rule: Rule) -> Iterator[Violation]:
    for k, code in enumerate(rule.match.codes if rule.raise_to in RAISABLE else ()):
        fault_class = lookup(code).fault_class
        if fault_class is FaultClass.MONITOR:
            yield _monitor((*here, "match", "codes", k), code)
        elif rule.raise_to is not None and fault_class.rank < rule.raise_to.rank:
            yield _milder(here, code, fault_class)


def _monitor(where: Path, name: str) -> Violation:
    return Violation(where, f"`{name}` is a monitor's own fault and never a node's", "take it out of this rule")


def _milder(here: Path, name: str, fault_class: FaultClass) -> Violation:
    return Violation(
        (*here, "raise_to"),
        f"`{name}` is `{fault_class}`, and a rule may only make it worse",
        f"remove `{name}` from the rule, or write `raise_to: {fault_class}`",
    )


def _repairing(here: Path, rule: Rule, policy: Settings) -> Iterator[Violation]:
    if rule.do is not Do.REPAIR:
        return
    match = rule.match
    if not match.codes and not match.classes:
        yield Violation(
            (*here, "match"), "a fault is repaired only by a rule that names it", "add `codes` or `classes`"
        )
    ladder = policy.ladders.get(rule.ladder or "", ())
    only_agents = bool(ladder) and all(step.rung in AGENT_RUNGS for step in ladder)
    for k, fault_class in enumerate(match.classes):
        if match.codes or fault_class not in NEVER_A_NODE:
            continue
        if fault_class is FaultClass.MONITOR:
            if not only_agents:
                yield Violation(
                    (*here, "match", "classes", k),
                    "a broken monitor never touches its node",
                    "give the rule a ladder of `restart_agent` only (`ladder: monitor`)",
                )
        else:
            yield Violation(
                (*here, "match", "classes", k),
                f"`{fault_class}` faults are never a node's by themselves",
                "name the `codes` that are meant and the class to `raise_to`",
            )


def _ladders(policy: Settings) -> Iterator[Violation]:
    for name in LADDERS:
        if name not in policy.ladders:
            yield Violation(
                ("ladders",), f"`{name}` is missing", f"add it ({'` → `'.join(s.rung for s in LADDERS[name])})"
            )
    for name, ladder in policy.ladders.items():
        rungs = Counter(step.rung for step in ladder)
        for i, step in enumerate(ladder):
            here: Path = ("ladders", name, i)
            if rungs[step.rung] > 1:
                yield Violation((*here, "rung"), f"`{step.rung}` stands here twice", "use `attempts` on one step")
            if step.request_first and step.rung is not Rung.REPLACE:
                yield Violation(
                    (*here, "request_first"), f"`{step.rung}` asks for no successor", "only `replace` can have it"
                )
            if step.rung is Rung.ESCALATE and i + 1 < len(ladder):
                yield Violation((*here, "rung"), "`escalate` ends a ladder", "move it to the end")


def _thresholds(policy: Settings) -> Iterator[Violation]:
    for i, threshold in enumerate(policy.thresholds):
        if threshold.dwell_s <= 0:
            yield Violation(("thresholds", i, "dwell_s"), "a single moment is no finding", "give it a dwell, e.g. 60")
        if threshold.min_samples < 2:
            yield Violation(("thresholds", i, "min_samples"), "a single sample is no finding", "at least 2")


def _checkpoints(policy: Settings) -> Iterator[Violation]:
    for i, entry in enumerate(policy.checkpoints):
        if sum(way is not None for way in (entry.annotation, entry.command, entry.interval)) != 1:
            yield Violation(
                ("checkpoints", i), "it must be clear where the checkpoint shows",
                "give exactly one of `annotation`, `command` and `interval`",
            )  # fmt: skip


def _missing(path: Path, kind: str, name: str, known: object) -> Violation:
    listed = ", ".join(f"`{entry}`" for entry in known) if isinstance(known, dict) and known else "none"
    return Violation(path, f"there is no {kind} `{name}`", f"known: {listed}")
