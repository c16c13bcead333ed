"""A monitor gone quiet: one event of its class, told once, cleared when it is heard, and nothing of any node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.failures import Bounded
from activities.folding import Folding
from activities.registry import Registry
from activities.storage import alive
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.classes import FaultClass
from medevac.faults.faultset import Change, FaultSet
from simulation.adapters import SimulatedChat
from simulation.world import World
from tests.unit.worker.conftest import StubEngine
from worker import metrics
from worker.config import load_config
from worker.meanwhile import Meanwhile
from worker.quiet import FAULT, Monitor, Quiet, expectations, rate
from worker.stores import Stores
from worker.sweep import Sweep
from worker.threads import Threads

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def hear(stores: Stores, at: datetime, fault: str = "alert/X", **more: object) -> None:
    said = HealthEvent.model_validate(
        {"source": "alertmanager", "sender": "prometheus", "id": f"{fault}{at}", "dedupe_key": fault, "fault": fault,
         "kind": Kind.INFO, "statement": Statement.LEVEL, "received_at": at, **more}
    )  # fmt: skip
    stores.ledger.see_events([(said, None, "recorded")])


def beat(stores: Stores, *minutes: float, cluster: str = "main") -> None:
    for minute in minutes:
        hear(stores, NOW + minute * MINUTE, "alert/Watchdog", cluster=cluster)


def told(stores: Stores) -> list[Kind]:
    return [
        seen.event.kind for seen in reversed(stores.ledger.events_since(NOW - 60 * MINUTE)) if seen.event.fault == FAULT
    ]


def sweep_of(stores: Stores, engine: StubEngine, registry: Registry, world: World, clock: Clock, quiet: Quiet) -> Sweep:
    return Sweep(
        stores, engine, SimulatedChat(world), Folding(stores.ledger, Bounded()), Meanwhile(registry, stores.ledger),
        Threads(2), 30.0, clock, quiet=quiet,
    )  # fmt: skip


async def test_a_heartbeat_that_stops_is_told_once_and_cleared_when_it_beats(
    stores: Stores, engine: StubEngine, registry: Registry, world: World, clock: Clock
) -> None:
    sweeps = [
        sweep_of(stores, engine, registry, world, clock, Quiet(stores.ledger, {}, ["prometheus"])) for _ in range(2)
    ]
    beat(stores, 0, 5, 10, 15)
    for minute, silent, events in (
        (24, 0, []),  # less than two of its intervals
        (26, 1, [Kind.FAULT]),
        (31, 1, [Kind.FAULT]),
        (60 * 9, 1, [Kind.FAULT]),  # longer than its rate is learned from
    ):
        clock.now = NOW + minute * MINUTE
        for sweep in sweeps:
            await sweep.once()
        assert told(stores) == events, minute
        found = [sample.value for family in metrics.QUIET.collect() for sample in family.samples]
        assert sum(found) == silent
    beat(stores, 60 * 9, 60 * 9 + 5, 60 * 9 + 10, 60 * 9 + 15)
    clock.now = NOW + (60 * 9 + 16) * MINUTE
    for sweep in sweeps:
        await sweep.once()
    assert told(stores) == [Kind.FAULT, Kind.RECOVERED]
    assert not [sample for family in metrics.QUIET.collect() for sample in family.samples]
    assert not engine.reported  # nothing of it ever reaches a node's workflow


def test_a_sender_is_expected_as_the_configuration_says(stores: Stores) -> None:
    quiet = Quiet(stores.ledger, {Monitor("prometheus"): 5 * MINUTE})
    assert quiet.look(NOW) == ([], [])
    silent, news = quiet.look(NOW + 11 * MINUTE)
    assert silent == news
    assert "has not been heard yet" in silent[0].text
    hear(stores, NOW + 12 * MINUTE)
    assert quiet.look(NOW + 20 * MINUTE) == ([], [])


CONFIGURED = """\
installation: acme
clusters: [{name: main, kind: simulation}, {name: east, kind: simulation}]
providers: [{name: skyline, kind: simulation}]
queues:
  - {name: aws, url: "https://sqs/1/q", clusters: [main]}
  - {name: beats, url: "https://sqs/1/b", clusters: [main], expected_every_s: 300}
pollers:
  - {name: gpud, clusters: [main], every_s: 60, targets: [{url: "https://n:1", node: n}]}
  - {name: rare, clusters: [main], expected_every_s: 900, targets: [{url: "https://n:1", node: n}]}
watchers:
  - {name: nodes, clusters: [main, east], expected_every_s: 120}
  - {name: others, clusters: [main]}
"""


def test_pollers_are_expected_by_their_own_pace_and_the_rest_where_it_is_said(tmp_path: Path, stores: Stores) -> None:
    file = tmp_path / "medevac.yaml"
    file.write_text(CONFIGURED)
    found = expectations(load_config(file))
    assert {monitor.name: every.total_seconds() for monitor, every in found.items()} == {
        "beats": 300,
        "gpud": 180,
        "rare": 900,
        "nodes/main": 120,
        "nodes/east": 120,
    }
    quiet = Quiet(stores.ledger, found)
    quiet.look(NOW)
    for name in ("gpud", "nodes/main"):
        alive.say(stores.database, name, NOW + 6 * MINUTE)
    silent, _ = quiet.look(NOW + 7 * MINUTE)
    assert [one.monitor.name for one in silent] == ["nodes/east"], "each cluster by its own"
    silent, _ = quiet.look(NOW + 13 * MINUTE)
    assert {one.monitor.name for one in silent} == {"beats", "gpud", "nodes/main", "nodes/east"}


def test_each_cluster_has_a_heartbeat_of_its_own(stores: Stores) -> None:
    beat(stores, 0, 5, 10, 15)
    beat(stores, 0, 5, 10, 15, 20, 25, cluster="other")
    silent, _ = Quiet(stores.ledger, {}).look(NOW + 27 * MINUTE)
    assert [(one.monitor.cluster, one.monitor.beat) for one in silent] == [("main", "Watchdog")]


def test_the_silence_is_of_the_monitor_class_and_opens_no_fault(stores: Stores) -> None:
    beat(stores, 0, 5, 10, 15)
    (silence,), _ = Quiet(stores.ledger, {}).look(NOW + 60 * MINUTE)
    event = silence.event(NOW + 60 * MINUTE)
    assert (event.fault_class, event.subject, event.actionable) == (FaultClass.MONITOR, None, False)
    assert FaultSet().observe(event, NOW).change is Change.IGNORED


def test_its_own_words_are_no_sign_of_life(stores: Stores) -> None:
    quiet = Quiet(stores.ledger, {Monitor("prometheus"): MINUTE})
    quiet.look(NOW)
    (silence,), _ = quiet.look(NOW + 5 * MINUTE)
    quiet.note(silence, NOW + 5 * MINUTE)
    silent, news = quiet.look(NOW + 6 * MINUTE)
    assert (len(silent), news) == (1, [])


@pytest.mark.parametrize(
    ("minutes", "every"),
    [((0, 5, 10), None), ((0, 5, 10, 15), 5), ((0, 0.01, 5, 5.01, 10, 10.01, 15, 15.01), 5),
     ((0, 5, 10, 15, 20, 25, 90, 95), 5), ((), None)],
)  # fmt: skip
def test_a_rate_needs_gaps_and_neither_a_pair_of_senders_nor_an_outage_changes_it(
    minutes: tuple[float, ...], every: float | None
) -> None:
    found = rate([NOW + m * MINUTE for m in minutes])
    assert (found is None) == (every is None)
    assert found is None or abs(found - (every or 0) * MINUTE) < 2 * timedelta(seconds=1)
