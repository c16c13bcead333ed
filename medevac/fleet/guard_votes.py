"""Votes to close a breaker: each is to what was shown when it was cast, and to nothing that came after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from medevac.fleet.guard_state import LEVEL, Breaker, ClosingVote, Sighting
from medevac.fleet.votes import no_longer, outdated

CLOSING_PEOPLE = 2


@dataclass(frozen=True, slots=True)
class Weighed:
    breaker: Breaker
    votes: tuple[ClosingVote, ...]
    """Those that count, in the order in which they were cast."""
    lapsed: tuple[str, ...]
    """Why each of the others counts no more, in words for people."""

    @property
    def voters(self) -> tuple[str, ...]:
        return tuple(vote.by for vote in self.votes)


def weigh(breaker: Breaker, sightings: Iterable[Sighting], now: datetime) -> Weighed:
    """`sightings`: at least those of the breaker's cluster and cause since its oldest vote."""
    about = [one for one in sightings if is_about(breaker, one)]
    found = [(vote, _why_lapsed(breaker, vote, about, now)) for vote in breaker.votes]
    return Weighed(
        breaker=breaker,
        votes=tuple(vote for vote, why in found if not why),
        lapsed=tuple(no_longer(vote.by, vote.at, why, now) for vote, why in found if why),
    )


def is_about(breaker: Breaker, sighting: Sighting) -> bool:
    """Whether it makes the breaker's cause worse; one by level is about whatever takes nodes out."""
    return sighting.cluster == breaker.cluster and breaker.cause in (LEVEL, str(sighting.fault_class))


def _why_lapsed(breaker: Breaker, vote: ClosingVote, about: Iterable[Sighting], now: datetime) -> str:
    more = len({one.node for one in about if one.at > vote.at})
    if more:
        fault = "a fault" if breaker.cause == LEVEL else f"a fault of class {breaker.cause}"
        return f"{more} more {'node' if more == 1 else 'nodes'} showed {fault} since"
    return outdated(vote.at, now)
