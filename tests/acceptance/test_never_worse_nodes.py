"""One node at a time, on a fleet of three clusters: `auto`, `approve` and `observe`. Nothing is made worse."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from medevac.approvals.approval import ApprovalView
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, State
from simulation import senders
from simulation.hazards import Behaviour, Effect
from simulation.layout import IRONWORKS, SKYLINE, TEST, Layout
from simulation.reading import Logged
from tests.acceptance.never_worse import DISRUPTIVE, made_policy, passes, pools
from tests.acceptance.stack import PATIENCE_S, Running, stack, utcnow
from workflows.messages import node_workflow_id

AUTO, APPROVE, OBSERVE = CLUSTERS = ("sim-a", "sim-b", "sim-c")
DRAIN_S = 240
"""Longer than any test holds a drain up."""
LATE_S = 1.5
"""Echoes come for so long after the check has passed: within the test profile's grace."""
REPAIR = {"do": "repair", "drain": "soon"}
REBOOTS, REPLACES, MAKER = "xid/119", "xid/95", "xid/64"

POLICY: dict[str, Any] = {
    "pools": {
        f"{mode}-{pool}": entry
        for mode, cluster in zip(("auto", "approve", "observe"), CLUSTERS, strict=True)
        for pool, entry in pools(mode, cluster).items()
    },
    "rules": [
        {"name": "maker", "match": {"codes": [MAKER]}, "ladder": "maker", **REPAIR},
        {"name": "replaced", "match": {"codes": [REPLACES]}, "ladder": "replaced", **REPAIR},
        {"name": "sick", "match": {"classes": ["critical", "degraded"]}, **REPAIR},
        {"name": "may-clear", "match": {"classes": ["transient"]}, "watch": "3s", **REPAIR},
        {"name": "notice", "match": {"classes": ["planned"]}, "do": "repair", "ladder": "planned", "drain": "job_end"},
        {"name": "monitor", "match": {"classes": ["monitor"]}, "do": "repair", "ladder": "monitor"},
    ],
    "ladders": {
        "cloud": [{"rung": "reboot", "deadline": "120s"}, {"rung": "replace", "deadline": "120s"}],
        "bare_metal": [
            {"rung": "reboot", "attempts": 2, "deadline": "120s"},
            {"rung": "reinstall", "deadline": "120s"},
            {"rung": "rma"},
        ],
        "maker": [{"rung": "rma"}],
        "replaced": [{"rung": "replace", "attempts": 2, "deadline": "120s"}],
        "planned": [{"rung": "wait", "deadline": "5s"}],
        "monitor": [{"rung": "restart_agent", "deadline": "5s"}],
    },
    "auto": ["wait", "restart_agent", "reboot", "reinstall", "replace", "rma"],
    "drains": {"now": "30s", "soon": f"{DRAIN_S}s", "checkpoint": "20s", "job_end": "6s", "pod_grace": "2s"},
    "verify": "120s",
    "probation": "6s",
    "quiet": "1h",
    "limits": {
        "at_once": {name: {"count": 50, "percent": 0} for name in ("rack", "pool", "cluster")},
        "marks": {"count": 200, "percent": 0},
        "breaker_level_percent": 20,
        "lease_ttl_s": 60,
    },
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


class Fleet:
    """The stack with what these tests ask of it."""

    def __init__(self, up: Running) -> None:
        self.up = up
        self.world = up.world
        self._taken: set[str] = set()

    def node(self, cluster: str, provider: str = IRONWORKS) -> Node:
        """A node with work on it, another each time."""
        with self.world.read() as m:
            working = {
                row["node"]
                for row in m.all(
                    "SELECT x.node FROM pods p JOIN machines x ON x.id = p.machine WHERE p.tier = 'workload'"
                )
            }
        found = next(
            node
            for node in self.world.nodes(cluster)
            if node.name in working - self._taken and node.machine.provider == provider
        )
        self._taken.add(found.name)
        return found

    def now(self, node: Node) -> Node:
        found = self.world.node(node.name, node.cluster)
        assert found is not None
        return found

    def effects(self, node: Node, *verbs: Effect) -> list[Logged]:
        return [e for e in self.world.effects(node=node.name) if e.verb in (verbs or Effect)]

    def applied(self, node: Node) -> list[Effect]:
        """What was really done to it that a job would notice, in order, each pod's eviction left out."""
        out = DISRUPTIVE - {Effect.EVICT, Effect.DELETE}
        return [e.verb for e in self.effects(node) if e.applied and e.verb in out]

    def said(self, incident: IncidentView) -> list[str]:
        """Messages about it, posted alone or told together with others."""
        return [str(line.key) for line in self.up.stores.ledger.lines(incident.id) if line.text.startswith("notify:")]

    async def opened(self, node: Node) -> IncidentView:
        view: IncidentView = await self.up.until(lambda: self.up.incident(node.name), f"{node.name} has an incident")
        return view

    async def reaches(self, node: Node, *states: State) -> IncidentView:
        def look() -> IncidentView | None:
            view = self.up.incident(node.name)
            return view if view and view.state in states else None

        view: IncidentView = await self.up.until(look, f"{node.name} is {' or '.join(states)}")
        return view

    async def asked(self, node: Node) -> ApprovalView:
        def look() -> ApprovalView | None:
            pending = self.up.stores.ledger.approvals(pending_only=True)
            return next((view for view in pending if any(w.node == node.name for w in view.waiters)), None)

        view: ApprovalView = await self.up.until(look, f"{node.name} is asked about")
        return view

    async def votes(self, node: Node, verdict: str) -> None:
        async def voted() -> bool:
            view = await self.asked(node)
            answer = await self.up.vote("grace", view.id, view.shown_hash, verdict)
            assert answer.status_code in (200, 503), answer.text
            return answer.status_code == 200

        await self.up.until(voted, f"grace says {verdict}")

    async def order(self, path: str, who: str = "ada", **body: object) -> None:
        answer = await self.up.order(path, who, **body)
        assert answer.is_success, answer.text

    async def heard(self, node: Node) -> IncidentView:
        """The incident as its workflow has it, after all that was signalled so far; its hourly look is due as well."""
        handle = (await self.up.client()).get_workflow_handle(node_workflow_id(node.cluster, node.name))
        await handle.signal("wake")
        view: IncidentView = await handle.query("state", result_type=IncidentView)
        return view

    def verified_at(self, incident: str) -> datetime | None:
        lines = self.up.stores.ledger.lines(incident)
        return next((line.at for line in lines if line.text.startswith("verify: done")), None)

    def holds_on(self, node: Node) -> str:
        """The node's work won't leave: its disruption budget allows nothing."""
        budget = f"tests/{node.name}"
        self.world.budget(budget, 1_000, node.cluster)
        with self.world.write() as m:
            m.run(
                "UPDATE pods SET budget = ? WHERE tier = 'workload' AND machine ="
                " (SELECT id FROM machines WHERE cluster = ? AND node = ? AND state != 'gone')",
                budget, node.cluster, node.name,
            )  # fmt: skip
        return budget

    async def being_drained(self, node: Node) -> None:
        await self.up.until(lambda: self.effects(node, Effect.EVICT), f"{node.name} is being drained")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack_of_this_file(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    path = tmp_path_factory.mktemp("nodes")
    layout = Layout(clusters=CLUSTERS, nodes=64, serve_share=0.0, spares=0, durations=TEST)
    async with stack(path, layout=layout, policy=made_policy(path, "demo", **POLICY)) as up:
        yield Fleet(up)


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(stack_of_this_file: Fleet) -> Fleet:
    """Two hours after the test before, so that the sum over all tests doesn't look like one fleet-wide fault."""
    passes(stack_of_this_file.up.stores.database, timedelta(hours=2))
    return stack_of_this_file


# -- waiting states --------------------------------------------------------------------------------------------


async def test_twenty_repeats_over_three_days_are_one_incident_and_no_further_word(fleet: Fleet) -> None:
    handed, vetoed, rejected, observed = (
        fleet.node(AUTO), fleet.node(AUTO, SKYLINE), fleet.node(APPROVE), fleet.node(OBSERVE),
    )  # fmt: skip
    begun = utcnow()
    alerts = {
        node.name: senders.alertmanager_xid(node, xid, begun)
        for node, xid in ((handed, 64), (vetoed, 119), (rejected, 119), (observed, 79))
    }
    nodes = [handed, vetoed, rejected, observed]
    fleet.holds_on(vetoed)
    for node in nodes:
        await fleet.up.send(alerts[node.name])
    await fleet.being_drained(vetoed)
    fleet.world.uncordon(vetoed.name, vetoed.cluster)
    await fleet.votes(rejected, "reject")
    for node in (handed, vetoed, rejected):
        await fleet.reaches(node, State.HANDED_OVER)
    await fleet.reaches(observed, State.OBSERVED)

    async def everyone_is_told() -> bool:
        """What will be done, and that a person has it now; of the observed one what would be done."""
        counts = [len(fleet.said(await fleet.opened(node))) for node in nodes]
        return counts == [2, 2, 2, 1]

    await fleet.up.until(everyone_is_told, "people were told")
    await fleet.up.until(lambda: any(e.applied for e in fleet.world.effects(verb=Effect.TICKET)), "the ticket is open")
    effects = len(fleet.world.effects())
    told = {node.name: len(fleet.said(await fleet.opened(node))) for node in nodes}
    assert told[observed.name] == 1
    questions = len(fleet.up.stores.ledger.approvals(pending_only=False))

    for _ in range(20):
        passes(fleet.up.stores.database, timedelta(hours=3.6))
        for node in nodes:
            (part,) = await fleet.up.send(alerts[node.name])
            assert part["outcome"] == "joined"
            view = await fleet.heard(node)
            assert view.state is (State.OBSERVED if node is observed else State.HANDED_OVER)
        # A sender's pace: within half a second a repeat would not even reach the incident.
        await asyncio.sleep(0.55)

    for node in nodes:
        assert len(fleet.up.incidents(node.name)) == 1, node.name
        assert len(fleet.said(await fleet.opened(node))) == told[node.name], node.name
    assert len(fleet.up.stores.ledger.approvals(pending_only=False)) == questions, "nobody is asked again"
    late = [e for e in fleet.world.effects()[effects:] if e.verb is not Effect.CHAT]
    assert late == [], "nothing was done to anything"
    assert fleet.applied(vetoed) == []
    assert len([e for e in fleet.world.effects(verb=Effect.TICKET) if e.applied]) == 1


# -- clearing --------------------------------------------------------------------------------------------------


async def test_a_resolved_xid_79_stays_marked_and_goes_on_to_a_verified_repair(fleet: Fleet) -> None:
    node = fleet.node(APPROVE)
    fleet.world.inject(node.name, "xid/79", cluster=node.cluster)
    begun = utcnow() - timedelta(minutes=5)
    await fleet.up.send(senders.alertmanager_xid(node, 79, begun))
    await fleet.asked(node)
    incident = await fleet.opened(node)
    assert fleet.now(node).marked_by == incident.id

    passes(fleet.up.stores.database, timedelta(minutes=5))
    await fleet.up.send(senders.alertmanager_xid(node, 79, begun, resolved_at=utcnow()))
    for _ in range(3):
        assert (await fleet.heard(node)).faults == ("xid/79",)
        await asyncio.sleep(0.5)  # beyond the dwell after which what can clear is cleared
    assert fleet.now(node).marked_by == incident.id
    assert (await fleet.heard(node)).state is State.WAITING_APPROVAL

    await fleet.votes(node, "approve")
    view = await fleet.reaches(node, State.ENDED)
    assert view.end is End.RETURNED
    assert fleet.applied(node) == [Effect.REBOOT]
    assert fleet.effects(node, Effect.CHECK)
    assert fleet.now(node).marked_by is None
    assert len(fleet.up.incidents(node.name)) == 1


# -- ladders ---------------------------------------------------------------------------------------------------


async def test_a_node_that_recovers_after_each_reboot_is_rebooted_twice_a_week(fleet: Fleet) -> None:
    node = fleet.node(AUTO)

    async def comes_back_whenever_it_is_mended() -> IncidentView | None:
        view = fleet.up.incident(node.name)
        if view and view.state is State.HANDED_OVER:
            return view
        if view is None or view.end:
            # Not by a clock: on a busy machine a repair takes as long as it takes.
            fleet.world.inject(node.name, REBOOTS, cluster=node.cluster)
            passes(fleet.up.stores.database, timedelta(hours=2))
            before = len(fleet.up.incidents(node.name))
            await fleet.up.send(senders.kmsg_xid(node, 119, utcnow()))
            await fleet.up.until(lambda: len(fleet.up.incidents(node.name)) > before, "it is another incident")
        return None

    last = await fleet.up.until(comes_back_whenever_it_is_mended, "a person has it")
    incidents = fleet.up.incidents(node.name)
    assert fleet.applied(node).count(Effect.REBOOT) == 2
    assert len(incidents) >= 2
    assert last.rung != "reboot"
    assert fleet.now(node).marked_by == last.id, "what nobody has proved well stays out of service"


async def test_the_same_fault_on_the_successor_stops_the_ladder(fleet: Fleet) -> None:
    node = fleet.node(AUTO, SKYLINE)
    fleet.world.inject(node.name, REPLACES, cure=(), behaviour=Behaviour(successor_faulty=True), cluster=node.cluster)
    before = {n.name for n in fleet.world.nodes(AUTO)}
    await fleet.up.send(senders.kmsg_xid(node, 95, utcnow()))
    first = (await fleet.opened(node)).id

    def handed_over() -> bool:
        view = fleet.up.stores.ledger.incident(first)
        return bool(view and view.state is State.HANDED_OVER)

    await fleet.up.until(handed_over, "a person has it")
    (new,) = {n.name for n in fleet.world.nodes(AUTO)} - before
    successor = fleet.world.node(new, AUTO)
    assert successor is not None
    # The successor's own monitor finds it as well, and says so again and again, also when its first day is over.
    for _ in range(3):

        async def taken() -> bool:
            (part,) = await fleet.up.send(senders.kmsg_xid(successor, 95, utcnow()))
            return bool(part["outcome"] != "unknown_node")  # the gateway reads the list of nodes every few seconds

        await fleet.up.until(taken, f"{new} is known")

        def all_handed_over() -> bool:
            views = [v for v in fleet.up.incidents() if v.cluster == AUTO and v.node == new]
            return len(views) == 2 and {v.state for v in views} == {State.HANDED_OVER}

        await fleet.up.until(all_handed_over, "a person has both")
        passes(fleet.up.stores.database, timedelta(hours=30))
        await fleet.heard(successor)
        await asyncio.sleep(0.6)
    own = next(v for v in fleet.up.incidents(new) if v.id != first)
    assert "came in place of one" in own.summary
    asked_for = [e for e in fleet.world.effects(verb=Effect.REQUEST) if e.applied and e.tag == first]
    assert len(asked_for) == 1, "one successor, not one after the other"
    assert fleet.applied(successor) == []
    assert successor.marked_by == first


# -- echoes ----------------------------------------------------------------------------------------------------


async def echoes(fleet: Fleet, node: Node, xid: int, began: datetime, incident: str) -> None:
    """All that a reboot or a replacement stirs up, late, twice and out of order, until a while after the check.

    From the drain on: what is said before it is no echo, but another fault of which the mark must tell as well.
    """
    await fleet.being_drained(node)

    async def lifecycle(state: str) -> None:
        await fleet.up.report(node, f"instance-state/{state}", kind="lifecycle", id=state)

    async def silent(kind: str) -> None:
        await fleet.up.report(node, "monitor/exporter-silent", kind=kind, id=f"silent-{kind}", time=began.isoformat())

    async def alert(xid: int | None, *, resolved: bool = False) -> None:
        at = utcnow() if resolved else None
        if xid is None:
            await fleet.up.send(senders.node_not_ready(node, began, resolved_at=at))
        else:
            await fleet.up.send(senders.alertmanager_xid(node, xid, began, resolved_at=at))

    everything: list[Callable[[], Awaitable[object]]] = [
        lambda: lifecycle("running"),
        lambda: alert(None),
        lambda: alert(xid),
        lambda: silent("fault"),
        lambda: lifecycle("stopping"),
        lambda: alert(None, resolved=True),
        lambda: fleet.up.send(senders.kmsg_xid(node, xid, began)),
        lambda: silent("recovered"),
        lambda: alert(xid),
        lambda: lifecycle("stopping"),
        lambda: alert(None),
    ]
    # By the check's own time: what is said once the node is no longer watched is no echo, however late we see it.
    async with asyncio.timeout(PATIENCE_S):
        for say in itertools.cycle(everything):
            at = fleet.verified_at(incident)
            if at is not None and utcnow() > at + timedelta(seconds=LATE_S):
                return
            await say()


async def test_echoes_of_a_reboot_are_one_incident_without_an_extra_step(fleet: Fleet) -> None:
    node = fleet.node(AUTO)
    fleet.world.inject(node.name, "xid/119", cluster=node.cluster)
    began = utcnow()
    await fleet.up.send(senders.alertmanager_xid(node, 119, began))
    await echoes(fleet, node, 119, began, (await fleet.opened(node)).id)
    view = await fleet.reaches(node, State.ENDED)
    assert view.end is End.RETURNED
    assert len(fleet.up.incidents(node.name)) == 1
    assert fleet.applied(node) == [Effect.REBOOT]
    assert len([e for e in fleet.effects(node, Effect.MARK) if e.applied]) == 1


async def test_echoes_of_a_replacement_are_one_incident_without_an_extra_step(fleet: Fleet) -> None:
    node = fleet.node(AUTO, SKYLINE)
    fleet.world.inject(node.name, REPLACES, cure=(), cluster=node.cluster)
    began = utcnow()
    await fleet.up.send(senders.alertmanager_xid(node, 95, began))
    incident = (await fleet.opened(node)).id

    def over() -> IncidentView | None:
        view = fleet.up.stores.ledger.incident(incident)
        return view if view and view.end else None

    await echoes(fleet, node, 95, began, incident)
    view = await fleet.up.until(over, "the incident is over")
    assert view.end is End.REPLACED
    assert [v.id for v in fleet.up.incidents() if v.node in (node.name, view.node)] == [incident]
    ours = [e for e in fleet.world.effects(tag=incident) if e.applied]
    calls = [e.verb for e in ours if e.verb in (Effect.REQUEST, Effect.TERMINATE, Effect.REBOOT, Effect.REINSTALL)]
    assert calls == [Effect.REQUEST, Effect.TERMINATE]


# -- people ----------------------------------------------------------------------------------------------------


async def test_a_foreign_cordon_and_hands_off_make_it_ask_in_auto(fleet: Fleet) -> None:
    cordoned, kept = fleet.node(AUTO), fleet.node(AUTO)
    fleet.world.cordon(cordoned.name, "dora", cordoned.cluster)
    fleet.world.hands_off(kept.name, "emil", kept.cluster)
    for node, who in ((cordoned, "dora"), (kept, "emil")):
        await fleet.up.send(senders.kmsg_xid(node, 119, utcnow()))
        view = await fleet.asked(node)
        assert who in " ".join(view.need.why)
        assert not [e for e in fleet.effects(node) if e.verb in DISRUPTIVE]
    await fleet.votes(cordoned, "approve")
    await fleet.votes(kept, "reject")
    assert (await fleet.reaches(cordoned, State.ENDED)).end is End.RETURNED
    assert fleet.now(cordoned).foreign_cordon == "dora", "not ours to lift"
    await fleet.reaches(kept, State.HANDED_OVER)
    assert not [e for e in fleet.effects(kept) if e.verb in DISRUPTIVE | {Effect.MARK}]


async def test_an_uncordon_by_a_person_in_mid_drain_is_a_veto(fleet: Fleet) -> None:
    node = fleet.node(AUTO)
    budget = fleet.holds_on(node)
    await fleet.up.send(senders.kmsg_xid(node, 119, utcnow()))
    await fleet.being_drained(node)
    fleet.world.uncordon(node.name, node.cluster)
    await fleet.reaches(node, State.HANDED_OVER)
    seen = len(fleet.effects(node, *DISRUPTIVE))
    fleet.world.budget(budget, 0, node.cluster)
    for _ in range(3):
        await fleet.up.send(senders.kmsg_xid(node, 119, utcnow()))
        await fleet.heard(node)
        await asyncio.sleep(0.6)
    assert fleet.applied(node) == []
    assert len(fleet.effects(node, *DISRUPTIVE)) == seen
    assert fleet.now(node).schedulable, "it isn't marked again over the person's head"


async def test_a_freeze_in_mid_drain_stops_evictions_and_a_thaw_lets_it_go_on(fleet: Fleet) -> None:
    node = fleet.node(AUTO)
    budget = fleet.holds_on(node)
    fleet.world.inject(node.name, "xid/119", cluster=node.cluster)
    await fleet.up.send(senders.kmsg_xid(node, 119, utcnow()))
    await fleet.being_drained(node)
    await fleet.order("/v1/fences/freeze", scope=f"node/{node.cluster}/{node.name}", reason="hands off for a moment")
    frozen = utcnow()
    await fleet.up.until(lambda: utcnow() - frozen > timedelta(seconds=2), "it is frozen")
    fleet.world.budget(budget, 0, node.cluster)  # from now on its work would go
    await fleet.up.until(lambda: utcnow() - frozen > timedelta(seconds=6), "the freeze has stood for a while")
    late = [e for e in fleet.effects(node, *DISRUPTIVE) if e.begun_at > frozen + timedelta(seconds=2)]
    assert late == []
    assert fleet.applied(node) == []

    thawed = utcnow()
    for who in ("ada", "grace"):
        # One person stops it, two let it go on.
        assert not [e for e in fleet.effects(node, *DISRUPTIVE) if e.begun_at > frozen + timedelta(seconds=2)]
        await fleet.order("/v1/fences/thaw", who, scope=f"node/{node.cluster}/{node.name}", reason="go on")
    assert (await fleet.reaches(node, State.ENDED)).end is End.RETURNED
    assert [e for e in fleet.effects(node, Effect.EVICT) if e.applied and e.at > thawed]
    assert fleet.applied(node) == [Effect.REBOOT]


# -- observe ---------------------------------------------------------------------------------------------------


async def test_observe_writes_nothing_anywhere_whatever_arrives(fleet: Fleet) -> None:
    nodes = [fleet.node(OBSERVE, provider) for provider in (IRONWORKS, SKYLINE) for _ in range(3)]
    before = len(fleet.world.effects())
    for i, node in enumerate(nodes):
        fleet.world.inject(node.name, "xid/79", behaviour=Behaviour(not_ready=i % 2 == 0), cluster=node.cluster)
        at = utcnow()
        for delivery in (
            senders.alertmanager_xid(node, 79, at),
            senders.nvsentinel_xid(node, 95, at),
            senders.kmsg_xid(node, 48, at),
            senders.kmsg_xid(node, 31, at),
            senders.node_not_ready(node, at),
            *(senders.measurement(node, "gpu_temp", 97.0, at + timedelta(seconds=2 * n)) for n in range(4)),
            senders.alertmanager_xid(node, 79, at, resolved_at=at),
            senders.nvsentinel_xid(node, 95, at, healthy=True),
        ):
            await fleet.up.send(delivery)
        await fleet.up.report(node, "monitor/exporter-silent")
        await fleet.up.report(
            node, "maintenance/host", kind="planned", not_before=(at + timedelta(minutes=1)).isoformat()
        )
    for node in nodes:
        await fleet.reaches(node, State.OBSERVED)
        assert (await fleet.heard(node)).state is State.OBSERVED
        assert fleet.now(node).marked_by is None
    await fleet.up.until(lambda: len(fleet.world.effects()) > before, "people are told")
    later = fleet.world.effects()[before:]
    assert {e.verb for e in later} == {Effect.CHAT}
