"""Many nodes, many senders, one provider, other people's policies: nothing is made worse. Production time-outs."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from medevac.events.parsing import MAX_PAYLOAD_BYTES
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, State
from medevac.policy.loading import preset
from simulation import senders
from simulation.hazards import Effect
from simulation.layout import IRONWORKS, SKYLINE, TEST, Layout
from simulation.reading import Logged
from simulation.senders import Delivery
from tests.acceptance.never_worse import DISRUPTIVE, made_policy, passes, policy_text, pools
from tests.acceptance.stack import PLAIN, ROOT, Running, stack, utcnow
from worker.children import environment

CLUSTERS = ("sim-a", "sim-b", "sim-c")
REBOOT_S = 1.5
JSON = {"Content-Type": "application/json"}
EVERYTHING_BY_ITSELF = ["wait", "restart_agent", "reboot", "reinstall", "replace", "rma"]
SHORT = {
    "drains": {"now": "5s", "soon": "15s", "checkpoint": "20s", "job_end": "20s", "pod_grace": "2s"},
    "verify": "60s",
    "probation": "1s",
    "auto": EVERYTHING_BY_ITSELF,
}
OF_ONE_PROVIDER = 2
LIMITS = {
    "at_once": {
        **{name: {"count": 50, "percent": 0} for name in ("rack", "pool", "cluster")},
        "provider": {"count": OF_ONE_PROVIDER, "percent": 0},
    },
    "marks": {"count": 200, "percent": 0},
    "breaker_level_percent": 20,
}
REPAIRS = ("request", "terminate", "reboot", "reinstall", "reset_gpu", "restart_agent")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1_200)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    path = tmp_path_factory.mktemp("fleet")
    durations = TEST.model_copy(update={"reboot": REBOOT_S})
    layout = Layout(clusters=CLUSTERS, nodes=64, serve_share=0.0, spares=0, durations=durations)
    policy = made_policy(path, "demo", pools=pools("auto", *CLUSTERS), limits=LIMITS, **SHORT)
    async with stack(path, layout=layout, policy=policy, timing="production", worker=PLAIN) as up:
        yield up


@pytest_asyncio.fixture(loop_scope="module")
async def up(running: Running) -> Running:
    """Two hours after the test before."""
    passes(running.stores.database, timedelta(hours=2))
    return running


def in_force(up: Running, name: str, **changes: Any) -> None:
    """From the next plan on, as a second person's approval would put it there."""
    now = utcnow()
    text = policy_text(name, pools=pools("auto", *CLUSTERS), **changes)
    up.stores.policies.activate(up.stores.policies.propose(text, "setup", now), None, now)


def repairs(up: Running, node: Node) -> list[Effect]:
    return [e.verb for e in up.world.effects(node=node.name) if e.applied and e.verb.value in REPAIRS]


async def opened(up: Running, node: Node, fault: str) -> str:
    """The incident of that fault; the node may have had others before."""

    def look() -> str | None:
        return next((v.id for v in up.incidents(node.name) if fault in v.faults), None)

    incident: str = await up.until(look, f"{node.name} has an incident of {fault}")
    return incident


async def over(up: Running, incident: str) -> IncidentView:
    def look() -> IncidentView | None:
        view = up.stores.ledger.incident(incident)
        return view if view and view.end else None

    view: IncidentView = await up.until(look, f"{incident} is over")
    return view


# -- warnings --------------------------------------------------------------------------------------------------

NOBODY_KNOWS = ("FanNoise", "DiskAlmostFull", "PowerSupplyOdd", "KernelOldish", "GpuLooksWarm", "ClockSkew")
JOBS_OWN = (13, 31, 43, 45, 94)
COUNTED = (63, 92)
COMPLAINED_OF = 12


