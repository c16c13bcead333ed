"""One payload, whoever carried it: read, stamped, taken; and what was refused is kept for a person."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from activities.storage.dead_letters import DeadLetters, Stored
from medevac.events.event import HealthEvent, Kind
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.registry import read
from worker import metrics
from worker.intake.part import Outcome, PartResult
from worker.intake.pipeline import Intake
from worker.threads import Threads

log = logging.getLogger(__name__)

MORE_S = 5.0
SMALL = 8 * 1024
"""Bytes. Parsing less is quicker than handing it to a thread."""


class Why(StrEnum):
    """Reasons of refusals, as the metrics and the dead letters have them."""

    UNREADABLE = "unreadable"
    PART = "part"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too_large"
    ENCODING = "encoding"
    HANDSHAKE = "handshake"
    UNAUTHENTICATED = "unauthenticated"
    UNKNOWN_SOURCE = "unknown_source"
    SLOW = "slow"
    """Its body did not come to its end in time."""
    STUCK = "stuck"
    """An event that the workflow engine never took."""
    TRIES = "tries"
    """A message that could not be taken however often it came."""


More = Callable[[Payload], Awaitable[Payload]]
"""From the payload that held parts back to one that has them."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who says it, as which sources, about which clusters."""

    name: str
    sources: tuple[str, ...]
    clusters: tuple[str, ...]
    cluster_names: Mapping[str, str] = field(default_factory=dict)
    """What it calls a cluster, to what the cluster is called here."""
    more: More | None = None
    """Where alerts are asked for that it held back."""


class Refused(Exception):
    """Nothing of the payload was taken, and sending it again won't help. `why` is for counting."""

    def __init__(self, why: Why, message: str, parts: Sequence[PartResult] = ()) -> None:
        super().__init__(message)
        self.why = why
        self.parts = tuple(parts)
        self.kept = False
        """It lies with the dead letters; who carried it may forget it."""


@dataclass(frozen=True, slots=True)
class Taken:
    parts: tuple[PartResult, ...]
    truncated: int
    handshakes: tuple[HealthEvent, ...] = ()
    kept: bool = True
    """What was refused of it lies with the dead letters."""

    @property
    def held(self) -> bool:
        """Everything that could be read is held durably."""
        return all(part.outcome is not Outcome.UNAVAILABLE for part in self.parts)


