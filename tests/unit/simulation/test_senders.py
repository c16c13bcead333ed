"""What the simulated senders say is read as it is meant, by the parsers of the real ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from medevac.events.event import HealthEvent, Kind
from medevac.events.parsing import Payload
from medevac.events.registry import read
from medevac.fleet.node import Node
from simulation import senders
from simulation.world import World

AT = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)


def heard(delivery: senders.Delivery) -> HealthEvent:
    assert delivery.path == f"/v1/events/{delivery.source}"
    payload = Payload(delivery.body, {name.lower(): value for name, value in delivery.headers.items()})
    parsed = read(delivery.source, payload)
    assert parsed.refused == ()
    (event,) = parsed.events
    return event


@pytest.fixture
def node(world: World) -> Node:
    return world.nodes()[4]


@pytest.mark.parametrize("sender", [senders.alertmanager_xid, senders.nvsentinel_xid, senders.kmsg_xid])
@pytest.mark.parametrize("xid", [79, 119, 95])
def test_an_xid_is_heard_on_its_node_and_gpu(node: Node, sender: senders.XidSender, xid: int) -> None:
    event = heard(sender(node, xid, AT, gpu=2))
    assert (event.kind, event.fault, event.subject) == (Kind.FAULT, f"xid/{xid}", node.name)
    assert event.actionable
    assert "pci:0000:3a:00" in event.entities


def test_alertmanager_takes_back_what_it_said(node: Node) -> None:
    fires = heard(senders.alertmanager_xid(node, 79, AT))
    clears = heard(senders.alertmanager_xid(node, 79, AT, resolved_at=AT + timedelta(minutes=5)))
    assert clears.kind is Kind.RECOVERED
    assert clears.dedupe_key == fires.dedupe_key


def test_nvsentinel_takes_back_what_it_said(node: Node) -> None:
    fires = heard(senders.nvsentinel_xid(node, 79, AT))
    clears = heard(senders.nvsentinel_xid(node, 79, AT, healthy=True))
    assert (fires.kind, clears.kind) == (Kind.FAULT, Kind.RECOVERED)
    assert clears.subject == node.name


def test_a_silent_node_is_a_fault_of_its_condition(node: Node) -> None:
    event = heard(senders.node_not_ready(node, AT))
    assert (event.kind, event.subject) == (Kind.FAULT, node.name)
    assert event.fault in ("condition/Ready", "alert/KubeNodeNotReady")


def test_a_measurement_is_a_number_for_thresholds(node: Node) -> None:
    event = heard(senders.measurement(node, "gpu_temp", 78.1, AT, gpu=2))
    assert (event.kind, event.subject, event.cluster) == (Kind.MEASUREMENT, node.name, "sim-a")
    assert event.measurement is not None
    assert (event.measurement.name, event.measurement.value, event.measurement.unit) == ("gpu_temp", 78.1, "C")
    assert event.measurement.window_s == 60
    assert "gpu:2" in event.entities


def test_gpus_of_a_node_differ_and_stay_the_same(node: Node) -> None:
    uuids = [senders.gpu_uuid(node, gpu) for gpu in range(8)]
    assert len(set(uuids)) == 8
    assert uuids == [senders.gpu_uuid(node, gpu) for gpu in range(8)]
    assert len({senders.pci(gpu) for gpu in range(8)}) == 8
