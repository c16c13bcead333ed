"""Machines that are asked for and never come: nothing hangs for them, and nobody goes on paying for them."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from activities import signatures as sig
from activities import steps
from activities.ports import Verb
from activities.precondition import Look
from activities.proof import World as Reading
from activities.proof import missing
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, State
from simulation.adapters import SimulatedCluster, SimulatedProvider
from simulation.hazards import Behaviour, Effect
from simulation.layout import PRODUCTION, PROVIDERS, SKYLINE, TEST, Layout
from simulation.world import World
from tests.acceptance.matrix import AFTER, BEFORE, BEGIN, END, cells
from tests.acceptance.stack import PLAIN, POLICY, Running, stack

NEVER = Behaviour(successor_never_joins=True)
REPLACEMENTS, LOST = 5_000, 20
"""0.4 %, as a cloud's own published rate."""
DEADLINE, LOOK = timedelta(hours=1), timedelta(minutes=6)


CHOICE = Layout(
    nodes=48, serve_share=0.0, spares=0, busy=0.3, durations=TEST,
    providers=PROVIDERS | {"northwind": PROVIDERS[SKYLINE]},
)  # fmt: skip


class Unfrozen:
    """Nothing is frozen in this world."""

    def fence(self, pre: sig.Target, node: Node) -> None:
        pass

    @contextmanager
    def again(self, pre: sig.Target, *nodes: Node) -> Iterator[None]:
        yield


class Fleet:
    """Replaces machines of a world whose clock is moved by hand, with the proof and the release of the activities."""

    def __init__(self, path: Path) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)
        layout = Layout(nodes=96, spares=0, busy=0.0, durations=PRODUCTION)
        self.world = World.create(path / "world.sqlite", layout, 7, lambda: self.now)
        self.cluster = SimulatedCluster(self.world, layout.clusters[0])
        self.provider = SimulatedProvider(self.world, SKYLINE)
        self.nodes = [one for one in self.world.nodes() if one.machine.provider == SKYLINE]

    def replace(self, node: Node, tag: str) -> Node | None:
        """The successor, or None where the deadline was over and what was asked for was released."""
        was = self.provider.state(node, tag)
        for verb in (Verb.REQUEST, Verb.TERMINATE):
            self.provider.do(verb, node, tag)
        until = self.now + DEADLINE
        while self.now < until:
            self.now += LOOK
            state = steps.joined(self.cluster, self.provider.state(node, tag))
            read = Reading(None, state)
            if not any(missing(verb, node.identity, was, read) for verb in (Verb.REQUEST, Verb.TERMINATE)):
                return self.cluster.node(state.successor or "")
        target = sig.Target(
            incident=tag, cluster=node.cluster, node=node.name, provider=SKYLINE, identity=node.identity
        )
        released = steps.release(self.provider, self.cluster, cast(Look, Unfrozen()), target, node)
        assert released.ended, released.said
        return None


