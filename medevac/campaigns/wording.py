"""A campaign's plan in words, for those who are asked: what is unusual comes first, names come last and are counted."""

from __future__ import annotations

from collections.abc import Sequence

from medevac.campaigns.listing import CampaignPlan
from medevac.campaigns.progress import caps
from medevac.campaigns.spec import Act, Care, Spec
from medevac.counted import count, more
from medevac.policy.durations import words

LONGEST = 880
"""Characters of a question: a chat's field takes 900, and what is cut there is cut in silence."""
IMAGE = 200
"""Characters of an image that a question holds; longer ones are cut, and say so."""
COSTS = 20
SPANS = frozenset({"soak", "window", "look", "deadline"})


def happens(spec: Spec) -> str:
    """What is done to each node."""
    if spec.act is Act.CHECK:
        return "check, nothing else is touched"
    image = f" with image {spec.image}" if spec.image else ""
    return f"drain {spec.drain}, {'hold' if spec.act is Act.DRAIN else spec.act}{image}"


def differing(care: Care) -> tuple[str, ...]:
    """Each value of the care that isn't the shipped one, beside that."""
    usual = Care()
    return tuple(
        f"{name} {_value(name, getattr(care, name))} (shipped {_value(name, getattr(usual, name))})"
        for name in Care.model_fields
        if getattr(care, name) != getattr(usual, name)
    )


def pace(plan: CampaignPlan) -> str:
    """How it widens, and how long it takes."""
    care = plan.spec.care
    first = ", ".join(str(cap) for cap in caps(care, len(plan.members)) if cap < len(plan.members))
    begins = f"first {first} of them, each watched for {words(care.soak)}, then " if first else ""
    return f"{begins}at most {plan.at_once} at once; about {words(60 * round(plan.estimate_s / 60))} in all"


def question(plan: CampaignPlan) -> str:
    """At most `LONGEST` characters: act, image, drain and care, then counts, then names as far as there is room."""
    spec, jobs = plan.spec, plan.jobs
    see = f"medevac campaign show {spec.id}"
    if spec.image and len(spec.image) > IMAGE:
        cut = f"{spec.image[:IMAGE]}… (cut; all of it: {see})"
        spec = spec.model_copy(update={"image": cut})
    unusual = "; ".join(differing(spec.care))
    head = f"{happens(spec)}: {count(len(plan.members), 'node')}"
    if unusual:
        head += f". Differs from what is shipped: {unusual}"
    hit = count(len(jobs), "job")
    left = count(len(plan.skipped), "node")
    head += f". {pace(plan).capitalize()}. {left} left out, {hit} hit"
    room = LONGEST - len(head) - len(". Jobs: ")
    named = _some([member.node for member in plan.members], room // 2 if jobs else room, see)
    head += f". Nodes: {named}"
    return f"{head}. Jobs: {_some(jobs, LONGEST - len(head) - len('. Jobs: '), see)}" if jobs else head


def costs(plan: CampaignPlan) -> tuple[str, ...]:
    """What is destroyed, on whatever node; where that is much, how much is not told here."""
    found = sorted({cost for member in plan.members for cost in member.destroys})
    beyond = more(found, COSTS)
    return (*found[:COSTS], *([f"{beyond}: medevac campaign show {plan.spec.id}"] if beyond else ()))


def _some(names: Sequence[str], room: int, see: str) -> str:
    """As many as fit, and how many don't."""
    told = ""
    for n, name in enumerate(names):
        next_one = f"{', ' if told else ''}{name}"
        rest = len(names) - n - 1
        if len(told) + len(next_one) + (len(_more(rest, see)) if rest else 0) > room:
            return f"{told}{_more(len(names) - n, see)}" if told else f"{len(names)}: {see}"
        told += next_one
    return told


def _more(rest: int, see: str) -> str:
    return f" and {rest} more: {see}"


def _value(name: str, value: object) -> str:
    if name in SPANS and isinstance(value, float):
        return words(value)
    if isinstance(value, tuple):
        return ", ".join(f"{share:g} %" for share in value)
    return "by the budgets" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
