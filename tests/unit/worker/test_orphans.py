"""Marks of ours without an open incident: lifted where its end says so, paged once otherwise, never lifted by guess."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.failures import Bounded
from activities.folding import Folding
from activities.ports import Mark
from activities.registry import Registry
from medevac.faults.classes import ADOPTED
from medevac.fleet.node import Node
from medevac.incident import End, Line, State, StepKey
from medevac.policy.loading import preset
from simulation.adapters import SimulatedChat
from simulation.hazards import Effect, Manner
from simulation.world import World
from tests.unit.worker.conftest import StubEngine, view_of
from worker.meanwhile import Meanwhile
from worker.orphans import OrphanMarks
from worker.stores import Stores
from worker.sweep import ALL_EVERY, Sweep
from worker.threads import Threads

NOW = datetime.now(UTC)
ENDED = NOW - timedelta(minutes=5)


@pytest.fixture
def sweep(stores: Stores, engine: StubEngine, registry: Registry, world: World) -> Iterator[Sweep]:
    threads = Threads(2)
    marks = OrphanMarks(registry, stores, engine, threads)
    meanwhile, folding = Meanwhile(registry, stores.ledger), Folding(stores.ledger, Bounded())
    yield Sweep(stores, engine, SimulatedChat(world), folding, meanwhile, threads, 30.0, lambda: NOW, marks=marks)
    threads.close()


@pytest.fixture
def marked(registry: Registry, node: Node) -> Node:
    mark = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")
    registry.cluster(node.cluster).mark(node.name, mark)
    return node


def ended(stores: Stores, node: Node, end: End | None, *lines: tuple[str, str, str], **changed: Any) -> None:
    """The incident of the mark, over. `lines`: kind, step, and the outcome or the text."""
    given = {"state": State.ENDED, "end": end, "machine_id": node.machine.id, "updated_at": ENDED} | changed
    stores.ledger.upsert_incident(view_of(node, **given))
    for n, (kind, step, said) in enumerate(lines):
        data: dict[str, Any] = {"step": step, "result": {"outcome": said}} if kind == "step" else {}
        key = StepKey(incident="inc-1", step=step, n=n + 1)
        stores.ledger.add_lines([Line(key=key, at=ENDED + timedelta(seconds=n), kind=kind, text=said, data=data)])


def mark_of(registry: Registry, node: Node) -> str | None:
    found = registry.cluster(node.cluster).node(node.name)
    assert found is not None
    return found.marked_by


MARKED = ("step", "mark", "done")
LIFTED = ("step", "lift", "done")


@pytest.mark.parametrize(
    ("end", "lines"),
    [
        (End.RETURNED, (MARKED,)),
        (End.WITHDRAWN, (MARKED, LIFTED)),
        (
            End.WITHDRAWN,
            (("decision", "decision", "act for xid/79"), ("decision", "decision", "withdraw for no fault")),
        ),
    ],
)
async def test_a_mark_that_its_incident_gave_up_is_lifted_at_the_first_look(
    sweep: Sweep, stores: Stores, registry: Registry, marked: Node, world: World, end: End, lines: Any
) -> None:
    ended(stores, marked, end, *lines)
    await sweep.once()
    assert mark_of(registry, marked) is None
    assert world.messages() == []
    assert any("lifted" in line.text for line in stores.ledger.lines("inc-1"))


@pytest.mark.parametrize(
    ("end", "lines"),
    [
        (End.WITHDRAWN, (MARKED, ("decision", "decision", "hand_over for xid/79"))),
        (End.WITHDRAWN, (MARKED, LIFTED, MARKED, ("decision", "decision", "hand_over for xid/79"))),
        (End.WITHDRAWN, (MARKED, ("step", "lift", "failed"))),
        (End.DISPOSED, (MARKED,)),
        (End.REPLACED, (MARKED,)),
        (None, (MARKED,)),
    ],
)
async def test_any_other_end_is_a_persons_and_is_told_once(
    sweep: Sweep, stores: Stores, registry: Registry, marked: Node, world: World, end: End | None, lines: Any
) -> None:
    ended(stores, marked, end, *lines)
    for _ in range(ALL_EVERY + 1):
        await sweep.once()
    assert mark_of(registry, marked) == "inc-1"
    [page] = world.messages()
    assert marked.name in page
    assert "medevac adopt" in page


async def test_a_mark_that_nobody_knows_gets_an_incident_and_a_page_once(
    sweep: Sweep, engine: StubEngine, registry: Registry, marked: Node, world: World
) -> None:
    for _ in range(ALL_EVERY + 1):
        await sweep.once()
    [(cluster, name, event)] = engine.reported
    assert (cluster, name, event.fault, event.actionable) == (marked.cluster, marked.name, ADOPTED, False)
    assert "inc-1" in event.summary
    [page] = world.messages()
    assert "no ledger here knows" in page
    assert mark_of(registry, marked) == "inc-1"


async def test_an_incident_that_runs_or_has_just_ended_is_not_disturbed(
    sweep: Sweep, stores: Stores, engine: StubEngine, registry: Registry, marked: Node, world: World
) -> None:
    stores.ledger.upsert_incident(view_of(marked, updated_at=NOW))
    engine.live.add(f"node/{marked.cluster}/{marked.name}")
    await sweep.once()
    ended(stores, marked, End.RETURNED, updated_at=NOW - timedelta(seconds=5), rev=1)
    sweep._count = 0
    await sweep.once()
    assert (mark_of(registry, marked), world.messages(), engine.reported) == ("inc-1", [], [])


async def test_another_machine_under_the_name_is_not_the_one_that_was_returned(
    sweep: Sweep, stores: Stores, registry: Registry, marked: Node, world: World
) -> None:
    ended(stores, marked, End.RETURNED, machine_id="vm-of-old")
    await sweep.once()
    assert mark_of(registry, marked) == "inc-1"
    assert len(world.messages()) == 1


async def test_where_the_pool_is_only_observed_nothing_is_written(
    sweep: Sweep, stores: Stores, registry: Registry, marked: Node, world: World
) -> None:
    text = preset("demo").replace("mode: auto", "mode: observe")
    stores.policies.activate(stores.policies.propose(text, "ada", NOW), "bob", NOW)
    ended(stores, marked, End.RETURNED)
    await sweep.once()
    assert mark_of(registry, marked) == "inc-1"
    assert len(world.messages()) == 1


async def test_a_node_that_was_checked_since_is_free_of_the_old_mark(
    sweep: Sweep, stores: Stores, registry: Registry, marked: Node, world: World
) -> None:
    """Adopted, confirmed by a person, checked and returned: what the dead incident left goes too."""
    ended(stores, marked, None, MARKED)
    await sweep.once()
    assert mark_of(registry, marked) == "inc-1"
    later = {"id": "inc-2", "end": End.RETURNED, "state": State.ENDED, "machine_id": marked.machine.id}
    stores.ledger.upsert_incident(view_of(marked, **later, opened_at=NOW, updated_at=NOW))
    sweep._count = 0
    await sweep.once()
    assert mark_of(registry, marked) is None


async def test_a_lift_that_is_refused_is_told(
    sweep: Sweep, stores: Stores, registry: Registry, marked: Node, world: World
) -> None:
    ended(stores, marked, End.RETURNED)
    world.script(Effect.LIFT, Manner.THROTTLE, node=marked.name)
    await sweep.once()
    assert mark_of(registry, marked) == "inc-1"
    [page] = world.messages()
    assert "was not" in page
    sweep._count = 0
    await sweep.once()
    assert mark_of(registry, marked) is None, "the next look does it"
