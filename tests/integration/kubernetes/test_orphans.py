"""Marks on real nodes without an open incident, reconciled as its end says, never by guess."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest_asyncio

from activities.failures import Bounded
from activities.folding import Folding
from activities.kubernetes.cluster import KubernetesCluster
from activities.ports import Mark
from activities.registry import Registry
from medevac.fleet.node import Node
from medevac.incident import End, Line, State, StepKey
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import NoMachines
from tests.integration.kubernetes.site import Site, as_left, written
from tests.unit.worker.conftest import StubEngine, view_of
from worker.meanwhile import Meanwhile
from worker.orphans import OrphanMarks
from worker.stores import Stores, open_stores
from worker.sweep import Sweep
from worker.threads import Threads

NOW = datetime.now(UTC)
MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")
POLICY = """\
version: 1
name: real
pools:
  train: {clusters: [real], select: {labels: {medevac.dev/pool: train}}, mode: auto}
rules: [{name: sick, match: {classes: [critical]}, do: repair}]
"""


class Said:
    """A chat that keeps what was posted."""

    simulated = False

    def __init__(self) -> None:
        self.texts: list[str] = []

    def find(self, key: str) -> str | None:
        return None

    def post(self, key: str, thread: str, text: str) -> str:
        self.texts.append(text)
        return "1"


class Sweeper:
    """A worker's sweep over the real cluster, as at its start."""

    def __init__(self, path: Path, cluster: KubernetesCluster) -> None:
        self.cluster, self.chat, self.engine, self.threads = cluster, Said(), StubEngine(), Threads(2)
        self.stores: Stores = open_stores(f"sqlite:///{path / 'ledger.sqlite'}")
        self.stores.database.upgrade()
        self.stores.policies.activate(self.stores.policies.propose(POLICY, "setup", NOW), None, NOW)
        self.registry = Registry(clusters=[cluster], providers=[NoMachines()], chat=self.chat)
        self.bounded = Bounded()

    def new(self) -> Sweep:
        ledger = self.stores.ledger
        marks = OrphanMarks(self.registry, self.stores, self.engine, self.threads)
        return Sweep(
            self.stores, self.engine, self.chat, Folding(ledger, self.bounded), Meanwhile(self.registry, ledger),
            self.threads, 30.0, lambda: NOW, marks=marks,
        )  # fmt: skip

    def ended(self, node: Node, end: End, *steps: str) -> None:
        view = view_of(node, id="inc-1", machine_id=node.machine.id, state=State.ENDED, end=end)
        self.stores.ledger.upsert_incident(view.model_copy(update={"updated_at": NOW - timedelta(minutes=5)}))
        for n, step in enumerate(steps):
            key = StepKey(incident="inc-1", step=step, n=n + 1)
            data = {"step": step, "result": {"outcome": "done"}}
            self.stores.ledger.add_lines([Line(key=key, at=NOW, kind="step", text=step, data=data)])

    def close(self) -> None:
        self.threads.close()
        self.bounded.close()
        self.stores.database.close()


@pytest_asyncio.fixture
async def sweeper(tmp_path: Path, connect: Connect) -> AsyncIterator[Sweeper]:
    made = Sweeper(tmp_path, connect())
    yield made
    made.close()


def marked(site: Site, sweeper: Sweeper) -> Node:
    name = site.add_node(labels={"medevac.dev/pool": "train"})
    sweeper.cluster.mark(name, MARK)
    node = sweeper.cluster.node(name)
    assert node is not None
    return node


async def test_a_mark_that_came_back_is_lifted_at_start_as_its_incidents_end_says(site: Site, sweeper: Sweeper) -> None:
    node = marked(site, sweeper)
    sweeper.ended(node, End.WITHDRAWN, "mark", "lift")
    await sweeper.new().once()
    thing = site.node(node.name)
    assert "medevac.dev/mark" not in thing["metadata"].get("annotations", {})
    assert not thing["spec"].get("unschedulable")
    assert sweeper.chat.texts == []


async def test_a_mark_that_was_left_on_purpose_stays_and_is_told_once_whoever_looks(
    site: Site, sweeper: Sweeper
) -> None:
    node = marked(site, sweeper)
    sweeper.ended(node, End.WITHDRAWN, "mark")
    for _ in range(3):
        await sweeper.new().once()
    assert written(site.node(node.name))["incident"] == "inc-1"
    [page] = sweeper.chat.texts
    assert node.name in page


async def test_a_mark_that_no_ledger_knows_is_handed_over_and_never_lifted(site: Site, sweeper: Sweeper) -> None:
    """Another installation's, or a ledger that was lost."""
    node = marked(site, sweeper)
    before = as_left(site.node(node.name))
    for _ in range(2):
        await sweeper.new().once()
    [(_, name, event)] = sweeper.engine.reported
    assert (name, event.actionable) == (node.name, False)
    assert len(sweeper.chat.texts) == 1
    assert written(site.node(node.name))["incident"] == "inc-1"
    assert as_left(site.node(node.name)) == before, "looking writes nothing"


async def test_an_account_that_may_not_write_says_so(
    site: Site, sweeper: Sweeper, connect: Connect, tmp_path: Path
) -> None:
    node = marked(site, sweeper)
    (tmp_path / "observing").mkdir()
    observing = Sweeper(tmp_path / "observing", connect("observe"))
    observing.ended(node, End.RETURNED, "mark")
    await observing.new().once()
    [page] = observing.chat.texts
    assert "forbidden" in page
    observing.close()
