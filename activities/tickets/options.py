"""What every ticket system's options have, and what their adapters share."""

from __future__ import annotations

from pydantic import Field

from activities.failures import redact
from medevac.cases.letter import SHARED, Share
from medevac.model import Model


class TicketOptions(Model):
    share: tuple[Share, ...] = Field(default=SHARED, min_length=1)
    """What may leave the company in tickets of this system; everything else stays here."""
    timeout_s: float = Field(default=10.0, gt=0, le=30)
    """Of one call."""


def mark(key: str) -> str:
    """As a case's key stands in its ticket's subject, to be found again by it."""
    return f"[{key}]"


def short(error: Exception) -> str:
    """One line, without what looks like a secret."""
    return redact(f"{type(error).__name__}: {error}".rstrip(": "), 200)