def warning(dice: random.Random, nodes: list[Node], at: datetime) -> tuple[str, Any]:
    """A source and one part of a payload for it."""
    node = dice.choice(nodes)
    match dice.randrange(5):
        case 0:
            odd = dice.choice(nodes[:COMPLAINED_OF])
            labels = {"alertname": dice.choice(NOBODY_KNOWS), "severity": dice.choice(("warning", "critical"))}
            return "alertmanager", senders._alert({**labels, "node": odd.name, "job": "custom"}, "odd", at, None)
        case 1:
            alert = json.loads(senders.alertmanager_xid(node, dice.choice(JOBS_OWN + COUNTED), at).body)
            return "alertmanager", alert["alerts"][0]
        case 2:
            xid, gpu = dice.choice(JOBS_OWN + COUNTED), dice.randrange(8)
            return "kmsg", senders.kmsg_xid(node, xid, at, gpu=gpu, uptime_s=dice.uniform(1, 1e6)).body.decode()
        case 3:
            fault = f"xid/{dice.choice(JOBS_OWN + COUNTED)}"
            return "generic", {"node": node.name, "cluster": node.cluster, "fault": fault, "severity": "warning",
                               "id": f"g-{dice.random()}", "time": at.isoformat()}  # fmt: skip
        case _:
            sample = {"name": "gpu_temp", "value": dice.uniform(40, 87), "unit": "C", "window_s": 60}
            return "generic", {"node": node.name, "cluster": node.cluster, "kind": "measurement",
                               "id": f"m-{dice.random()}", "time": at.isoformat(), "measurement": sample}  # fmt: skip


def payloads(parts: list[tuple[str, Any]], size: int) -> Iterator[Delivery]:
    for source in ("alertmanager", "kmsg", "generic"):
        mine = [part for name, part in parts if name == source]
        for i in range(0, len(mine), size):
            some = mine[i : i + size]
            if source == "alertmanager":
                yield senders.alertmanager(some)
            elif source == "kmsg":
                yield Delivery(source, "".join(some).encode(), {"Content-Type": "text/plain"})
            else:
                yield Delivery(source, json.dumps(some).encode(), JSON)


async def test_ten_thousand_warnings_disrupt_and_mark_nothing(up: Running) -> None:
    dice = random.Random(3)
    nodes = [node for cluster in CLUSTERS for node in up.world.nodes(cluster)]
    dice.shuffle(nodes)
    parts = [warning(dice, nodes, utcnow()) for _ in range(10_000)]
    outcomes: Counter[str] = Counter()
    up.http.timeout = 120
    for delivery in payloads(parts, 500):
        outcomes.update(part["outcome"] for part in await up.send(delivery))
    # The same alert twice in one payload is one statement, and gets one answer.
    assert 9_500 < outcomes.total() <= 10_000
    assert set(outcomes) <= {"recorded", "accepted", "joined"}, outcomes

    def all_observed() -> bool:
        told = [view.state is State.OBSERVED for view in up.incidents()]
        return len(told) == COMPLAINED_OF and all(told) and not up.stores.inbox.oldest(1)

    await up.until(all_observed, "all is taken in; what nobody knows is told and nothing else", 600)
    assert {e.verb for e in up.world.effects()} == {Effect.CHAT}
    assert len(up.world.messages()) <= 10
    assert up.stores.ledger.approvals(pending_only=False) == []
    for view in up.incidents():  # leave nothing behind for the next test
        await up.order(f"/v1/incidents/{view.id}/abort", reason="over")
    await up.until(lambda: all(view.end for view in up.incidents()), "all are closed")


# -- one provider, three clusters ------------------------------------------------------------------------------


async def test_three_clusters_never_disrupt_more_of_one_provider_than_its_limit(up: Running) -> None:
    nodes = [
        [node for node in up.world.nodes(cluster) if node.machine.provider == SKYLINE][n]
        for n in range(2)
        for cluster in CLUSTERS
    ]
    for node in nodes:
        up.world.inject(node.name, "xid/119", cluster=node.cluster)
    held: list[int] = []

    async def watch() -> None:
        while True:
            held.append(sum(lease.domains["provider"] == f"provider:{SKYLINE}" for lease in up.stores.guard.leases()))
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        async with up.everyone_agrees():
            await asyncio.gather(*(up.send(senders.kmsg_xid(node, 119, utcnow())) for node in nodes))
            incidents = [await opened(up, node, "xid/119") for node in nodes]
            views = [await over(up, incident) for incident in incidents]
    finally:
        watching.cancel()
    assert {view.end for view in views} == {End.RETURNED}
    assert max(held) == OF_ONE_PROVIDER, "the limit is used, and never exceeded"

    names = {node.name for node in nodes}
    spans = []
    for name in names:
        mine = [e for e in up.world.effects(node=name) if e.applied and e.verb in DISRUPTIVE]
        assert [e.verb for e in mine if e.verb.value in REPAIRS] == [Effect.REBOOT]
        spans.append((mine[0].at, mine[-1].at + timedelta(seconds=REBOOT_S)))
    for begin, _ in spans:
        assert sum(first <= begin < last for first, last in spans) <= OF_ONE_PROVIDER, "never three down at once"


