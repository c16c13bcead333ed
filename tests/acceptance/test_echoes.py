"""Echoes: a full reboot and a full replacement, with all that clouds, monitors and pagers say about them in their own
formats, late, twice and out of order. Each is one incident, and each thing is done to the machine once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from medevac.fleet.node import Node
from medevac.incident import End, IncidentView
from simulation import senders
from simulation.hazards import Effect
from simulation.layout import SKYLINE
from simulation.senders import Delivery
from tests.acceptance import accounting
from tests.acceptance.stack import POLICY, Running, stack, utcnow
from worker.home import Home

SOURCES = (
    "alertmanager, cloudevents, nvsentinel, kmsg, generic, aws, gcp, azure, oci, k8s_node, slurm, pagerduty, opsgenie"
)
AT_ONCE = 8
TIMING = "demo"
"""Whose grace for echoes of a remedy is longer than what is delivered here takes on a busy machine."""
INSTANCE = "i-0aa11bb22cc33dd44"
OCID = "ocid1.instance.oc1.phx.anyhqljrexampleuniqueid07"
VM = "/subscriptions/aaaa/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/"


@pytest.fixture
def hears_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated installation's sender, let post every source used here."""
    make = Home.make

    def made(home: Home, *args: Any) -> None:
        make(home, *args)
        text = home.config.read_text()
        assert "sources: [alertmanager, cloudevents, nvsentinel, kmsg, generic]" in text
        home.config.write_text(text.replace("[alertmanager, cloudevents, nvsentinel, kmsg, generic]", f"[{SOURCES}]"))

    monkeypatch.setattr(Home, "make", made)


@pytest.fixture
def patient(tmp_path: Path) -> Path:
    """A policy that watches a returned node long enough for what comes late."""
    text = POLICY.read_text()
    assert "\nprobation: 1s\n" in text
    file = tmp_path / "patient.yaml"
    file.write_text(text.replace("\nprobation: 1s\n", "\nprobation: 20s\n"))
    return file


def named(up: Running, node: Node, name: str) -> None:
    """As its provider calls the machine; the node's hostname label says so."""
    with closing(sqlite3.connect(up.home.world)) as world, world:
        world.execute(
            """UPDATE machines SET labels = json_set(labels, '$."kubernetes.io/hostname"', ?) WHERE id = ?""",
            (name, node.machine.id),
        )


# -- what they say ---------------------------------------------------------------------------------------------


def _post(source: str, body: Any) -> Delivery:
    return Delivery(source, body.encode() if isinstance(body, str) else json.dumps(body).encode(), senders.JSON)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def state_change(state: str, at: datetime) -> Delivery:
    return _post("aws", {
        "id": f"ev-{state}", "detail-type": "EC2 Instance State-change Notification", "source": "aws.ec2",
        "account": "123456789012", "time": _iso(at), "region": "eu-north-1", "resources": [],
        "detail": {"instance-id": INSTANCE, "state": state},
    })  # fmt: skip


def lifecycle_hook(name: str, at: datetime) -> Delivery:
    return _post("aws", {
        "Service": "AWS Auto Scaling", "LifecycleTransition": f"autoscaling:{name}", "AutoScalingGroupName": "gpus",
        "LifecycleHookName": "hook", "LifecycleActionToken": f"token-{name}", "EC2InstanceId": INSTANCE,
        "RequestId": f"r-{name}", "Time": _iso(at),
    })  # fmt: skip


def audit(node: Node, method: str, at: datetime) -> Delivery:
    return _post("gcp", {
        "protoPayload": {"methodName": f"v1.compute.instances.{method}",
                         "resourceName": f"projects/p/zones/z-1/instances/{node.name}"},
        "insertId": f"in-{method}", "timestamp": _iso(at), "severity": "NOTICE", "logName": "projects/p/logs/activity",
    })  # fmt: skip


def azure_operation(node: Node, verb: str, at: datetime) -> Delivery:
    name = f"Microsoft.Compute/virtualMachines/{verb}/action"
    return _post("azure", {"schemaId": "Microsoft.Insights/activityLogs", "data": {"status": "Activated", "context": {
        "activityLog": {"eventSource": "Administrative", "eventTimestamp": _iso(at), "eventDataId": f"d-{verb}",
                        "operationName": name, "resourceId": VM + node.name, "status": "Succeeded"}}}})  # fmt: skip


