"""Ladders: the rungs of a repair in order, with what each is good for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from medevac.faults.classes import Covers
from medevac.fleet.node import Capability, Machine
from medevac.model import Model
from medevac.policy.durations import Duration
from medevac.policy.names import Code, Name
from medevac.policy.plan import Rung

GENTLE = frozenset({Rung.WAIT, Rung.RESTART_AGENT, Rung.RESET_GPU, Rung.REBOOT, Rung.RMA, Rung.ESCALATE})
"""Rungs that leave the machine and its disks as they are. Only these may ever go without asking on real machines, and
of them only those that are `gentle` to the very machine."""


def gentle(rung: Rung, machine: Machine) -> bool:
    """Whether it leaves this machine and its disks as they are: a reboot that is a stop and a start doesn't."""
    return rung in GENTLE and not (rung is Rung.REBOOT and Capability.REBOOT_MOVES in machine.capabilities)


class Only(Model):
    """Faults that a rung can mend: any of the codes, or any of what a check would have to cover."""

    codes: tuple[Code, ...] = ()
    covers: tuple[Covers, ...] = ()

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.codes and not self.covers:
            raise ValueError("`only` names no fault; give `codes` or `covers`, or leave `only` out")
        return self


class LadderStep(Model):
    rung: Rung
    attempts: int = Field(default=1, ge=1, le=2)
    """In one incident. Over the week the machine's own count holds as well (`attempts.same_rung`)."""
    only: Only | None = None
    """Passed over for any other fault. A reserved machine is repaired before it is replaced all the same."""
    wait: Duration = 0.0
    """Before the rung."""
    deadline: Annotated[Duration, Field(gt=0)] = 1_800.0
    """For the remedy's proof; after it the rung has failed."""
    request_first: bool = False
    """`replace` only: the successor is asked for before the drain."""


Ladder = Annotated[tuple[LadderStep, ...], Field(min_length=1)]

LADDERS: Mapping[Name, tuple[LadderStep, ...]] = {
    # A reboot mends the driver, its system processor and services; other faults of a virtual machine are its host's.
    "cloud": (
        LadderStep(rung=Rung.REBOOT, only=Only(covers=(Covers.SERVICE,)), deadline=1_200),
        LadderStep(rung=Rung.REPLACE, deadline=3_600),
    ),
    "bare_metal": (
        LadderStep(rung=Rung.REBOOT, attempts=2, deadline=1_800),
        LadderStep(rung=Rung.REINSTALL, deadline=5_400),
        LadderStep(rung=Rung.RMA),
    ),
    "planned": (LadderStep(rung=Rung.WAIT, deadline=14_400),),
    "monitor": (LadderStep(rung=Rung.RESTART_AGENT, deadline=300),),
}