# -- presets ---------------------------------------------------------------------------------------------------


def preset_in_force(up: Running, name: str) -> None:
    """As shipped, but that it may act by itself and that jobs have seconds; a pause between hot samples is none."""
    in_force(up, name, **SHORT)


async def hot(up: Running, node: Node, value: float, samples: int) -> None:
    for n in range(samples):
        at = utcnow() + timedelta(milliseconds=n)
        (part,) = await up.send(senders.measurement(node, "gpu_temp", value, at, window_s=60.0))
        assert part["outcome"] in ("recorded", "accepted", "joined")


async def test_krea_ejects_a_hot_node_and_asks_for_its_successor_before_the_drain_ends(up: Running) -> None:
    preset_in_force(up, "krea")
    hot_one, warm, brief = [n for n in up.world.nodes("sim-a") if n.machine.provider == SKYLINE][8:11]
    up.world.inject(hot_one.name, "thermal/gpu-temp", cure=(), cluster="sim-a")
    await hot(up, warm, 77.9, 5)
    await hot(up, brief, 78.1, 1)  # one sample short of the dwell
    await hot(up, hot_one, 78.1, 2)
    incident = await opened(up, hot_one, "thermal/gpu-temp")
    view = await over(up, incident)
    assert view.end is End.REPLACED

    ours: list[Logged] = [e for e in up.world.effects(tag=incident) if e.applied]
    order = [e.verb for e in ours if e.verb in (Effect.MARK, Effect.REQUEST, Effect.TERMINATE)]
    assert order == [Effect.MARK, Effect.REQUEST, Effect.TERMINATE]
    assert not {e.verb for e in ours} & {Effect.REBOOT, Effect.REINSTALL, Effect.RESET_GPU, Effect.RESTART_AGENT}
    lines = {line.key.step: line for line in up.stores.ledger.lines(incident) if line.kind == "step"}
    drained = lines["evacuate"]
    requested = next(i for i in up.evidence().intents if i.key.incident == incident and i.verb == "request")
    assert requested.at < drained.at
    assert any(e.verb is Effect.EVICT and e.at > requested.at for e in ours), "the drain was yet to come"

    for node in (warm, brief):
        assert not [v for v in up.incidents(node.name) if "thermal/gpu-temp" in v.faults]
        assert up.world.effects(node=node.name) == []


async def test_modal_takes_the_whole_host_out_at_a_critical_fault_and_only_tells_the_rest(up: Running) -> None:
    preset_in_force(up, "modal")
    cloud = [n for n in up.world.nodes("sim-b") if n.machine.provider == SKYLINE][8]
    metal = [n for n in up.world.nodes("sim-b") if n.machine.provider == IRONWORKS][8]
    degraded = [n for n in up.world.nodes("sim-b") if n.machine.provider == IRONWORKS][9]
    for node in (cloud, metal):
        up.world.inject(node.name, "xid/48", cure=(Effect.REINSTALL,), cluster=node.cluster)
        await up.send(senders.alertmanager_xid(node, 48, utcnow()))
    await up.send(senders.alertmanager_xid(degraded, 109, utcnow()))
    incidents = [await opened(up, node, "xid/48") for node in (cloud, metal)]
    ended = [(await over(up, incident)).end for incident in incidents]
    assert ended == [End.REPLACED, End.RETURNED]
    assert repairs(up, metal) == [Effect.REINSTALL]
    assert [v for v in repairs(up, cloud) if v is not Effect.REQUEST] == [Effect.TERMINATE]
    for node in (cloud, metal):
        evicted = [e for e in up.world.effects(node=node.name, verb=Effect.EVICT) if e.applied]
        assert evicted, "whoever works there leaves, whichever GPU it was"
    await up.until(lambda: (v := up.incident(degraded.name)) and v.state is State.OBSERVED, "it is told")
    assert up.world.effects(node=degraded.name) == []


