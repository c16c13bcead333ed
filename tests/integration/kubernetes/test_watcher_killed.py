"""`medevac watch` killed with -9, stopped and left without its API server, on real servers: what the cluster said is
heard, nothing opens a second incident, and what became good again meanwhile is taken back.

`MEDEVAC_KILLS` sets how often; the moments are seeded.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from tests.control_plane.processes import write_kubeconfig
from tests.integration.kubernetes.conftest import Plane
from tests.integration.kubernetes.site import RUN, Site
from tests.integration.kubernetes.test_watcher import XID, account, condition, event
from worker.children import Child, environment, free_port
from worker.connection import MedevacPlugin
from worker.embedded import http_ready, temporal_ready, temporal_server
from worker.settings import Settings
from worker.setup import prepare_ledger
from worker.stores import open_stores
from workflows.messages import node_workflow_id

__all__ = ["account"]

KILLS = int(os.environ.get("MEDEVAC_KILLS", "5"))
LONG_S = 300.0
AT_ONCE = 4
"""Nodes that turn bad at once."""
LEASE_S = 5
"""Of watchers that are killed: the next one waits for so long."""
STEADY_LEASE_S = 20
"""Where a test says who leads: more than a busy machine lets a process stand."""
SICK_FOR = 3
"""Kills that a condition lasts for."""
pytestmark = pytest.mark.timeout(1_800)
PROCESS = [sys.executable, "-m", "tests.integration.kubernetes.watching_process"]


@dataclass
class Rig:
    """Temporal, a ledger, and as many watchers as the test starts."""

    path: Path
    site: Site
    temporal: Child
    address: str
    env: dict[str, str]
    watchers: list[Child] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    async def watcher(self) -> Child:
        port, name = free_port(), f"watch-{len(self.watchers)}"
        child = Child(name, PROCESS, {**self.env, "MEDEVAC_INTAKE_PORT": str(port)}, self.path / f"{name}.log")
        await child.start()
        await child.until(lambda: http_ready(f"http://127.0.0.1:{port}/healthz"), LONG_S)
        self.ports[name] = port
        self.watchers.append(child)
        return child

    async def until_it_leads(self, child: Child, leads: bool = True) -> None:
        async with asyncio.timeout(LONG_S):
            while await self.leads(child) != leads:  # noqa: ASYNC110  of another process
                await asyncio.sleep(0.05)

    async def leads(self, child: Child) -> bool:
        async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
            text = (await client.get(f"http://127.0.0.1:{self.ports[child.name]}/metrics")).text
        return 'medevac_leading{name="watch/nodes/real"} 1.0' in text

    def lease(self, seconds: float) -> None:
        """Of watchers that are started from now on."""
        config = Path(self.env["MEDEVAC_CONFIG"])
        given = json.loads(config.read_text())
        given["watchers"][0]["lease_s"] = seconds
        config.write_text(json.dumps(given))

    def add_nodes(self, count: int) -> list[str]:
        """Ready sooner or later: nobody waits for them here."""
        names = [f"{self.site.run}-{len(self.site.names) + n}" for n in range(count)]
        for name in names:
            self.site.create("/api/v1/nodes", {
                "apiVersion": "v1", "kind": "Node", "metadata": {
                    "name": name, "labels": {RUN: self.site.run}, "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
            })  # fmt: skip
        self.site.names += names
        return names

    async def said(self, names: list[str]) -> dict[str, Said]:
        client = await Client.connect(self.address, plugins=[MedevacPlugin()])
        return {name: await _said(client, name) for name in names}

    async def until(self, names: list[str], holds: Callable[[dict[str, Said]], bool]) -> dict[str, Said]:
        """What was said of the nodes: once it holds, or after a long time in vain."""
        found: dict[str, Said] = {}
        try:
            async with asyncio.timeout(LONG_S):
                while not (found and holds(found)):
                    found = await self.said(names)
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pass
        return found


@dataclass
class Said:
    """What the incident of one node was told."""

    incidents: int = 0
    last: dict[str, str] = field(default_factory=dict)
    """Fault: the last kind of statement about it."""
    ids: dict[str, set[str]] = field(default_factory=dict)
    """Fault of an Event: as how many different occurrences it was told."""


def _faults(said: dict[str, Said]) -> dict[str, dict[str, str]]:
    """What stands, by node: what was said to be bad last."""
    return {name: {k: v for k, v in one.last.items() if v == "fault"} for name, one in said.items()}


async def _said(client: Client, name: str) -> Said:
    id, said = node_workflow_id("real", name), Said()
    said.incidents = len([run async for run in client.list_workflows(f"WorkflowId = '{id}'")])
    if not said.incidents:
        return said
    history = await client.get_workflow_handle(id).fetch_history()
    for one in history.events:
        if one.HasField("workflow_execution_signaled_event_attributes"):
            for payload in one.workflow_execution_signaled_event_attributes.input.payloads:
                told: dict[str, Any] = json.loads(payload.data)
                said.last[told["fault"]] = told["kind"]
                if told.get("statement") != "level":
                    said.ids.setdefault(told["fault"], set()).add(told["id"])
    return said


@pytest.fixture
async def rig(plane: Plane, account: None, site: Site, tmp_path: Path) -> AsyncIterator[Rig]:
    kubeconfig = write_kubeconfig(
        tmp_path / "watcher.kubeconfig", site.token("medevac-watch"), plane.server, plane.certificate
    )
    config = tmp_path / "medevac.yaml"
    config.write_text(json.dumps({
        "installation": "test",
        "clusters": [{"name": "real", "kind": "kubernetes", "options": {"kubeconfig": str(kubeconfig)}}],
        "providers": [{"name": "aws", "kind": "nothing"}],
        "watchers": [{"name": "nodes", "clusters": ["real"], "relist_s": 5, "joining_s": 3600, "lease_s": LEASE_S}],
    }))  # fmt: skip
    settings = Settings(config=config, data_dir=tmp_path)
    stores = open_stores(settings.database)
    prepare_ledger(stores, _Real(), None)  # type: ignore[arg-type]
    stores.database.close()
    port = free_port()
    address = f"127.0.0.1:{port}"
    env = environment(
        TEMPORAL_ADDRESS=address,
        TEMPORAL_NAMESPACE="default",
        MEDEVAC_CONFIG=str(config),
        MEDEVAC_DATA_DIR=str(tmp_path),
    )
    temporal = Child("temporal", temporal_server(port, tmp_path / "temporal.sqlite"), env, tmp_path / "temporal.log")
    await temporal.start()
    await temporal.until(lambda: temporal_ready(address, 30), LONG_S)
    rig = Rig(tmp_path, site, temporal, address, env)
    yield rig
    for child in (*rig.watchers, temporal):
        await child.stop()


class _Real:
    """As far as preparing a ledger asks."""

    simulated = False


async def test_a_killed_watcher_loses_and_doubles_nothing(rig: Rig) -> None:
    chance, site = random.Random(7), rig.site
    nodes = rig.add_nodes(min(AT_ONCE * (KILLS + 1), 48))
    expected: dict[str, dict[str, str]] = {name: {} for name in nodes}
    sick: list[list[tuple[str, str]]] = []

    def happens(round: int) -> None:
        """Some nodes turn bad, those of a while ago turn good, one has an Event; not all at the same moment."""
        some = [nodes[(AT_ONCE * round + n) % len(nodes)] for n in range(AT_ONCE)]
        sick.append([(name, f"Trouble{round}") for name in some])
        for name, kind in sick[-1]:
            condition(site, name, kind, "True")
            expected[name][f"condition/{kind}"] = "fault"
        event(site, some[0], f"Happened{round}")
        expected[some[0]][f"event/Happened{round}"] = "fault"
        if len(sick) > SICK_FOR:
            for name, kind in sick[-1 - SICK_FOR]:
                condition(site, name, kind, "False")
                expected[name][f"condition/{kind}"] = "recovered"

    def bad() -> dict[str, dict[str, str]]:
        return {name: {k: v for k, v in kinds.items() if v == "fault"} for name, kinds in expected.items()}

    for round in range(KILLS):
        child = await rig.watcher()
        if round % 3:  # now and then it is killed before it leads
            await rig.until_it_leads(child)
        if round % 3 == 2:  # and now and then after it has said all, which a slow one might never come to
            found = await rig.until(nodes, lambda said: _faults(said) == bad())
            assert _faults(found) == bad(), "lost, or not taken back"
        happening = asyncio.create_task(asyncio.to_thread(happens, round))
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        child.kill()
        await child.wait()
        await happening
    await rig.watcher()
    event(site, nodes[0], "GPUFellOff", XID)
    expected[nodes[0]]["xid/79"] = "fault"

    found = await rig.until(nodes, lambda said: _faults(said) == bad())
    assert _faults(found) == bad(), "lost, or not taken back"
    assert {said.incidents for said in found.values() if said.last} == {1}, "doubled"
    assert any(said.last.get(k) == v == "recovered" for name, said in found.items() for k, v in expected[name].items())
    assert all(len(ids) == 1 for said in found.values() for ids in said.ids.values()), "an Event counted twice"


async def stand_still(child: Child, ledger: Path) -> None:
    """Not in the middle of a write: a file has one lock for all, and on it everybody would stand still."""
    while True:
        os.kill(child.pid, signal.SIGSTOP)
        file = sqlite3.connect(ledger, timeout=0.5, isolation_level=None)
        with closing(file), suppress(sqlite3.OperationalError):
            file.execute("BEGIN IMMEDIATE")
            return
        os.kill(child.pid, signal.SIGCONT)
        await asyncio.sleep(0.01)


async def test_a_leader_that_is_stopped_is_followed_and_does_no_harm_when_it_wakes(rig: Rig) -> None:
    rig.lease(STEADY_LEASE_S)
    site, (name,) = rig.site, rig.add_nodes(1)
    first = await rig.watcher()
    condition(site, name, "Trouble", "True")
    await rig.until([name], lambda said: said[name].last == {"condition/Trouble": "fault"})
    second = await rig.watcher()
    await rig.until_it_leads(first)
    assert not await rig.leads(second)
    await stand_still(first, rig.path / "ledger.sqlite")
    try:
        condition(site, name, "Trouble", "False")
        found = await rig.until([name], lambda said: said[name].last == {"condition/Trouble": "recovered"})
        assert found[name].last == {"condition/Trouble": "recovered"}
        await rig.until_it_leads(second)
        condition(site, name, "Other", "True")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    await rig.until([name], lambda said: len(said[name].last) == 2)
    await rig.until_it_leads(first, False)  # as soon as it has looked
    found = await rig.said([name])
    assert found[name].last == {"condition/Trouble": "recovered", "condition/Other": "fault"}
    assert found[name].incidents == 1


async def test_an_api_server_that_was_away_is_heard_again(rig: Rig, plane: Plane) -> None:
    if plane.started is None:
        pytest.skip("only a control plane of our own is stopped")
    site, (name,) = rig.site, rig.add_nodes(1)
    child = await rig.watcher()
    condition(site, name, "Before", "True")
    await rig.until([name], lambda said: said[name].last == {"condition/Before": "fault"})
    plane.started.halt("kube-apiserver")
    try:
        async with asyncio.timeout(LONG_S):
            while _log(rig, child).count("is not watched") < 4:  # noqa: ASYNC110  of another process
                await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(plane.started.restart, "kube-apiserver")
    condition(site, name, "Before", "False")
    condition(site, name, "After", "True")
    found = await rig.until([name], lambda said: len(said[name].last) == 2)
    assert found[name].last == {"condition/Before": "recovered", "condition/After": "fault"}
    assert child.running


def _log(rig: Rig, child: Child) -> str:
    return (rig.path / f"{child.name}.log").read_text(encoding="utf-8")


async def test_without_temporal_it_waits_in_the_inbox(rig: Rig) -> None:
    site, (name,) = rig.site, rig.add_nodes(1)
    await rig.temporal.stop()
    child = await rig.watcher()
    condition(site, name, "Trouble", "True")
    stores = open_stores(Settings(data_dir=rig.path).database)
    async with asyncio.timeout(LONG_S):
        while not (await asyncio.to_thread(stores.inbox.waiting))[0]:  # noqa: ASYNC110  of another process
            await asyncio.sleep(0.1)
    stores.database.close()
    child.kill()
    await child.wait()
    await rig.temporal.start()
    await rig.temporal.until(lambda: temporal_ready(rig.address, 30), LONG_S)
    await rig.watcher()
    found = await rig.until([name], lambda said: said[name].last.get("condition/Trouble") == "fault")
    assert found[name].last["condition/Trouble"] == "fault"
