"""What every sender's parser shares: its contract, its one error, and the registry.

A sender is one module here that defines `SOURCE`, `parse(payload) -> Parsed` and `recognises(payload) -> bool`,
and is found through the entry-point group `medevac.events` or by being listed in `medevac.events.registry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from medevac.events.event import HealthEvent

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024


class ParseError(ValueError):
    """Nothing in the payload could be read. The message is one line that says what and where."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What was delivered: raw bytes, lower-cased headers, and for command output its exit code."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """One part that was refused while others were taken: `where` (e.g. `alert 1`) and why, one line."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Readable parts are always taken; the refused ones are named. `truncated` counts parts a sender held back."""

    events: tuple[HealthEvent, ...]
    refused: tuple[Refusal, ...] = ()
    truncated: int = 0


class Parser(Protocol):
    SOURCE: str

    def parse(self, payload: Payload) -> Parsed:
        """Raises `ParseError` and nothing else, whatever the bytes."""
        ...

    def recognises(self, payload: Payload) -> bool:
        """True when the payload is surely this sender's; used by `medevac parse` without `--source`."""
        ...
