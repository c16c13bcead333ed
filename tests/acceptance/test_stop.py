"""Stop: later than 2 s after an answered freeze no destructive call to the far side is begun, however many drains run.

The far side is the simulated world, which logs each call, also those that it refuses, with the moment in which the
worker began it: what a busy world lets wait is no call that the freeze let through.
`STOP_CYCLES` and `STOP_INCIDENTS` make it as large as one likes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
import pytest_asyncio

from simulation.hazards import Effect, Hazard, Manner
from simulation.layout import TEST, Layout
from tests.acceptance.never_worse import DISRUPTIVE
from tests.acceptance.stack import POLICY, Running, stack, utcnow

CYCLES = int(os.environ.get("STOP_CYCLES", "5"))
INCIDENTS = int(os.environ.get("STOP_INCIDENTS", "20"))
WITHIN_S = 2.0
FROZEN_S = 1.0
"""Watched beyond those two seconds, in each cycle."""
STOPPED = DISRUPTIVE | {Effect.TICKET}
SLOW = "xid/119"
RMA = "xid/64"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900 + 60 * CYCLES + 10 * INCIDENTS)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """Drains that last: nearly every eviction is throttled, so that all of them keep calling."""
    path = tmp_path_factory.mktemp("stop")
    policy = path / "policy.yaml"
    text = POLICY.read_text().replace(
        "codes: [xid/119]}, do: repair, ladder: rebooted, drain: now",
        "codes: [xid/119]}, do: repair, ladder: rebooted, drain: soon",
    )
    text = text.replace("soon: 120s", "soon: 15m")
    text = text.replace("count: 50,", f"count: {2 * INCIDENTS + 20},")
    policy.write_text(text.replace("marks: {count: 200,", f"marks: {{count: {INCIDENTS + CYCLES + 200},"))
    layout = Layout(
        nodes=16 * (INCIDENTS + CYCLES),
        serve_share=0.0,
        spares=0,
        busy=0.7,
        durations=TEST.model_copy(update={"check": 4.0}),
        hazards=(Hazard(verb=Effect.EVICT, manner=Manner.THROTTLE, probability=0.99, retry_after_s=0.3),),
    )
    async with stack(path / "stack", policy=policy, layout=layout, workers=2) as running, running.everyone_agrees():
        yield running


async def order(up: Running, who: str, what: str, **body: object) -> datetime:
    """When it was answered."""
    answer = await up.order(f"/v1/fences/{what}", who, scope="all", reason="test", **body)
    assert answer.status_code == 200, answer.text
    return utcnow()


def calls(up: Running, verbs: frozenset[Effect], since: datetime) -> list[str]:
    """Those that were begun since then."""
    return [
        f"{one.verb} {one.node} {(one.begun_at - since).total_seconds():.2f} s after"
        for one in up.world.effects()
        if one.verb in verbs and one.begun_at > since
    ]


async def begun(up: Running, count: int) -> set[str]:
    nodes = [up.pick() for _ in range(count)]
    for node in nodes:
        up.world.inject(node.name, SLOW)
    await asyncio.gather(*(up.report(node, SLOW) for node in nodes))
    names = {node.name for node in nodes}

    def evicting() -> bool:
        """Most of them: the others wait for people, who are asked about so many."""
        return 4 * len(names & {one.node for one in up.world.effects(verb=Effect.EVICT)}) >= 3 * count

    await up.until(evicting, f"most of {count} drains are under way", 300 + 10 * count)
    return names


async def test_nothing_destructive_begins_later_than_two_seconds_after_a_freeze(up: Running) -> None:
    await begun(up, INCIDENTS)
    for cycle in range(CYCLES):
        since = utcnow()
        await up.until(lambda since=since: calls(up, STOPPED, since), f"drains are under way in cycle {cycle}")
        marks = cycle % 2 == 1
        answered = await order(up, "kim", "freeze", marks=marks)
        fresh = up.pick(busy=True)
        up.world.inject(fresh.name, SLOW)
        await up.until(lambda since=answered: (utcnow() - since).total_seconds() > WITHIN_S / 2, "it is frozen")
        await up.report(fresh, SLOW)
        await up.until(
            lambda since=answered: (utcnow() - since).total_seconds() > WITHIN_S + FROZEN_S, "frozen long enough"
        )
        held = STOPPED | ({Effect.MARK} if marks else frozenset())
        late = [
            f"{one.verb} {one.node} {(one.begun_at - answered).total_seconds():.2f} s after"
            for one in up.world.effects()
            if one.verb in held and (one.begun_at - answered).total_seconds() > WITHIN_S
        ]
        assert not late, f"cycle {cycle}: {late}"
        if not marks:
            await up.until(
                lambda name=fresh.name: up.world.effects(node=name, verb=Effect.MARK), "marks go on without --marks"
            )
        for who in ("ada", "grace"):
            thawed = await order(up, who, "thaw")
        await up.until(lambda since=thawed: calls(up, STOPPED, since), f"after thaw {cycle} drains go on")


async def test_no_ticket_is_opened_while_frozen_and_each_is_after_the_thaw(up: Running) -> None:
    answered = await order(up, "kim", "freeze")
    await up.until(lambda: (utcnow() - answered).total_seconds() > WITHIN_S, "it is frozen")
    sick = [up.pick(busy=True) for _ in range(3)]
    for node in sick:
        up.world.inject(node.name, RMA)
        await up.report(node, RMA)

    def held() -> bool:
        waiting = [case for case in up.stores.cases.all() if "frozen: all by kim" in case.why]
        return {subject.node for case in waiting for subject in case.subjects} >= {node.name for node in sick}

    await up.until(held, "their cases wait, and say for what")
    assert not calls(up, frozenset({Effect.TICKET}), answered)
    for who in ("ada", "grace"):
        await order(up, who, "thaw")
    await up.until(lambda: len(up.world.effects(verb=Effect.TICKET)) == len(sick), "each ticket is opened")