@pytest.mark.timeout(1_500)
def test_of_5000_replacements_that_are_asked_for_every_one_that_never_boots_is_released(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    lost = set(random.Random(7).sample(range(REPLACEMENTS), LOST))
    standing, came = list(fleet.nodes), 0
    for n in range(REPLACEMENTS):
        old = standing.pop(0)
        if n in lost:
            fleet.world.inject(old.name, "xid/95", cure=(), behaviour=NEVER)
        new = fleet.replace(old, f"inc-{n}")
        assert (new is None) == (n in lost)
        if new is not None:
            came += 1
            standing.append(new)
    assert came == REPLACEMENTS - LOST
    _nothing_leaks(fleet.world, lost=LOST)
    released = fleet.world.effects(verb=Effect.RELEASE)
    assert {effect.tag for effect in released} == {f"inc-{n}" for n in lost}


REPLACED = int(os.environ.get("MEDEVAC_REPLACED", "24"))
"""On a real server; `make test-providers` has fifty."""


@pytest.mark.slow
@pytest.mark.timeout(1_500)
async def test_two_of_many_on_a_real_server_are_released_and_handed_over(tmp_path: Path) -> None:
    layout = Layout(nodes=104, serve_share=0.0, spares=0, busy=0.3, durations=TEST)
    async with stack(tmp_path / "stack", layout=layout, policy=_given_up_after(tmp_path, 60), worker=PLAIN) as up:
        nodes = [up.pick(SKYLINE, busy=False) for _ in range(REPLACED)]
        for n, node in enumerate(nodes):
            up.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER if n in (5, REPLACED - 3) else None)
            await up.report(node, "xid/95")
        async with up.everyone_agrees():
            over = lambda: len(seen := _incidents(up)) >= len(nodes) and all(map(_settled, seen))  # noqa: E731
            await up.until(over, "no incident hangs", 1_000)
        ended = _incidents(up)
        assert len(ended) == REPLACED
        assert Counter(view.end or view.state for view in ended) == {End.REPLACED: REPLACED - 2, State.HANDED_OVER: 2}
        handed = {view.id for view in ended if view.state is State.HANDED_OVER}
        _nothing_leaks(up.world, lost=2)
        released = up.world.effects(verb=Effect.RELEASE)
        assert {effect.tag for effect in released} == handed
        for incident in handed:
            assert any("; released " in line.text for line in up.stores.ledger.lines(incident))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_one_that_never_boots_is_released_and_asked_for_elsewhere(tmp_path: Path) -> None:
    async with stack(tmp_path / "stack", layout=CHOICE, policy=_listing(tmp_path), worker=PLAIN) as up:
        node = up.pick(SKYLINE, busy=False)
        up.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
        await up.report(node, "xid/95")
        over = lambda: (seen := up.incident(node.name)) and seen.end  # noqa: E731
        assert await up.until(over, "the incident has ended") is End.REPLACED
        incident = up.incidents(node.name)[0].id
        bills = [bill for bill in up.world.billing() if bill.requested_by == incident]
        running = [bill for bill in bills if bill.until is None]
        assert [(bill.provider, bill.node is not None) for bill in running] == [("northwind", True)]
        lost = next(bill for bill in bills if bill.until is not None)
        assert lost.provider == SKYLINE
        _nothing_leaks(up.world, lost=1)
        old = next(bill for bill in up.world.billing() if bill.machine_id == node.machine.id)
        assert old.until is not None, "the old machine was ended"
        effects = [effect for effect in up.world.effects() if effect.tag == incident and effect.applied]
        calls = [effect for effect in effects if effect.verb in (Effect.REQUEST, Effect.RELEASE, Effect.TERMINATE)]
        assert [effect.verb for effect in calls] == [Effect.REQUEST, Effect.RELEASE, Effect.REQUEST, Effect.TERMINATE]
        assert not up.verdict().problems
        lines = [line.text for line in up.stores.ledger.lines(incident)]
        assert any("nothing came from skyline" in line and "asked at northwind" in line for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_person_who_stops_while_one_is_awaited_finds_nothing_running(tmp_path: Path) -> None:
    """Though workers die around what takes it back."""
    async with stack(tmp_path / "stack", layout=CHOICE, policy=_listing(tmp_path)) as up:
        around = (*cells(("take_back",), BEGIN, END), *cells(("release",), BEFORE, AFTER))
        up.plan_kills([cell.on(None) for cell in around])
        node = up.pick(SKYLINE, busy=False)
        up.world.inject(node.name, "xid/95", cure=(), behaviour=NEVER)
        await up.report(node, "xid/95")
        await up.until(lambda: (v := up.incident(node.name)) and v.state is State.PROVING, "it is awaited")
        said = await up.order(f"/v1/incidents/{up.incidents(node.name)[0].id}/abort", reason="we look ourselves")
        assert "asked for is ended unless it has joined" in said.text, said.text
        await up.until(lambda: (v := up.incident(node.name)) and v.state is State.HANDED_OVER, "a person has it")
        assert up.reached() == {0, 1, 2, 3}
        _nothing_leaks(up.world, lost=1)
        assert not up.world.effects(verb=Effect.TERMINATE), "the old machine stands"
        lines = up.stores.ledger.lines(up.incidents(node.name)[0].id)
        # It was released by one that died before it could say so.
        assert any(line.text.startswith("take_back: done: nothing that was asked for") for line in lines)


def _given_up_after(path: Path, deadline_s: int, text: str = "") -> Path:
    """A policy that waits so long for a successor: more than one that comes takes, and no more than a test can wait."""
    policy = path / "policy.yaml"
    text = text or POLICY.read_text()
    assert "rung: replace, attempts: 2, deadline: 120s" in text
    policy.write_text(text.replace("rung: replace, attempts: 2, deadline: 120s",
                                   f"rung: replace, attempts: 2, deadline: {deadline_s}s"))  # fmt: skip
    return policy


def _listing(path: Path) -> Path:
    """A policy whose pools may be given machines of another provider."""
    listed = "mode: auto, replacements: [{provider: northwind, region: northwind-1}]}"
    policy = _given_up_after(path, 40, POLICY.read_text().replace("mode: auto}", listed))
    policy.write_text(policy.read_text().replace("replace, attempts: 2", "replace, attempts: 1"))
    return policy


def _incidents(up: Running) -> list[IncidentView]:
    return up.stores.ledger.incidents(open_only=False, limit=1_000)


def _settled(view: IncidentView) -> bool:
    return view.end is not None or view.state is State.HANDED_OVER


def _nothing_leaks(world: World, lost: int) -> None:
    """By the world's own books: each that never came was released once, and costs nothing any more."""
    with world.read() as m:
        waiting = m.all("SELECT id FROM machines WHERE state = 'requested'")
        ended = {row["id"] for row in m.all("SELECT id FROM machines WHERE node IS NULL AND requested_by IS NOT NULL")}
    released = [effect for effect in world.effects(verb=Effect.RELEASE) if effect.applied]
    assert not waiting
    assert Counter(effect.target for effect in released) == dict.fromkeys(ended, 1)
    assert len(released) == lost
