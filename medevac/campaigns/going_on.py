"""People's words to let a campaign go on, after a halt or before its time: as many as agreed to it, each to what stood
when it was said, and to nothing that came after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from medevac.fleet.votes import no_longer, outdated, person_of
from medevac.model import Model
from medevac.policy.plan import ApprovalNeed


class Standing(Model):
    """What a word is about."""

    order: int
    """Number of the ledger's line of the last stop, or of the last word that let it go on."""
    passed: int
    """Stages that were behind."""
    bad: int
    """Nodes that had failed, had a fault or lost a job."""


class Said(Model):
    """One person's word. `by` and `groups` come from the gateway's own records, never from the client."""

    what: str
    """`resume` or `widen`."""
    by: str
    groups: tuple[str, ...]
    at: datetime
    to: Standing


@dataclass(frozen=True, slots=True)
class Weighed:
    by: tuple[str, ...]
    """Whose words count, in the order in which they were said."""
    missing: str
    """Who else is needed; empty where nobody is."""
    lapsed: tuple[str, ...]
    """Why the others' words count no more."""


def why_not(need: ApprovalNeed, requested_by: str, by: str, groups: Iterable[str]) -> str:
    """Why this person's word isn't one of those that are needed; empty where it is."""
    if person_of(by) == person_of(requested_by):
        return f"{by} asked for this campaign; others let it go on"
    if set(groups).isdisjoint(need.groups):
        return f"{by} may not let it go on; it takes one of the groups {', '.join(sorted(need.groups))}"
    return ""


def weigh(
    need: ApprovalNeed, requested_by: str, said: Iterable[Said], what: str, stands: Standing, now: datetime
) -> Weighed:
    """`said`: of this campaign, in order; of each person the last word counts."""
    last = {
        person_of(one.by): one
        for one in said
        # What was said before it was stopped, or let go on, had its effect then.
        if one.what == what and one.to.order == stands.order
        if not why_not(need, requested_by, one.by, one.groups)
    }
    found = [(one, _why_lapsed(one, stands, now)) for one in last.values()]
    counting = [one for one, why in found if not why]
    return Weighed(
        by=tuple(one.by for one in counting),
        missing=need.lacks([one.groups for one in counting], need.groups),
        lapsed=tuple(no_longer(one.by, one.at, why, now) for one, why in found if why),
    )


def _why_lapsed(one: Said, stands: Standing, now: datetime) -> str:
    if one.to.passed != stands.passed:
        return "that stage is behind"
    if stands.bad > one.to.bad:
        return f"{stands.bad - one.to.bad} more failures, faults or lost jobs were seen since"
    return outdated(one.at, now)
