"""Living with another remediator, through the whole stack: its repair is followed and checked, or it is first ended."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities.ports import Verb
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator, Switch
from medevac.incident import End, IncidentView, State
from simulation.hazards import Effect
from simulation.layout import IRONWORKS, TEST, Layout
from tests.acceptance.never_worse import made_policy, pools
from tests.acceptance.stack import Running, stack
from tests.acceptance.test_never_worse_nodes import POLICY

YIELDS, OWNS, UNSAID = CLUSTERS = ("sim-a", "sim-b", "sim-c")
SAYS = {YIELDS: "yield", OWNS: "own", UNSAID: None}
OTHER = Remediator(
    name="NVSentinel", switch=Switch.ON, seen="deployment nvsentinel/fault-quarantine",
    off="kubectl -n nvsentinel scale deployment fault-quarantine --replicas=0",
)  # fmt: skip
FAULT = "xid/119"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    path = tmp_path_factory.mktemp("others")
    given = {
        f"{cluster}-{name}": entry | ({"coexist": SAYS[cluster]} if SAYS[cluster] else {})
        for cluster in CLUSTERS
        for name, entry in pools("auto", cluster).items()
    }
    policy = made_policy(path, **(POLICY | {"pools": given}))
    layout = Layout(clusters=CLUSTERS, nodes=16, serve_share=0.0, spares=0, durations=TEST)
    async with stack(path / "stack", policy=policy, layout=layout) as running:
        for cluster in CLUSTERS:
            running.world.remediators(OTHER, cluster=cluster)
        yield running


def pick(up: Running, cluster: str) -> Node:
    return next(
        node for node in up.world.nodes(cluster)
        if node.gpus and node.machine.provider == IRONWORKS and not up.incidents(node.name)
    )  # fmt: skip


async def observed(up: Running, node: Node) -> IncidentView:
    """Sick, told of, and waiting."""
    up.world.inject(node.name, FAULT, cluster=node.cluster)
    await up.report(node, FAULT)

    def waits() -> IncidentView | None:
        view = up.incident(node.name)
        return view if view and view.state is State.OBSERVED else None

    view: IncidentView = await up.until(waits, f"{node.name} is observed")
    return view


def ours(up: Running, node: Node) -> set[Effect]:
    """What medevac did to the node or its work."""
    return {one.verb for one in up.world.effects(node=node.name) if not one.tag.startswith("person:")}


def told(up: Running, view: IncidentView) -> str:
    return "\n".join(line.text for line in up.stores.ledger.lines(view.id))


async def test_what_another_has_in_repair_is_followed_and_then_checked(up: Running) -> None:
    node = pick(up, YIELDS)
    up.world.cordon(node.name, OTHER.name, cluster=YIELDS)
    view = await observed(up, node)
    up.world.by_hand(Verb.REBOOT, node.name, OTHER.name, cluster=YIELDS)

    def back() -> bool:
        found = up.world.node(node.name, YIELDS)
        return bool(found and found.ready and found.machine.boot_id != node.machine.boot_id)

    await up.until(back, "the other has booted it")
    assert ours(up, node) == set(), "nothing is done while the other has it, no check either"
    up.world.uncordon(node.name, cluster=YIELDS)
    await up.until(lambda: (v := up.incident(node.name)) and v.end, "the check has decided")
    ended = up.incident(node.name)
    assert ended is not None
    assert (ended.id, ended.end) == (view.id, End.RETURNED)
    assert ours(up, node) == {Effect.CHECK}
    assert OTHER.name in told(up, view)


async def test_a_repair_that_did_not_help_goes_to_a_person(up: Running) -> None:
    node = pick(up, YIELDS)
    up.world.cordon(node.name, OTHER.name, cluster=YIELDS)
    up.world.inject(node.name, "xid/79", cure=(Effect.REINSTALL,), cluster=YIELDS)
    await observed(up, node)
    up.world.by_hand(Verb.REBOOT, node.name, OTHER.name, cluster=YIELDS)
    await up.until(
        lambda: (n := up.world.node(node.name, YIELDS)) and n.ready and n.machine.boot_id != node.machine.boot_id,
        "the other has booted it",
    )
    await up.report(node, "xid/79")
    up.world.uncordon(node.name, cluster=YIELDS)
    await up.until(lambda: (v := up.incident(node.name)) and v.state is State.HANDED_OVER, "a person has it")
    assert ours(up, node) <= {Effect.CHECK, Effect.MARK}


async def test_own_waits_for_the_others_switch_and_goes_on_once_it_is_off(up: Running) -> None:
    node = pick(up, OWNS)
    view = await observed(up, node)
    assert ours(up, node) == set()
    assert OTHER.off in told(up, view)
    up.world.remediators(cluster=OWNS)
    await up.until(lambda: (v := up.incident(node.name)) and v.end, "medevac has repaired it")
    ended = up.incident(node.name)
    assert ended is not None
    assert (ended.id, ended.end) == (view.id, End.RETURNED)
    assert Effect.REBOOT in ours(up, node)


async def test_where_the_policy_is_silent_it_only_observes(up: Running) -> None:
    node = pick(up, UNSAID)
    view = await observed(up, node)
    assert "coexist" in told(up, view)
    assert ours(up, node) == set()
