"""What a new policy changes, and whether it widens. When unsure, a change is a widening.

A widening needs somebody who isn't its author; a narrowing applies at once. Rules are compared by what they decide,
for every fault class, every code that either policy names, and every pool, so that moving a rule hides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from medevac.model import Model
from medevac.policy.bounds import Path
from medevac.policy.compared import verdicts
from medevac.policy.durations import seconds, words
from medevac.policy.judging import LADDER_OF
from medevac.policy.ladders import LadderStep
from medevac.policy.plan import AtBudget, AtJobEnd, Drain, Mode
from medevac.policy.policy import Policy
from medevac.policy.rules import Do

UP, DOWN, ANY, NEVER = "up", "down", "any", "never"
"""In which direction a setting widens."""

SETTINGS: dict[str, str | tuple[str, ...]] = {
    "name": NEVER,
    "version": NEVER,
    "simulated_only": ANY,
    "attempts.same_rung": UP,
    "attempts.window": DOWN,
    "attempts.incidents": ANY,
    "drains.now": DOWN,
    "drains.soon": DOWN,
    "drains.checkpoint": DOWN,
    "drains.job_end": DOWN,
    "drains.pod_grace": DOWN,
    "drains.at_budget": tuple(AtBudget),
    "drains.at_job_end": tuple(AtJobEnd),
    "approval_expires": UP,
    "approval_pages": NEVER,
    "watch": DOWN,
    "notice_margin": UP,
    "verify": DOWN,
    "probation": DOWN,
    "repeat": UP,
    "quiet": NEVER,
    "ask_above_gpu_hours": UP,
    "evidence": UP,  # by their names' order: from required to wanted
    "tickets.patience": NEVER,
    "tickets.chases": NEVER,
    "tickets.per_hour": UP,
    "tickets.look_every": NEVER,
    "limits.fleet_nodes": UP,
    "limits.fleet_percent": UP,
    "limits.fleet_window_s": DOWN,
    "limits.same_fault_nodes": UP,
    "limits.same_fault_window_s": DOWN,
    "limits.marks.count": UP,
    "limits.marks.percent": UP,
    "limits.marks_window_s": DOWN,
    "limits.marks_standing_percent": UP,
    "limits.breaker_level_percent": UP,
    "limits.breaker_rate": UP,
    "limits.breaker_window_s": DOWN,
    "limits.min_spares": DOWN,
    "limits.lease_ttl_s": ANY,
    "limits.grant_pace_s": DOWN,
}
"""A tuple: its values in order, the widest last. Everything not named here is compared by its own function, or counts
as widening whenever it changes."""


class PolicyChange(Model):
    path: str
    old: Any = None
    new: Any = None
    widening: bool
    text: str


def changes(old: Policy, new: Policy) -> list[PolicyChange]:
    """Every difference, in the file's order. No differences: an empty list."""
    found = [
        *_pools(old, new),
        *_rules(old, new),
        *_ladders(old, new),
        *_set("auto", {r.value for r in old.auto}, {r.value for r in new.auto}, "may go without asking"),
        *_at_once(old, new),
        *_people(old, new),
        *_thresholds(old, new),
        *_windows(old, new),
        *_plain(old, new),
    ]
    return sorted(found, key=lambda change: list(Policy.model_fields).index(change.path.split(".")[0].split("[")[0]))


def widens(old: Policy, new: Policy) -> bool:
    return any(change.widening for change in changes(old, new))


# -- pools -----------------------------------------------------------------------------------------------------