class Deliveries:
    def __init__(
        self,
        intake: Intake,
        dead_letters: DeadLetters,
        threads: Threads,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._intake = intake
        self._dead_letters = dead_letters
        self._threads = threads
        self._now = now

    async def take(self, source: str, payload: Payload, speaker: Speaker) -> Taken:
        """Readable parts are always taken. Raises `Refused` when nothing was; that, and each refused part, is kept."""
        try:
            taken = await self._take(source, payload, speaker)
        except Refused as refused:
            refused.kept = await self.refuse(source, speaker.name, refused.why, str(refused), payload)
            raise
        kept = [
            await self.refuse(source, speaker.name, why, reason, payload, count=count)
            for why, reason, count in _refusals(taken.parts)
        ]
        taken = replace(taken, kept=all(kept))
        if taken.truncated and taken.held:
            held_back = taken.truncated
            if speaker.more is not None:
                taken = await self._asked_back(source, payload, taken, speaker, speaker.more)
            metrics.HELD_BACK.labels(source, "missing" if taken.truncated else "had").inc(held_back)
        return taken

    async def _asked_back(self, source: str, payload: Payload, taken: Taken, speaker: Speaker, more: More) -> Taken:
        """A sender that held parts back is asked for them; what can't be had stays counted as held back."""
        outcome = "failed"
        try:
            async with asyncio.timeout(MORE_S):
                had = await more(payload)
            rest = await self.take(source, had, replace(speaker, more=None))
            outcome = "taken" if rest.held else "failed"
            if rest.held:
                parts, kept = (*taken.parts, *rest.parts), taken.kept and rest.kept
                return replace(taken, parts=parts, truncated=rest.truncated, kept=kept)
        except (TimeoutError, Refused, OSError, ValueError) as error:
            log.error("%s held %d parts back and can't be asked for them: %s", speaker.name, taken.truncated, error)
        finally:
            metrics.ASKED_BACK.labels(source, outcome).inc()
        return taken

    async def _take(self, source: str, payload: Payload, speaker: Speaker) -> Taken:
        if source not in speaker.sources:
            raise Refused(
                Why.FORBIDDEN, f"sender {speaker.name} may not post {source}, only {', '.join(speaker.sources)}"
            )
        try:
            small = len(payload.body) <= SMALL
            parsed = read(source, payload) if small else await self._threads.run(read, source, payload)
        except ParseError as error:
            raise Refused(Why.UNREADABLE, str(error)) from error
        refused = [PartResult(id=one.where, outcome=Outcome.REFUSED, reason=one.reason) for one in parsed.refused]
        if refused:
            metrics.EVENTS.labels(source, Outcome.REFUSED).inc(len(refused))
        elif not parsed.events:
            metrics.EMPTY.labels(source).inc()
        parts = await self._events(parsed.events, speaker)
        if refused and not parts:
            raise Refused(Why.UNREADABLE, "; ".join(str(one) for one in parsed.refused[:5]), refused)
        if parts and all(part.outcome is Outcome.REFUSED for part in parts):
            raise Refused(Why.FORBIDDEN, parts[0].reason, (*parts, *refused))
        return Taken((*parts, *refused), parsed.truncated, _handshakes(parsed))

    async def _events(self, events: Iterable[HealthEvent], speaker: Speaker) -> list[PartResult]:
        now = self._now()
        stamped = [
            event.model_copy(
                update={
                    "sender": speaker.name,
                    "received_at": now,
                    "cluster": speaker.cluster_names.get(event.cluster or "", event.cluster),
                }
            )
            for event in events
        ]
        return await self._intake.take(stamped, speaker.clusters, now)

    async def again(self, stored: Stored, speaker: Speaker) -> Taken:
        """A dead letter once more. Raises `Refused`, also where there is nothing in it; it stays until it was taken."""
        letter = stored.letter
        if not letter.whole:
            raise Refused(
                Why.TOO_LARGE,
                f"letter {letter.id} was not kept whole; its sender must repeat it, so that it can be read",
            )
        if letter.why == Why.STUCK:
            parts = await self._events([HealthEvent.model_validate_json(stored.body)], speaker)
            taken = Taken(tuple(parts), 0)
        else:
            taken = await self._take(letter.source, Payload(stored.body, stored.headers), speaker)
        if refused := _refusals(taken.parts):
            raise Refused(refused[0][0], refused[0][1], taken.parts)
        if not taken.parts:
            raise Refused(Why.UNREADABLE, f"letter {letter.id} has nothing in it that could be taken")
        if taken.held:
            await self._threads.run(self._dead_letters.taken, letter.id, self._now())
        return taken

    async def refuse(
        self,
        source: str,
        sender: str,
        why: Why,
        reason: str,
        payload: Payload,
        *,
        count: int = 1,
        size: int | None = None,
    ) -> bool:
        """Counted, and kept as far as the ledger can: a refusal must not turn into a 5xx because of it.

        `count`: parts. `size`: bytes of the payload where no more than its beginning is given.
        """
        metrics.REFUSALS.labels("unknown" if why is Why.UNKNOWN_SOURCE else source, why).inc(count)
        try:
            await self._threads.run(
                self._dead_letters.put, source, sender, why, reason, payload.headers, payload.body, self._now(), size
            )
        except Exception as error:
            log.error("a refused delivery of %s could not be kept: %s", sender, error)
            return False
        return True


def _refusals(parts: Sequence[PartResult]) -> list[tuple[Why, str, int]]:
    """One for the parts that could not be read, one for those about foreign clusters; with their number."""
    found = []
    refused = [part for part in parts if part.outcome is Outcome.REFUSED]
    for why, some in (
        # A part that was read has an event behind it, and so a subject or a fault.
        (Why.PART, [part for part in refused if part.subject is None and part.fault is None]),
        (Why.FORBIDDEN, [part for part in refused if part.subject is not None or part.fault is not None]),
    ):
        if some:
            more = f" (and {len(some) - 5} more)" if len(some) > 5 else ""
            found.append((why, "; ".join(f"{part.id}: {part.reason}" for part in some[:5]) + more, len(some)))
    return found


def _handshakes(parsed: Parsed) -> tuple[HealthEvent, ...]:
    return tuple(event for event in parsed.events if event.kind is Kind.HANDSHAKE)


def safe_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Lower-cased, without what proves an identity."""
    lowered = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lowered.items() if name not in ("authorization", "cookie")}