def azure_health(node: Node, state: str, at: datetime) -> Delivery:
    return _post("azure", [{
        "id": f"h-{state}", "subject": VM + node.name, "eventTime": _iso(at),
        "eventType": "Microsoft.ResourceNotifications.HealthResources.AvailabilityStatusChanged",
        "data": {"resourceInfo": {"properties": {"targetResourceId": VM + node.name, "occurredTime": _iso(at),
                                                 "availabilityState": state}}},
    }])  # fmt: skip


def oci(name: str, at: datetime) -> Delivery:
    return _post("oci", {
        "eventType": f"com.oraclecloud.computeapi.{name}", "cloudEventsVersion": "0.1", "eventID": f"o-{name}",
        "source": "ComputeApi", "eventTime": _iso(at), "data": {"resourceId": OCID, "additionalDetails": {}},
    })  # fmt: skip


def ready(node: Node, status: str, at: datetime) -> Delivery:
    reason = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}[status]
    return _post("k8s_node", {"type": "MODIFIED", "object": {
        "kind": "Node", "metadata": {"name": node.name},
        "status": {"conditions": [
            {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": _iso(at)}]},
    }})  # fmt: skip


def slurm(node: Node, states: list[str], at: datetime) -> Delivery:
    reason = {"reason": "Not responding", "reason_set_by_user": "slurm", "reason_changed_at": at.timestamp()}
    return _post("slurm", {"nodes": [{"name": node.name, "state": states, **reason}]})


def shipped(node: Node, xid: int) -> Delivery:
    """The kernel's line as the shipped snippets send it: with the boot in which it was read."""
    sent = senders.kmsg_xid(node, xid, utcnow())
    return replace(sent, headers={**sent.headers, "X-Medevac-Node": node.name,
                                  "X-Medevac-Boot-Id": node.machine.boot_id or ""})  # fmt: skip


def own_alert(node: Node, at: datetime) -> Delivery:
    alert = senders._alert({"alertname": "MedevacIncidentOverdue", "node": node.name}, "no news of it", at, None)
    return senders.alertmanager([alert])


def own_page(incident: str, node: Node, event: str, at: datetime) -> Delivery:
    """Our page of the incident, as PagerDuty's webhook tells it back."""
    return _post("pagerduty", {"event": {
        "id": f"pd-{event}", "event_type": f"incident.{event}", "occurred_at": _iso(at),
        "data": {"id": "PQ1", "type": "incident", "title": f"medevac: xid/119 on {node.name}", "created_at": _iso(at),
                 "incident_key": f"medevac/{incident}", "html_url": "https://pager.example/PQ1"}}})  # fmt: skip


def own_alias(incident: str, node: Node, action: str, at: datetime) -> Delivery:
    """The same through Opsgenie."""
    return _post("opsgenie", {"action": action, "alert": {
        "alertId": "og-1", "message": f"medevac: xid/119 on {node.name}", "alias": f"medevac/{incident}",
        "entity": node.name, "createdAt": int(at.timestamp() * 1000)}})  # fmt: skip


def still_stated(node: Node, xid: int, began: datetime) -> list[Delivery]:
    """Levels that say that something is wrong. One that is stated after the grace holds: that is no echo any more."""
    later = began + timedelta(seconds=1)
    return [
        senders.alertmanager_xid(node, xid, began),
        senders.nvsentinel_xid(node, xid, began),
        senders.node_not_ready(node, later),
        ready(node, "False", later),
        ready(node, "Unknown", later),
        slurm(node, ["DOWN", "NOT_RESPONDING"], later),
        azure_health(node, "Unavailable", later),
    ]


def whenever(node: Node, xid: int, incident: str, began: datetime) -> list[Delivery]:
    """Whatever remedy it was: log lines of the boot before it, clears, our own alert, and our own pages."""
    later = began + timedelta(seconds=1)
    return [
        shipped(node, xid),
        senders.node_not_ready(node, later, resolved_at=utcnow()),
        ready(node, "True", later),
        slurm(node, ["IDLE"], later),
        azure_health(node, "Available", later),
        own_alert(node, later),
        *(own_page(incident, node, event, later) for event in ("triggered", "acknowledged", "resolved")),
        *(own_alias(incident, node, action, later) for action in ("Create", "Acknowledge", "Close")),
    ]


def of_a_reboot(node: Node, at: datetime) -> list[Delivery]:
    return [
        *(state_change(state, at) for state in ("stopping", "stopped", "pending", "running")),
        *(audit(node, method, at) for method in ("reset", "stop", "start")),
        azure_operation(node, "restart", at),
    ]


def of_a_replacement(node: Node, at: datetime) -> list[Delivery]:
    return [
        *(oci(name, at) for name in ("terminateinstance.begin", "terminateinstance.end", "instanceaction.begin")),
        *(audit(node, method, at) for method in ("delete", "insert")),
        azure_operation(node, "delete", at),
        azure_operation(node, "deallocate", at),
    ]


# -- late, twice and out of order ------------------------------------------------------------------------------


async def echo(up: Running, deliveries: list[Delivery], seed: int) -> None:
    twice = [*deliveries, *deliveries]
    Random(seed).shuffle(twice)
    slots = asyncio.Semaphore(AT_ONCE)

    async def post(delivery: Delivery) -> None:
        async with slots:
            await up.send(delivery)

    await asyncio.gather(*(post(delivery) for delivery in twice))


def incident_of(up: Running, node: Node) -> Callable[[], IncidentView | None]:
    return lambda: up.incident(node.name)


def under_way(up: Running, incident: str, verb: Effect) -> Callable[[], bool]:
    return lambda: accounting.called(up.world.effects(), incident)[verb] > 0


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("hears_all")
async def test_a_reboot_with_all_its_echoes_is_one_incident_and_one_reboot(tmp_path: Path, patient: Path) -> None:
    async with stack(tmp_path / "up", policy=patient, timing=TIMING) as up:
        node = up.pick(SKYLINE)
        named(up, node, INSTANCE)
        up.world.inject(node.name, "xid/119")
        began = utcnow()
        await up.send(senders.alertmanager_xid(node, 119, began))
        incident = (await up.until(incident_of(up, node), "the incident is open")).id
        await up.until(under_way(up, incident, Effect.REBOOT), "it is rebooted")
        said = [*whenever(node, 119, incident, began), *of_a_reboot(node, utcnow())]
        await echo(up, [*said, *still_stated(node, 119, began)], seed=1)
        await up.until(under_way(up, incident, Effect.LIFT), "the node is back, and watched")
        await echo(up, said, seed=2)
        view = await ended(up, incident, End.RETURNED)
        assert [one.id for one in up.incidents(node.name)] == [incident]
        assert not accounting.twice(up, view, [Effect.REBOOT])
        # Edges and our own words, once more when nobody expects anything: they open nothing.
        await echo(up, [d for d in said if d.source in ("aws", "gcp", "pagerduty", "opsgenie")], seed=3)
        assert len(up.incidents()) == 1


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("hears_all")
async def test_a_replacement_with_all_its_echoes_is_one_incident_and_one_machine(tmp_path: Path, patient: Path) -> None:
    async with stack(tmp_path / "up", policy=patient, timing=TIMING) as up:
        node = up.pick(SKYLINE)
        named(up, node, OCID)
        up.world.inject(node.name, "xid/95", cure=())
        began = utcnow()
        await up.send(senders.alertmanager_xid(node, 95, began))
        incident = (await up.until(incident_of(up, node), "the incident is open")).id
        await up.until(under_way(up, incident, Effect.REQUEST), "another machine is asked for")
        said = [*whenever(node, 95, incident, began), *of_a_replacement(node, utcnow())]
        await echo(up, [*said, *still_stated(node, 95, began)], seed=1)
        await up.until(under_way(up, incident, Effect.TERMINATE), "the old one is let go")
        await echo(up, said, seed=2)
        view = await ended(up, incident, End.REPLACED)
        assert [one.id for one in up.incidents()] == [incident], "neither the old node nor the new has another"
        assert view.node != node.name
        assert not accounting.twice(up, view, [Effect.REQUEST, Effect.TERMINATE])
        await echo(up, [d for d in said if d.source in ("oci", "gcp", "pagerduty", "opsgenie")], seed=3)
        assert len(up.incidents()) == 1


async def ended(up: Running, incident: str, how: End) -> IncidentView:
    def over() -> IncidentView | None:
        view = up.stores.ledger.incident(incident)
        return view if view and view.end else None

    view: IncidentView = await up.until(over, "the incident is over")
    assert view.end is how
    return view
