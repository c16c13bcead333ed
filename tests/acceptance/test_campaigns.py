"""A campaign on the real stack: one yes, a few first, every node through its own incident, stopped at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from medevac.campaigns.progress import CampaignState, NodeState
from simulation.layout import TEST, Layout
from tests.acceptance.stack import PLAIN, Running, stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_500)]

NODES = 64
CARE = {"stages": [2, 5], "soak": "2s", "look": "0.5s", "at_once": 16, "window": "20m", "deadline": "10m"}
"""Window and deadline are longer than any run: neither is waited for, but where a test says so."""


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Running]:
    async with stack(tmp_path, layout=Layout(nodes=NODES, spares=0, durations=TEST), worker=PLAIN) as running:
        yield running


def wish(**given: Any) -> dict[str, Any]:
    base = {"id": "driver-580", "act": "reboot", "reason": "driver 580", "selector": {"pools": ["train"]}}
    return base | {"drain": "now", "care": CARE} | given


async def ask(up: Running, path: str, body: dict[str, Any], who: str = "kim", status: int = 200) -> Any:
    answer = await up.order(f"/v1/campaigns{path}", who, **body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def start(up: Running, who: str = "kim", **given: Any) -> list[str]:
    """Asked for by somebody who then may not vote; the names of the listed nodes."""
    planned = await ask(up, "/plan", wish(**given), who)
    await ask(up, "", {**wish(**given), "plan_hash": planned["plan_hash"]}, who, 202)
    return [member["node"] for member in planned["plan"]["members"]]


def state(up: Running, campaign: str = "driver-580") -> CampaignState:
    row = up.stores.campaigns.get(campaign)
    assert row is not None
    return row.state


def counts(up: Running, campaign: str = "driver-580") -> Counter[NodeState]:
    return Counter(one.state for one in up.stores.campaigns.nodes(campaign))


def reboots(up: Running) -> Counter[str]:
    return Counter(effect.node for effect in up.world.effects() if effect.verb == "reboot" and effect.applied)


async def test_every_listed_node_once_after_one_yes(up: Running) -> None:
    broken = up.pick(pool="train")
    await up.report(broken, "xid/64")  # Handed over to its maker: a node in an incident is not the campaign's.
    await up.until(lambda: (v := up.incident(broken.name)) and v.state == "handed_over", "it is handed over")
    # Of the one call that is never made, nothing but the end of its time can tell.
    listed = await start(up, care=CARE | {"deadline": "90s"})
    assert listed
    assert broken.name not in listed
    assert state(up) is CampaignState.ASKED
    assert not reboots(up), "nothing before people's yes"
    # One dies with the word in the ledger that it calls, and the call not made: nobody can know that.
    up.plan_kills([{"effect": "reboot", "point": "before"}])
    async with up.everyone_agrees():
        for begun in (1, 12, 24):
            await up.until(lambda n=begun: sum(reboots(up).values()) >= n, f"{begun} nodes were rebooted", 600)
            await up.kill_workers()
            await up.start_workers()
        assert up.reached() == {0}
        await up.until(lambda: state(up) is CampaignState.ENDED, "the campaign has ended", 900)
    assert counts(up) == {NodeState.DONE: len(listed)}
    assert reboots(up) == dict.fromkeys(listed, 1)
    assert up.verdict().well, up.verdict()


async def test_faults_after_it_halt_it_and_what_has_not_begun_is_taken_back(up: Running) -> None:
    listed = await start(up, care=CARE | {"stages": [5], "soak": "20m"})
    async with up.everyone_agrees():
        canary = await up.until(
            lambda: (
                (done := [n.node for n in up.stores.campaigns.nodes("driver-580") if n.state is NodeState.DONE])
                and counts(up)[NodeState.SENT] == 0
                and done
            ),
            "the canary is through",
        )
        assert len(canary) <= 0.05 * len(listed)
        for node in up.world.nodes("sim-a"):
            if node.name in canary:
                await up.report(node, "xid/64")
        await up.until(lambda: state(up) is CampaignState.HALTED, "two bad nodes of the canary halt it")
    row = up.stores.campaigns.get("driver-580")
    assert row is not None
    assert "had a fault" in row.why
    assert set(reboots(up)) == set(canary)
    for who, status in (("kim", 403), ("ada", 200)):
        await ask(up, "/driver-580/resume", {"reason": "another fault"}, who, status)


async def test_one_person_stops_it_in_the_middle(up: Running) -> None:
    await start(up, care=CARE | {"stages": [5], "soak": "0s", "at_once": 4})
    async with up.everyone_agrees():
        await up.until(lambda: sum(reboots(up).values()) >= 6, "it is under way")
        await ask(up, "/driver-580/halt", {"reason": "the image is wrong"}, "kim")
        await up.until(lambda: counts(up)[NodeState.SENT] == 0, "nothing is in hand any more")
    found = counts(up)
    assert found[NodeState.WAITING] > 0
    assert found[NodeState.DONE] == len(reboots(up))
    assert max(reboots(up).values()) == 1


async def order(up: Running, path: str, body: dict[str, Any]) -> None:
    answer = await up.order(path, "kim", **body)
    assert answer.status_code == 200, answer.text


async def test_a_node_that_a_person_stops_is_left_out_and_the_others_go_on(up: Running) -> None:
    """The canary itself: its place goes to another, and the campaign ends without calling that the whole list."""
    names = [node.name for node in up.world.nodes("sim-a") if node.pool == "train"][:5]
    care = CARE | {"stages": [5], "soak": "0s"}
    given = {"selector": {"nodes": names}, "care": care}
    first, *others = [member["node"] for member in (await ask(up, "/plan", wish(**given)))["plan"]["members"]]
    await order(up, "/v1/fences/freeze", {"scope": f"node/sim-a/{first}", "reason": "my debugging session"})
    await start(up, **given)
    async with up.everyone_agrees():
        await up.until(lambda: (v := up.incident(first)) and "frozen" in v.waiting_for, "the canary waits")
        incident = up.incident(first)
        assert incident is not None
        await order(up, f"/v1/incidents/{incident.id}/abort", {"reason": "not this one"})
        await up.until(lambda: state(up) is CampaignState.ENDED, "the campaign has ended", 900)
    left = next(one for one in up.stores.campaigns.nodes("driver-580") if one.node == first)
    assert (left.state, left.by, left.why) == (NodeState.SKIPPED, "kim", "left out by kim: not this one")
    assert counts(up) == {NodeState.DONE: len(others), NodeState.SKIPPED: 1}
    assert reboots(up) == dict.fromkeys(others, 1)
    row = up.stores.campaigns.get("driver-580")
    assert row is not None
    assert row.why == f"not the whole list: {len(others)} done, 0 failed, 0 skipped, 1 left out by people (1 by kim)"


async def test_a_list_that_has_changed_is_shown_again(up: Running) -> None:
    planned = await ask(up, "/plan", wish())
    broken = next(n for n in up.world.nodes("sim-a") if n.name == planned["plan"]["members"][0]["node"])
    await up.report(broken, "xid/64")
    await up.until(lambda: up.incident(broken.name), "it has an incident")
    body = {**wish(), "plan_hash": planned["plan_hash"]}
    said = await ask(up, "", body, status=409)
    assert "changed since it was shown" in said["error"]
    assert (await ask(up, "/plan", wish(selector={}), status=422))["error"]


async def test_a_drained_rack_stays_out_until_the_campaign_ends(up: Running) -> None:
    node = up.pick(pool="train")
    rack = node.topology["rack"]
    listed = await start(up, id="rack", act="drain", selector={"domains": {"rack": rack}, "pools": ["train"]})
    async with up.everyone_agrees():
        await up.until(lambda: counts(up, "rack") == {NodeState.DONE: len(listed)}, "the rack is empty")
        out = [n.name for n in up.world.nodes("sim-a") if n.marked_by]
        assert sorted(out) == sorted(listed)
        await ask(up, "/rack/end", {"reason": "the PDU is new"})
        await up.until(lambda: not [n for n in up.world.nodes("sim-a") if n.marked_by], "they are back")
    assert not reboots(up)
