"""Rules: what is done about which fault. A fault that no rule speaks of is only notified."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from medevac.faults.classes import Covers, FaultClass
from medevac.model import Model
from medevac.policy.durations import Duration
from medevac.policy.names import Code, Name
from medevac.policy.plan import Drain, Mode


class Do(StrEnum):
    REPAIR = "repair"
    """By the ladder."""
    NOTIFY = "notify"
    RECORD = "record"

    @property
    def reach(self) -> int:
        return (Do.RECORD, Do.NOTIFY, Do.REPAIR).index(self)


class Match(Model):
    """Each line that is given must fit; within a line any entry. Exact, no wildcards; nothing given is an error."""

    codes: tuple[Code, ...] = ()
    classes: tuple[FaultClass, ...] = ()
    pools: tuple[Name, ...] = ()
    skus: tuple[str, ...] = ()
    providers: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.codes or self.classes or self.pools or self.skus or self.providers):
            raise ValueError("an empty match never means every fault; give `codes`, `classes` or `pools`")
        return self

    def fits(self, code: str, fault_class: FaultClass, pool: str | None, sku: str | None, provider: str) -> bool:
        return (
            (not self.codes or code in self.codes)
            and (not self.classes or fault_class in self.classes)
            and (not self.pools or pool in self.pools)
            and (not self.skus or sku in self.skus)
            and (not self.providers or provider in self.providers)
        )


class Rule(Model):
    """Rules are read from the top. For each setting the first rule that fits and has it decides; of modes the
    strictest counts."""

    name: Name
    match: Match
    raise_to: FaultClass | None = None
    """A worse class than the catalogue's. Later rules see the raised class."""
    covers: tuple[Covers, ...] = Field(default=())
    """What a check must cover to prove this fault gone, where the catalogue doesn't know it."""
    do: Do | None = None
    mode: Mode | None = None
    drain: Drain | None = None
    ladder: Name | None = None
    watch: Duration | None = None
    """How long a fault that may clear by itself is given."""
    ticket: bool | None = None
    """Open the provider's ticket beside the repair."""
    notify: Name | None = None
    """Audience that is told; unset: `everyday`."""