def _pools(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    for name in sorted(old.pools.keys() | new.pools.keys()):
        a, b = old.pools.get(name), new.pools.get(name)
        here = f"pools.{name}"
        if a is None and b is not None:
            yield _change(here, None, b, True, f"pool `{name}` is added in mode {b.mode}")
        elif b is None and a is not None:
            # A node that two pools took belonged to none; without one of them the other takes it.
            others = [
                n for n, p in new.pools.items() if set(p.clusters) & set(a.clusters) and p.mode is not Mode.OBSERVE
            ]
            hint = f" (nodes may fall to {', '.join(others)}; mode observe would narrow at once)" if others else ""
            yield _change(here, a, None, bool(others), f"pool `{name}` is removed{hint}")
        elif a is not None and b is not None:
            if a.mode is not b.mode:
                yield _change(
                    f"{here}.mode", a.mode, b.mode, b.mode.reach > a.mode.reach, f"pool `{name}`: {a.mode} → {b.mode}"
                )
            yield from _set(f"{here}.clusters", set(a.clusters), set(b.clusters), f"clusters of pool `{name}`")
            yield from _set(f"{here}.includes", set(a.includes), set(b.includes), f"roles in pool `{name}`")
            was, now = ({str(offer) for offer in pool.replacements} for pool in (a, b))
            yield from _set(f"{here}.replacements", was, now, f"where pool `{name}` gets replacements")
            if a.coexist != b.coexist:
                order = [None, "yield", "own"]
                up = order.index(b.coexist) > order.index(a.coexist)
                yield _change(
                    f"{here}.coexist", a.coexist, b.coexist, up, f"pool `{name}`: coexist {b.coexist or 'unset'}"
                )
            for part in ("select", "ladder", "storage_probe"):
                was, now = getattr(a, part), getattr(b, part)
                if was != now:
                    yield _change(f"{here}.{part}", was, now, True, f"pool `{name}`: another {part.replace('_', ' ')}")


# -- rules and ladders -----------------------------------------------------------------------------------------


def _rules(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    if old.rules == new.rules:
        return
    wider = next(_wider(old, new), "")
    before, after = {r.name: r for r in old.rules}, {r.name: r for r in new.rules}
    said = False
    for name in [*before, *(n for n in after if n not in before)]:
        a, b = before.get(name), after.get(name)
        if a == b:
            continue
        said = True
        what = "is added" if a is None else "is removed" if b is None else "is changed"
        yield _change(f"rules.{name}", a, b, bool(wider), f"rule `{name}` {what}{f': {wider}' if wider else ''}")
    if not said:
        order = ", ".join(after)
        yield _change("rules", list(before), list(after), bool(wider), f"rules are read in another order: {order}")


def _wider(old: Policy, new: Policy) -> Iterator[str]:
    """Each respect in which the new rules reach further for some fault somewhere."""
    for pool in (*new.pools, None):
        where = f"in pool `{pool}`" if pool else "outside the pools"
        for what, a, b in verdicts(old, new, pool):
            if b.do.reach > a.do.reach:
                yield f"{what} {where}: {a.do} → {b.do}"
            if Do.REPAIR is not b.do:
                continue
            if b.mode.reach > a.mode.reach:
                yield f"{what} {where}: {a.mode} → {b.mode} at most"
            if b.fault_class.rank < a.fault_class.rank:
                yield f"{what} {where} counts as {b.fault_class}, no longer {a.fault_class}"
            if b.ladder != a.ladder:
                yield f"{what} {where}: another ladder"
            if _shorter(a.drain, b.drain):
                yield f"{what} {where}: drain {a.drain} → {b.drain}"
            if b.watch_s < a.watch_s:
                yield f"{what} {where} is watched for a shorter time"
            if b.covers != a.covers:
                yield f"{what} {where}: proved by another check"


def _shorter(a: Drain | None, b: Drain | None) -> bool:
    order = list(Drain)
    return b is not None and (a is None or order.index(b) < order.index(a))


def _ladders(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    for name in sorted(old.ladders.keys() | new.ladders.keys()):
        a, b = old.ladders.get(name, ()), new.ladders.get(name, ())
        if a == b:
            continue
        rungs = " → ".join(step.rung for step in b) or "removed"
        # A rung added, or one taken away before others, makes another come sooner. A shorter ladder only ends sooner.
        narrower = bool(a) and all(map(_no_wider_step, a, b)) and len(b) <= len(a)
        unused = not a and name not in LADDER_OF.values()
        text = f"ladder `{name}`: {rungs}"
        yield _change(f"ladders.{name}", list(a), list(b), not narrower and not unused, text)


def _no_wider_step(a: LadderStep, b: LadderStep) -> bool:
    return (
        a.rung is b.rung
        and b.attempts <= a.attempts
        and b.wait >= a.wait
        and b.deadline >= a.deadline
        and b.request_first <= a.request_first
        and (b.only == a.only)
    )


# -- the rest --------------------------------------------------------------------------------------------------


def _at_once(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    a, b = old.limits.at_once, new.limits.at_once
    for domain in sorted(a.keys() | b.keys()):
        was, now = a.get(domain), b.get(domain)
        if was == now:
            continue
        up = now is None or (was is not None and (now.count > was.count or now.percent > was.percent))
        said = "without limit" if now is None else f"{now.count} or {now.percent:g} % at once"
        yield _change(f"limits.at_once.{domain}", was, now, up, f"in one {domain}: {said}")


def _people(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    for act in type(old.who_may).model_fields:
        a, b = getattr(old.who_may, act), getattr(new.who_may, act)
        here = f"who_may.{act}"
        added, removed = set(b.groups) - set(a.groups), set(a.groups) - set(b.groups)
        if added or removed:
            # Fewer people who may stop is no narrowing.
            up = bool(added) if act != "stop" else bool(removed)
            yield _change(f"{here}.groups", a.groups, b.groups, up, f"who may {act}: {', '.join(b.groups)}")
        if a.then != b.then:
            up = bool(set(b.then) - {*a.then, *a.groups})
            then = f"after the reminder {', '.join(b.then)} as well" if b.then else "nobody else after the reminder"
            yield _change(f"{here}.then", a.then, b.then, up, f"who may {act}: {then}")
        if a.votes != b.votes:
            yield _change(f"{here}.votes", a.votes, b.votes, b.votes < a.votes, f"{act} takes {b.votes} people")
        if a.one_of != b.one_of:
            said = f"one of them of {b.one_of}" if b.one_of else "of no particular group"
            yield _change(f"{here}.one_of", a.one_of, b.one_of, a.one_of is not None, f"{act}: {said}")


def _thresholds(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    a = {(t.name, t.fault): t for t in old.thresholds}
    b = {(t.name, t.fault): t for t in new.thresholds}
    for key in sorted(a.keys() | b.keys()):
        was, now = a.get(key), b.get(key)
        here, text = f"thresholds.{key[0]}", f"threshold {key[0]} → {key[1]}"
        if was is None and now is not None:
            yield _change(here, None, now, True, f"{text} is added: above {now.above:g} for {now.dwell_s:g} s")
        elif now is None:
            yield _change(here, was, None, False, f"{text} is removed")
        elif was is not None and was != now:
            milder = now.model_copy(
                update={name: getattr(was, name) for name in ("above", "clear_below", "dwell_s", "min_samples")}
            )
            up = (
                milder != was
                or now.above < was.above
                or now.clear_below < was.clear_below
                or now.dwell_s < was.dwell_s
                or now.min_samples < was.min_samples
            )
            yield _change(here, was, now, up, f"{text}: above {now.above:g} for {now.dwell_s:g} s")


def _windows(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    """A window holds: one more narrows. One less widens, as does one at other times, of less, or of fewer pools."""
    for name in dict.fromkeys([*old.windows, *new.windows]):
        was, now = old.windows.get(name), new.windows.get(name)
        if was == now:
            continue
        here, text = f"windows.{name}", f"window `{name}`"
        if was is None:
            yield _change(here, None, now, False, f"{text}: new")
        elif now is None:
            yield _change(here, was, None, True, f"{text}: gone")
        else:
            free = {name: getattr(now, name) for name in ("holds", "pools", "reason", "asks")}
            same_times = was.model_copy(update=free) == now
            no_fewer = not now.pools or (bool(was.pools) and set(was.pools) <= set(now.pools))
            # What was held and asks from now on may go with a yes.
            no_looser = was.asks or not now.asks
            up = not (same_times and no_fewer and no_looser and set(was.holds) <= set(now.holds))
            yield _change(here, was, now, up, f"{text}: changed")


def _plain(old: Policy, new: Policy) -> Iterator[PolicyChange]:
    a, b = _flat(old), _flat(new)
    for path in [*a, *(p for p in b if p not in a)]:
        was: Any = a.get(path)
        now: Any = b.get(path)
        if was == now:
            continue
        way = NEVER if path.startswith(("audiences", "handover")) else SETTINGS.get(path, ANY)
        if isinstance(way, tuple):
            up = way.index(now) > way.index(was)
        else:
            a_now, a_was = (math.inf if value is None else value for value in (now, was))
            up = way == ANY or (way == UP and a_now > a_was) or (way == DOWN and a_now < a_was)
        yield _change(path, was, now, up, f"{path}: {_written(path, was)} → {_written(path, now)}")


_SPANS = (
    "drains.",
    "watch",
    "notice_margin",
    "verify",
    "probation",
    "repeat",
    "quiet",
    "approval_expires",
    "approval_reminder",
    "attempts.window",
)


def _written(path: str, value: Any) -> str:
    """As the file's author would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (int, float)) or not (path.startswith(_SPANS) or path.endswith("_s")):
        return str(value)
    said = words(value)
    return said if seconds(said.replace("min", "m")) == value else f"{value:g} s"


_OWN = ("pools", "rules", "ladders", "auto", "who_may", "thresholds", "windows")


def _flat(policy: Policy) -> dict[str, Any]:
    """Single settings by dotted path, without the parts that are compared in their own way."""
    found: dict[str, Any] = {}

    def walk(value: Any, path: Path) -> None:
        if isinstance(value, dict):
            for key, child in value.items():
                if (*path, key) != ("limits", "at_once") and (path or key not in _OWN):
                    walk(child, (*path, key))
        else:
            found[".".join(map(str, path))] = value

    walk(policy.model_dump(mode="json"), ())
    return found


def _set(path: str, old: set[str], new: set[str], what: str) -> Iterator[PolicyChange]:
    if old == new:
        return
    added, removed = sorted(new - old), sorted(old - new)
    said = [*(f"+{name}" for name in added), *(f"-{name}" for name in removed)]
    yield _change(path, sorted(old), sorted(new), bool(added), f"{what}: {' '.join(said)}")


def _change(path: str, old: Any, new: Any, widening: bool, text: str) -> PolicyChange:
    return PolicyChange(path=path, old=_json(old), new=_json(new), widening=widening, text=text)


def _json(value: Any) -> Any:
    if isinstance(value, Model):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, (list, tuple)):
        return [_json(entry) for entry in value]
    return value
