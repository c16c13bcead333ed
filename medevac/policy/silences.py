"""Silences: what a person has asked medevac not to do, or not to say, about some faults for a while.

A silence holds; it never hides. A latched fault of the hardware is handed over, paged and listed all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from medevac.faults.classes import FaultClass
from medevac.model import Model

LONGEST = timedelta(days=7)


class Holds(StrEnum):
    NOTIFY = "notify"
    """Nobody is told in chat or paged."""
    MARK = "mark"
    """The node is neither marked nor acted on."""
    DESTRUCTIVE = "destructive"
    """The node is marked, and what disrupts it waits."""


class Subject(Model):
    """One fault of one node, as far as silences and windows tell it from others."""

    cluster: str
    pool: str | None
    node: str
    fault: str
    fault_class: FaultClass | None
    sources: tuple[str, ...] = ()


class Matcher(Model):
    """Every line that is given must fit, exactly."""

    cluster: str | None = Field(default=None, min_length=1, max_length=100)
    pool: str | None = Field(default=None, min_length=1, max_length=100)
    node: str | None = Field(default=None, min_length=1, max_length=253)
    fault: str | None = Field(default=None, min_length=1, max_length=200)
    fault_class: FaultClass | None = None
    source: str | None = Field(default=None, min_length=1, max_length=100)
    """Who raised the fault: `alertmanager`, `kmsg`, … Where others have raised it too, it isn't silenced."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("an empty matcher never means everything; give cluster, pool, node, fault, class, source")
        return self

    def fits(self, subject: Subject) -> bool:
        return (
            self.cluster in (None, subject.cluster)
            and self.pool in (None, subject.pool)
            and self.node in (None, subject.node)
            and self.fault in (None, subject.fault)
            and self.fault_class in (None, subject.fault_class)
            and (self.source is None or set(subject.sources) == {self.source})
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.model_dump(mode="json", exclude_none=True).items())


class Silence(Model):
    id: str
    by: str
    reason: str = Field(min_length=1, max_length=500)
    at: datetime
    until: datetime
    matcher: Matcher
    holds: tuple[Holds, ...] = Field(min_length=1)
    ended_at: datetime | None = None
    ended_by: str | None = None
    via: str = ""
    """By what way it was made, and `ended_via` ended; empty in what older releases wrote."""
    ended_via: str = ""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not self.at < self.until <= self.at + LONGEST:
            raise ValueError("a silence ends, at most 7 days after it began; make it anew when it does")
        return self

    def stands(self, now: datetime) -> bool:
        return self.at <= now < self.until and (self.ended_at is None or now < self.ended_at)

    def __str__(self) -> str:
        until = self.until.strftime("%Y-%m-%d %H:%M %Z").strip()
        return f"silenced by {self.by} until {until} ({self.matcher}): {self.reason}"


def silenced(silences: Iterable[Silence], subject: Subject, edge: Holds, now: datetime) -> Silence | None:
    """The silence that holds `edge` for this fault the longest."""
    fitting = [one for one in silences if edge in one.holds and one.stands(now) and one.matcher.fits(subject)]
    return max(fitting, key=lambda one: one.until, default=None)


def says_nothing(silences: Iterable[Silence], subjects: Iterable[Subject], now: datetime) -> Silence | None:
    """The silence under which nobody is told: only where each of the faults is silenced, and none is latched."""
    listed, known = list(subjects), list(silences)
    if not listed or any(one.fault_class is None or one.fault_class.latched for one in listed):
        return None
    found = [silenced(known, one, Holds.NOTIFY, now) for one in listed]
    return None if None in found else found[0]
