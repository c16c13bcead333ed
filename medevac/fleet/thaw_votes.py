"""Votes to lift a freeze: each is to what stood when it was cast, and to nothing that came after it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from medevac.fleet.fence import Fence, ThawVote
from medevac.fleet.votes import no_longer, outdated

THAW_PEOPLE = 2


def weighed(fence: Fence, others: Iterable[Fence], now: datetime) -> Fence:
    """The fence with those votes that count at `now`, each person's last, and in `lapsed` why the others don't.

    `others`: at least the freezes of its scope that came after it.
    """
    last = {vote.by: vote for vote in sorted(fence.thaw_votes, key=lambda vote: vote.at)}
    anew = [one for one in others if one.scope == fence.scope and one.epoch > fence.epoch]
    found = [(vote, _why_lapsed(vote, anew, now)) for vote in last.values()]
    return fence.model_copy(
        update={
            "thaw_votes": tuple(vote for vote, why in found if not why),
            "lapsed": tuple(no_longer(vote.by, vote.at, why, now) for vote, why in found if why),
        }
    )


def _why_lapsed(vote: ThawVote, anew: Iterable[Fence], now: datetime) -> str:
    if by := sorted({one.by for one in anew if vote.at < one.at <= now}):
        return f"{' and '.join(by)} froze it anew since"
    return outdated(vote.at, now)
