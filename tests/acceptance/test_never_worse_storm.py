"""A false critical alert on 400 of 2,048 nodes, all `auto`: few are disrupted, one question, no message storm."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from activities.marking import ALONE
from medevac.approvals.approval import ApprovalView
from medevac.fleet.node import Node
from medevac.incident import State
from simulation import senders
from simulation.hazards import Effect
from simulation.layout import TEST, Layout
from simulation.senders import Delivery
from tests.acceptance.never_worse import disrupted, made_policy, pools
from tests.acceptance.stack import PLAIN, Running, stack, utcnow

NODES = 2_048
FALSE = 400
AGREED = 120
"""Enough to see the limits hold."""
AT_ONCE = {
    "rack": {"count": 1, "percent": 0},
    "pool": {"count": 1, "percent": 1},
    "cluster": {"count": 1, "percent": 2},
}
MOST_ALONE = 10
"""Messages for 400 incidents, beside at most one a minute that tells many together."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]


@asynccontextmanager
async def fleet(path: Path) -> AsyncIterator[Running]:
    policy = made_policy(
        path,
        "demo",
        pools=pools("auto", "sim-a"),
        auto=["wait", "reboot", "reinstall", "replace", "terminate", "rma"],
        approval_expires="4h",
        limits={"at_once": AT_ONCE, "lease_ttl_s": 300},
    )
    layout = Layout(nodes=NODES, spares=0, durations=TEST)
    async with stack(path, layout=layout, policy=policy, timing="production", worker=PLAIN) as up:
        up.http.timeout = 120
        yield up


def one_payload(nodes: list[Node]) -> Delivery:
    """What Alertmanager sends when one rule goes wrong: a single webhook with an alert for each node."""
    at = utcnow()
    alerts = [json.loads(senders.alertmanager_xid(node, 79, at).body)["alerts"][0] for node in nodes]
    return senders.alertmanager(alerts)


def accused(up: Running, count: int) -> list[Node]:
    """Spread over all racks and both pools."""
    return up.world.nodes("sim-a")[:: NODES // count][:count]


def together(up: Running) -> list[str]:
    return [text for text in up.world.messages() if "Told together" in text]


async def the_question(up: Running, count: int) -> ApprovalView:
    """Once everyone who has to wait stands in it."""

    def everyone_waits() -> ApprovalView | None:
        pending = up.stores.ledger.approvals(pending_only=True)
        waiting = [view for view in up.incidents() if view.state is State.WAITING_APPROVAL]
        going = [view for view in up.incidents() if view.state is not State.WAITING_APPROVAL]
        listed = len(pending[0].waiters) if pending else 0
        return pending[0] if listed == len(waiting) and len(waiting) + len(going) == count and len(going) <= 5 else None

    view: ApprovalView = await up.until(everyone_waits, "all wait for one question", 1_200)
    return view


async def says(up: Running, count: int, who: str, verdict: str) -> ApprovalView:
    """To the list as it then is: one more may have joined since it was shown."""

    async def said() -> ApprovalView | None:
        view = await the_question(up, count)
        answer = await up.vote(who, view.id, view.shown_hash, verdict)
        anew = answer.status_code == 503 or (answer.status_code == 409 and "list changed" in answer.text)
        assert anew or answer.status_code == 200, answer.text
        return None if anew else view

    voted: ApprovalView = await up.until(said, f"{who} says {verdict}", 1_200)
    return voted


def marks_within_budget(up: Running, before: list[Node]) -> None:
    pool_of = {node.name: node.pool for node in before}
    sizes = Counter(pool_of.values())
    # A mark that says anew what is wrong by now is no further node.
    nodes = {e.node for e in up.world.effects(verb=Effect.MARK) if e.applied}
    marked = Counter(pool_of[node] for node in nodes)
    assert marked, "critical nodes are marked as far as the budget goes"
    # A worker whose guard doesn't answer, as on a machine that is busy with this very storm, may mark a few without it.
    logs = list(up.path.glob("worker-*.log"))
    alone = sum(log.read_text(errors="replace").count("marking without it") for log in logs)
    assert alone <= ALONE * len(logs)
    for pool, count in marked.items():
        assert count <= max(3, sizes[pool] * 3 // 100) + alone, f"{count} marks in {pool} of {sizes[pool]} nodes"


async def test_rejected_it_ends_with_few_disrupted_and_few_messages(tmp_path: Path) -> None:
    async with fleet(tmp_path) as up:
        began, before = utcnow(), up.world.nodes("sim-a")
        parts = await up.send(one_payload(accused(up, FALSE)))
        assert Counter(part["outcome"] for part in parts) == {"accepted": FALSE}
        view = await the_question(up, FALSE)

        assert len(up.stores.ledger.approvals(pending_only=False)) == 1
        assert view.fleet_wide
        assert view.need.threshold == 2
        assert view.need.one_of == "capacity-owners"
        assert len(disrupted(up.world)) <= 5
        marks_within_budget(up, before)

        view = await says(up, FALSE, "grace", "reject")
        waiters = {waiter.incident for waiter in view.waiters}

        def a_person_has_them() -> bool:
            return all(v.state is State.HANDED_OVER for v in up.incidents() if v.id in waiters)

        await up.until(a_person_has_them, "all who waited are handed over", 900)
        assert len(disrupted(up.world)) <= 5
        marks_within_budget(up, before)
        assert len(up.stores.ledger.approvals(pending_only=False)) == 1, "nobody is asked again"
        await up.until(lambda: together(up), "the folded ones are told together")
        alone = [text for text in up.world.messages() if text not in together(up)]
        assert len(alone) <= MOST_ALONE, "\n".join(text[:150] for text in alone)
        minutes = (utcnow() - began).total_seconds() / 60
        assert len(together(up)) <= 1 + minutes


async def test_approved_it_goes_on_within_the_limits_at_once(tmp_path: Path) -> None:
    async with fleet(tmp_path) as up:
        await up.send(one_payload(accused(up, AGREED)))
        for who in ("grace", "ada"):
            await says(up, AGREED, who, "approve")

        sizes = Counter(node.pool for node in up.world.nodes("sim-a"))
        most: Counter[str] = Counter()

        def look() -> bool:
            held: dict[str, dict[str, set[str]]] = {kind: {} for kind in AT_ONCE}
            for lease in up.stores.guard.leases():
                for kind, units in held.items():
                    # Nodes of one gang are one: their job is down anyway.
                    units.setdefault(lease.domains[kind], set()).add(lease.unit)
            for kind, units in held.items():
                for key, count in ((key, len(found)) for key, found in units.items()):
                    most[key] = max(most[key], count)
                    limit = {"rack": 1, "cluster": NODES * 2 // 100}.get(kind) or sizes[key.rsplit("/", 1)[1]] // 100
                    assert count <= limit, f"{count} leases at once in {key}, {limit} are allowed"
            return len(up.world.effects(verb=Effect.REBOOT)) + len(up.world.effects(verb=Effect.REQUEST)) >= 20

        await up.until(look, "20 machines were repaired", 900)
        assert any(count > 3 for count in most.values()), "the yes lets more go at once than before it"
        assert len(up.stores.ledger.approvals(pending_only=False)) == 1
