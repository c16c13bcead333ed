"""Effect × kill point: every cell in which a worker is killed, and the incidents that reach them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from medevac.incident import End, State
from simulation.hazards import Effect
from simulation.layout import IRONWORKS, SKYLINE

BEFORE, AFTER, BEGIN, END = "before", "after", "begin", "end"
"""`before` the physical call · `after` it, and nobody was told, nor is its line written · `begin` of the step ·
`end`: its line is written, and the workflow was not told."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One way through the house, by the rule of the acceptance policy that its fault meets."""

    fault: str
    provider: str
    cure: tuple[Effect, ...]
    verbs: tuple[Effect, ...]
    """Each takes effect exactly once."""
    ends: End | State


AGENT = Flow("dcgm/DCGM_FR_NVML_API", SKYLINE, (Effect.RESTART_AGENT,), (Effect.RESTART_AGENT,), End.RETURNED)
RESET = Flow("xid/46", SKYLINE, (Effect.RESET_GPU,), (Effect.RESET_GPU,), End.RETURNED)
REBOOTED = Flow("xid/119", IRONWORKS, (Effect.REBOOT,), (Effect.REBOOT,), End.RETURNED)
ASKED = Flow("xid/79", IRONWORKS, (Effect.REBOOT,), (Effect.REBOOT,), End.RETURNED)
REINSTALLED = Flow("xid/74", IRONWORKS, (Effect.REINSTALL,), (Effect.REINSTALL,), End.RETURNED)
REPLACED = Flow("xid/95", SKYLINE, (), (Effect.REQUEST, Effect.TERMINATE), End.REPLACED)
DISPOSED = Flow("xid/48", SKYLINE, (), (Effect.TERMINATE,), End.DISPOSED)
NOTICED = Flow("xid/109", IRONWORKS, (Effect.REBOOT,), (Effect.REBOOT,), End.RETURNED)
"""Its drain waits for a checkpoint; one that doesn't wait gives no notice."""
TICKETED = Flow("xid/64", IRONWORKS, (), (), State.HANDED_OVER)


@dataclass(frozen=True, slots=True)
class Cell:
    effect: str
    point: str

    def on(self, node: str | None) -> dict[str, str]:
        cell = {"effect": self.effect, "point": self.point}
        return cell if node is None else {**cell, "node": node}

    def __str__(self) -> str:
        return f"{self.effect} {self.point}"


@dataclass(frozen=True, slots=True)
class Case:
    """An incident with the cells that its own steps reach, and those that any incident's may reach from now on."""

    flow: Flow
    cells: tuple[Cell, ...]
    anywhere: tuple[Cell, ...] = ()
    """Steps whose request doesn't name a node."""


def cells(effects: Sequence[str], *points: str) -> tuple[Cell, ...]:
    return tuple(Cell(effect, point) for effect in effects for point in points)


VERBS = (
    (AGENT, Effect.RESTART_AGENT),
    (RESET, Effect.RESET_GPU),
    (REBOOTED, Effect.REBOOT),
    (REINSTALLED, Effect.REINSTALL),
    (REPLACED, Effect.REQUEST),
    (DISPOSED, Effect.TERMINATE),
)
ON_A_NODE = (
    *cells(("mark", "lift"), BEFORE, AFTER, BEGIN, END),
    *cells(("evict", "check"), BEFORE, AFTER),
    *cells(("plan", "acquire", "evacuate", "prove", "verify", "record"), BEGIN, END),
)
TICKETS = cells(("ticket",), END, AFTER, BEGIN, BEFORE)
"""One an incident, and the slowest last: a ticket that may have been sent is searched for until its time is nearly
over, and then no other kill should come."""
QUESTIONS = cells(("ask",), BEGIN, END)
ELSEWHERE = (*cells(("chat",), BEFORE, AFTER), *cells(("notify", "release", "case_step"), BEGIN, END))


def cases() -> list[Case]:
    """Each verb in four incidents (`act` is its step), the other cells spread over those that drain and verify."""
    found = [
        Case(flow, (cell,))
        for flow, verb in VERBS
        for cell in (*cells((verb.value,), BEFORE, AFTER), *cells(("act",), BEGIN, END))
    ]
    found += [Case(NOTICED, (cell,)) for cell in cells(("notice",), BEFORE, AFTER)]
    found += [Case(ASKED, ()), Case(ASKED, ()), *(Case(TICKETED, ()) for _ in TICKETS)]
    # By turns, so that no kind of incident is alone.
    found = [found[i] for start in range(4) for i in range(start, len(found), 4)]
    drains = [i for i, case in enumerate(found) if case.flow in (RESET, REBOOTED, REINSTALLED, ASKED)]
    for i, cell in zip(cycle(drains), ON_A_NODE, strict=False):
        found[i] = Case(found[i].flow, (*found[i].cells, cell))
    return list(_with_nameless(found))


def _with_nameless(found: Sequence[Case]) -> Iterator[Case]:
    elsewhere, tickets, questions = iter(ELSEWHERE), iter(TICKETS), iter(QUESTIONS)
    for i, case in enumerate(found):
        anywhere: tuple[Cell | None, ...] = (next(elsewhere, None),) if i % 4 == 0 else ()
        if case.flow is TICKETED:
            anywhere += (next(tickets),)
        if case.flow is ASKED:
            anywhere += (next(questions),)
        yield Case(case.flow, case.cells, tuple(cell for cell in anywhere if cell is not None))
