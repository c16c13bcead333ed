"""More parts than are read of one payload: the first are taken, the others told, and nothing is lost in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.event import Kind
from medevac.events.parsing import ParseError
from medevac.events.reading import MAX_PARTS
from tests.unit.events.payloads import cloud_event, parsed, webhook

MORE = 7
MANY = range(MAX_PARTS + MORE)


def alerts() -> dict[str, Any]:
    shared = {"status": "firing", "startsAt": "2026-03-01T08:00:00Z"}
    return webhook(*({**shared, "labels": {"alertname": "NodeDown", "node": f"w{i}"}} for i in MANY), groupKey="{}")


def health_entities() -> dict[str, Any]:
    return {
        "source": "aws.health",
        "detail-type": "AWS Health Event",
        "detail": {
            "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "affectedEntities": [{"entityValue": f"i-{i:017x}"} for i in MANY],
        },
    }


def down(i: int) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    return {"kind": "Node", "metadata": {"name": f"w{i}"}, "status": status}


PAYLOADS: dict[str, tuple[str, Any]] = {
    "alerts": ("alertmanager", alerts()),
    "alerts of Grafana": ("grafana", {**alerts(), "version": "1", "orgId": 1}),
    "a host list": ("slurm", f"error: Nodes w[1-{len(MANY)}] not responding"),
    "lines of nodes": ("slurm", "".join(f"error: Nodes w{i} not responding\n" for i in MANY)),
    "nodes": ("slurm", {"nodes": [{"name": f"w{i}", "state": ["DOWN"]} for i in MANY]}),
    "entities": ("aws", health_entities()),
    "records": ("aws", {"Records": [{"body": json.dumps({"noticeTime": f"{i}"})} for i in MANY]}),
    "a batch": ("cloudevents", [cloud_event({"node": f"w{i}", "xid": 79}, id=str(i)) for i in MANY]),
    "items": ("k8s_node", {"kind": "List", "items": [down(i) for i in MANY]}),
    "lines of objects": ("k8s_node", "\n".join(json.dumps(down(i)) for i in MANY)),
    "our own": ("generic", {"events": [{"node": f"w{i}", "fault": "xid/79"} for i in MANY]}),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_of_too_many_parts_the_first_are_taken_and_the_others_told(name: str) -> None:
    source, body = PAYLOADS[name]
    found = parsed(source, body)
    *taken, told = found.events
    assert (len(taken), found.truncated, found.refused) == (MAX_PARTS, MORE, ())
    assert (told.kind, told.actionable, told.subject) == (Kind.INFO, False, None)
    assert str(MORE) in told.summary


@pytest.mark.parametrize("source", ["alertmanager", "grafana"])
def test_the_way_out_of_too_many_alerts_is_named(source: str) -> None:
    body = alerts() if source == "alertmanager" else {**alerts(), "version": "1", "orgId": 1}
    told = parsed(source, body).events[-1]
    assert "max_alerts" in told.summary
    assert "group_by" in told.summary


def test_alerts_held_back_and_alerts_beyond_are_counted_together() -> None:
    found = parsed("alertmanager", {**alerts(), "truncatedAlerts": 5})
    assert found.truncated == 5 + MORE
    assert [e.detail["truncated_alerts"] for e in found.events if e.fault == "alertmanager/truncated"] == [5 + MORE]


def test_a_journal_of_many_records_is_read_to_its_end() -> None:
    quiet = json.dumps({"MESSAGE": "x", "_TRANSPORT": "kernel"})
    last = json.dumps({"MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, fell", "_TRANSPORT": "kernel"})
    found = parsed("kmsg", "\n".join([quiet] * len(MANY) + [last]))
    assert [e.fault for e in found.events] == ["xid/79"]


def test_a_list_longer_than_any_cluster_is_none() -> None:
    with pytest.raises(ParseError, match="more nodes than allowed"):
        parsed("slurm", "error: Nodes w[0-99999999] not responding")
    with pytest.raises(ParseError, match="more than any cluster has"):
        parsed("slurm", "error: Nodes w[0-60000] not responding\n" * 20)


GPUD_STATE = {"name": "xid", "health": "Unhealthy", "reason": "Xid 13, 79 detected"}
GPUD_EVENT = {"name": "xid", "type": "Fatal", "time": "2026-03-01T08:00:00Z", "message": "Xid 13, 79"}
ECS = {
    "source": "aws.ecs",
    "detail-type": "ECS Container Instance Health Change",
    "detail": {
        "ec2InstanceId": "i-0123456789abcdef0",
        "details": [{"type": "ACCELERATED_COMPUTE", "status": "IMPAIRED", "statusReason": "XID 13 and 79"}],
    },
}


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("gpud", [{"component": "xid", "states": [GPUD_STATE]}]),
        ("gpud", [{"component": "xid", "events": [GPUD_EVENT]}]),
        ("nhc", "w1: ERROR:  nhc:  Health check failed:  check_nvsmi:  Xid 13 and 79 seen\n"),
        ("aws", ECS),
    ],
)
def test_a_health_check_that_names_several_xids_says_each(source: str, body: Any) -> None:
    found = parsed(source, body).events
    assert [e.fault for e in found] == ["xid/13", "xid/79"]
    assert len({(e.id, e.dedupe_key) for e in found}) == 2, "told apart"


def test_what_is_healthy_again_takes_back_all_that_it_said() -> None:
    found = parsed("gpud", [{"component": "xid", "states": [GPUD_STATE]}]).events
    (over,) = parsed("gpud", [{"component": "xid", "states": [{"name": "xid", "health": "Healthy"}]}]).events
    assert {e.series for e in found} == {over.dedupe_key}
