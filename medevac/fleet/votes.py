"""People's words, whatever they are about: whose they are, how long one to go on counts, how it is said that it no
longer does."""

from __future__ import annotations

from datetime import datetime, timedelta

VOTE_HOLDS = timedelta(hours=1)
"""As far as the sum looks back that tells fleet-wide from one node: who looked before that has seen another fleet."""


def person_of(principal: str) -> str:
    """Spelled differently it is still the same person."""
    return principal.strip().casefold()


def outdated(at: datetime, now: datetime) -> str:
    """Why a word of then is too old; empty while it isn't."""
    return f"it is more than {VOTE_HOLDS.total_seconds() / 60:g} min old" if now - at > VOTE_HOLDS else ""


def no_longer(by: str, at: datetime, why: str, now: datetime) -> str:
    """With the day where that isn't today's."""
    clock = f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
    return f"{by}'s word of {clock} UTC no longer counts: {why}"