# -- bad input -------------------------------------------------------------------------------------------------


def changes(up: Running) -> tuple[int, int, int]:
    """But for chat, where what came before is still being told."""
    done = sum(one.verb is not Effect.CHAT for one in up.world.effects())
    return done, len(up.incidents()), len(up.stores.ledger.events_since(utcnow() - timedelta(1)))


async def test_what_is_not_from_a_known_sender_or_too_large_changes_nothing(up: Running) -> None:
    node = up.world.nodes("sim-c")[20]
    good = senders.alertmanager_xid(node, 79, utcnow())
    token = {"Authorization": f"Bearer {up.home.token('sender')}"}
    before = changes(up)
    for headers, body, status in (
        ({}, good.body, 401),
        ({"Authorization": "Bearer guess"}, good.body, 401),
        ({"Authorization": f"Bearer {up.home.token('ada')}"}, good.body, 401),
        (token, good.body + b" " * MAX_PAYLOAD_BYTES, 413),
        (token, good.body[:-10], 400),
        (token, b"\x00\xff", 400),
        (token, b"[" * 100_000, 400),
    ):
        answer = await up.http.post(good.path, content=body, headers={**good.headers, **headers})
        assert answer.status_code == status, f"{status} {answer.status_code} {answer.text[:200]}"
    answer = await up.http.post("/v1/events/nobody", content=good.body, headers={**good.headers, **token})
    assert answer.status_code == 404
    assert changes(up) == before


async def test_an_unknown_node_is_recorded_and_nothing_falls_over(up: Running) -> None:
    known = up.world.nodes("sim-c")[21]
    ghost = known.model_copy(update={"name": "no-such-node"})
    pids = [worker.pid for worker in up.workers]
    incidents = len(up.incidents())
    for delivery in (
        senders.alertmanager_xid(ghost, 79, utcnow()),
        senders.kmsg_xid(ghost, 79, utcnow()),
        senders.nvsentinel_xid(ghost, 79, utcnow()),
    ):
        (part,) = await up.send(delivery)
        assert part["outcome"] == "unknown_node"
        assert "no-such-node" in part["reason"]
    seen = [e for e in up.stores.ledger.events_since(utcnow() - timedelta(hours=1)) if e.event.subject == ghost.name]
    assert len(seen) == 3
    assert len(up.incidents()) == incidents
    assert [worker.pid for worker in up.workers] == pids
    assert not any(worker.restarts for worker in up.workers)


async def test_a_wrong_policy_replaces_nothing_and_stops_up(up: Running, tmp_path: Path) -> None:
    active = up.stores.policies.active()
    headers = {"Authorization": f"Bearer {up.home.token('ada')}"}
    wrong = preset("demo").replace("    mode: auto", "    mode: automatic", 1)
    line = next(n for n, text in enumerate(wrong.splitlines(), 1) if "automatic" in text)
    answer = await up.http.post("/v1/policy/apply", json={"text": wrong, "origin": "mine.yaml"}, headers=headers)
    assert answer.status_code == 422
    assert f"mine.yaml:{line}:" in answer.text
    wider = preset("demo").replace("rack: {count: 2", "rack: {count: 60")
    answer = await up.http.post("/v1/policy/apply", json={"text": wider, "origin": "mine.yaml"}, headers=headers)
    assert answer.json()["state"] == "proposed"
    assert up.stores.policies.active() == active, "nobody widens alone"

    file = tmp_path / "mine.yaml"
    file.write_text(wrong)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "worker.cli", "up", "--policy", str(file),
        env=environment(PYTHONPATH=str(ROOT), MEDEVAC_DATA_DIR=str(tmp_path / "data")),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await asyncio.wait_for(process.communicate(), 240))[0].decode()
    assert process.returncode not in (0, None)
    assert f"mine.yaml:{line}:" in said
    assert "Traceback" not in said
