"""PagerDuty, Opsgenie, Datadog (with the body template that is shipped for it) and Grafana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from medevac.events.event import Kind, Statement
from medevac.events.parsing import ParseError
from medevac.events.registry import detect
from tests.unit.events.payloads import an_alert, forms, only, parsed, payload

TEMPLATE = Path(__file__).parents[3] / "deploy/senders/datadog/webhook-payload.json"


# --- PagerDuty -----------------------------------------------------------------------------------------------


def webhook(kind: str, title: str = "XID 79 on worker-3", **data: Any) -> dict[str, Any]:
    incident = {
        "id": "Q1",
        "type": "incident",
        "title": title,
        "incident_key": "k",
        "created_at": "2026-03-01T08:00:00Z",
    }
    return {
        "event": {"id": f"e-{kind}", "event_type": kind, "occurred_at": "2026-03-01T08:05:00Z", "data": incident | data}
    }


def test_an_incident_is_raised_taken_back_and_otherwise_talked_about() -> None:
    raised = only("pagerduty", webhook("incident.triggered"))
    assert (raised["kind"], raised["fault"], raised["subject"]) == ("fault", "xid/79", "worker-3")
    over = only("pagerduty", webhook("incident.resolved"))
    assert (over["kind"], over["dedupe_key"], over["ends_at"]) == (
        "recovered",
        raised["dedupe_key"],
        "2026-03-01T08:05:00Z",
    )
    for kind in ("incident.acknowledged", "incident.annotated", "incident.escalated", "incident.priority_updated"):
        talk = only("pagerduty", webhook(kind))
        assert (talk["kind"], talk["actionable"]) == ("info", False)


@pytest.mark.parametrize(
    ("title", "fault", "subject"),
    [
        ("Disk nearly full on storage", "alert/Disk nearly full on storage", None),
        ("GPU hot on worker-3 and on worker-4", "alert/GPU hot on worker-3 and on worker-4", None),
        ("Xid 48 and Xid 63 on worker-3", "alert/Xid 48 and Xid 63 on worker-3", "worker-3"),
        ("5 Xid errors in 10 min on 3 nodes", "alert/5 Xid errors in 10 min on 3 nodes", None),
    ],
)
def test_titles_are_never_guessed_at(title: str, fault: str, subject: str | None) -> None:
    found = only("pagerduty", webhook("incident.triggered", title))
    assert (found["fault"], found["subject"]) == (fault, subject)


def test_a_note_names_its_incident_by_reference() -> None:
    body = webhook(
        "incident.annotated", type="incident_note", content="looking", incident={"id": "Q1", "summary": "XID 79"}
    )
    assert only("pagerduty", body)["dedupe_key"] == only("pagerduty", webhook("incident.triggered"))["dedupe_key"]


def test_a_title_that_calls_it_a_node_names_the_machine_whatever_its_name() -> None:
    found = only("pagerduty", webhook("incident.triggered", title="XID 79 on node gpu-12", incident_key=""))
    assert (found["fault"], found["subject"], found["actionable"]) == ("xid/79", "gpu-12", True)
    index = only("pagerduty", webhook("incident.triggered", title="XID 79 on gpu-12", incident_key=""))
    assert index["subject"] is None


def v2(action: str = "trigger", **body: Any) -> dict[str, Any]:
    held = {"summary": "GPU trouble", "source": "worker-3", "severity": "error", **body}
    return {"routing_key": "SECRETSECRET", "event_action": action, "dedup_key": "k-1", "payload": held}


def test_events_v2() -> None:
    details = {"xid": "94", "gpu": 3, "pci_bus_id": "00000000:3B:00.0"}
    raised = only("pagerduty", v2(custom_details=details, timestamp="2026-03-01T08:00:00Z"))
    assert (raised["fault"], raised["subject"], raised["severity"]) == ("xid/94", "worker-3", None)
    assert raised["entities"] == ["gpu:3", "pci:0000:3b:00"]
    over = only("pagerduty", {"routing_key": "SECRETSECRET", "event_action": "resolve", "dedup_key": "k-1"})
    assert (over["kind"], over["dedupe_key"]) == ("recovered", raised["dedupe_key"])
    assert "SECRETSECRET" not in json.dumps([raised, over])
    assert forms("pagerduty", {"routing_key": "r", "payload": {"summary": "Deployed"}}) == []
    with pytest.raises(ParseError, match="event_action"):
        parsed("pagerduty", v2("explode"))


def test_our_own_page_is_an_echo() -> None:
    body = v2() | {"dedup_key": "medevac/inc-1"}
    assert parsed("pagerduty", body).events[0].marker


# --- Opsgenie ------------------------------------------------------------------------------------------------


def opsgenie(action: str, message: str = "Xid 79", **alert: Any) -> dict[str, Any]:
    held = {
        "alertId": "a-1",
        "alias": "x",
        "message": message,
        "createdAt": 1_772_352_000_000,
        "updatedAt": 1_772_352_300_000,
    }
    return {"action": action, "alert": held | {"entity": "worker-3"} | alert, "integrationId": "i"}


@pytest.mark.parametrize(
    ("action", "kind"),
    [("Create", "fault"), ("Close", "recovered"), ("Delete", "recovered"), ("Acknowledge", "info"), ("AddNote", "info"),
     ("Escalate", "info"), ("UpdatePriority", "info"), ("AssignOwnership", "info")],
)  # fmt: skip
def test_what_an_action_means(action: str, kind: str) -> None:
    found = only("opsgenie", opsgenie(action))
    assert (found["kind"], found["fault"], found["subject"]) == (kind, "xid/79", "worker-3")
    assert found["starts_at"] == "2026-03-01T08:00:00Z"
    assert found["dedupe_key"] == only("opsgenie", opsgenie("Create"))["dedupe_key"]
    assert found["actionable"] is (kind != "info")


def test_the_machine_is_found_where_it_is_named() -> None:
    assert only("opsgenie", opsgenie("Create", entity="", details={"host": "worker-9"}))["subject"] == "worker-9"
    assert only("opsgenie", opsgenie("Create", entity="", tags=["host:worker-8", "gpu"]))["subject"] == "worker-8"
    assert only("opsgenie", opsgenie("Create", entity="rm -rf /"))["subject"] is None


# --- Datadog -------------------------------------------------------------------------------------------------


def datadog(transition: str = "Triggered", **more: Any) -> dict[str, Any]:
    return {
        "title": "[P1] [Triggered on {host:worker-3,gpu:4}] GPU fell off",
        "body": "%%%\nXid 79\n%%%",
        "alert_transition": transition,
        "monitor_id": "42",
        "id": "9001",
        "scopes": "host:worker-3,gpu:4",
        "tags": "host:worker-3,gpu:4,env:prod,env:eu",
        "date": "1772352000000",
        "last_updated": "1772352000000",
        **more,
    }


def test_transitions() -> None:
    raised = only("datadog", datadog())
    assert (raised["kind"], raised["fault"], raised["subject"]) == ("fault", "xid/79", "worker-3")
    assert (raised["entities"], raised["starts_at"]) == (["gpu:4"], "2026-03-01T08:00:00Z")
    for word, kind in (("Re-Triggered", "fault"), ("Renotify", "fault"), ("Warn", "fault"), ("Recovered", "recovered")):
        found = only("datadog", datadog(word))
        assert (found["kind"], found["dedupe_key"]) == (kind, raised["dedupe_key"])
    blind = only("datadog", datadog("No Data"))
    assert (blind["kind"], blind["fault"], blind["actionable"]) == ("info", "alert/GPU fell off", False)
    with pytest.raises(ParseError, match="alert_transition"):
        parsed("datadog", datadog("Whatever"))


def test_a_scope_without_one_host_names_none() -> None:
    found = only("datadog", datadog(scopes="env:prod", tags="host:a1,host:b2"))
    assert found["subject"] is None


def render(template: str, values: dict[str, str]) -> str:
    """As Datadog does: every `$NAME` that it knows is replaced, the others stay."""
    for name in sorted(values, key=len, reverse=True):
        template = template.replace(f"${name}", values[name])
    return template


VALUES = {
    "EVENT_TITLE": "[Triggered on {host:worker-3}] GPU fell off",
    "EVENT_MSG": "Xid 79",
    "ALERT_TRANSITION": "Triggered",
    "ALERT_ID": "42",
    "ID": "9001",
    "ALERT_SCOPE": "host:worker-3",
    "TAGS": "host:worker-3",
    "HOSTNAME": "worker-3",
    "DATE": "1772352000000",
    "LAST_UPDATED": "1772352000000",
    "ALERT_PRIORITY": "P1",
    "ALERT_TYPE": "error",
    "ALERT_QUERY": "q",
    "EVENT_TYPE": "query_alert_monitor",
    "LINK": "https://app.datadoghq.com/event/1",
    "ORG_ID": "1",
    "ORG_NAME": "o",
}


def test_the_shipped_template_renders_to_what_is_read() -> None:
    body = render(TEMPLATE.read_text(), VALUES)
    assert "$" not in body
    found = only("datadog", body)
    assert (found["subject"], found["fault"], found["kind"]) == ("worker-3", "xid/79", "fault")
    with pytest.raises(ParseError, match="not rendered"):
        parsed("datadog", TEMPLATE.read_text())


# --- Grafana -------------------------------------------------------------------------------------------------


def grafana(*alerts: Any, **more: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "orgId": 1,
        "title": "t",
        "state": "alerting",
        "status": "firing",
        "alerts": list(alerts),
    } | more


def test_grafana_reads_each_alert_as_alertmanager_does() -> None:
    found = forms("grafana", grafana(an_alert(), an_alert("resolved"), state="ok", status="resolved"))
    assert [(e["kind"], e["fault"], e["subject"]) for e in found] == [
        ("fault", "xid/79", "worker-3"),
        ("recovered", "xid/79", "worker-3"),
    ]
    assert {e["source"] for e in found} == {"grafana"}
    assert found[0]["dedupe_key"] == found[1]["dedupe_key"]
    valued = parsed("grafana", grafana(an_alert(values={"B": 90.5}))).events[0]
    assert valued.detail["values"] == {"B": 90.5}
    assert valued.statement is Statement.LEVEL


@pytest.mark.parametrize("name", ["DatasourceNoData", "DatasourceError"])
def test_a_blind_monitor_is_no_fault_of_the_machine(name: str) -> None:
    found = parsed(
        "grafana", grafana(an_alert(labels={"alertname": name, "rulename": "Xid", "err_code": None}))
    ).events[0]
    assert (found.kind, found.fault, found.actionable) == (Kind.INFO, f"alert/{name}", False)


def test_a_bad_alert_is_refused_alone_and_another_version_whole() -> None:
    found = parsed("grafana", grafana(an_alert(labels={"node": "../x"}), an_alert(), truncatedAlerts=3))
    assert (len(found.events), [r.where for r in found.refused], found.truncated) == (1, ["alert 1"], 3)
    with pytest.raises(ParseError, match="version"):
        parsed("grafana", grafana(version="9"))


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("pagerduty", webhook("incident.triggered")),
        ("pagerduty", v2()),
        ("opsgenie", opsgenie("Create")),
        ("datadog", datadog()),
        ("grafana", grafana(an_alert())),
    ],
)
def test_recognised(source: str, body: Any) -> None:
    assert source == detect(payload(body)).SOURCE


def test_what_pagerduty_no_longer_sends_is_refused_with_advice() -> None:
    old = {"messages": [{"event": "incident.trigger", "incident": {}}]}
    with pytest.raises(ParseError, match="V3 webhook subscription"):
        parsed("pagerduty", old)
    first = {"service_key": "k", "event_type": "trigger", "description": "Xid 79"}
    with pytest.raises(ParseError, match="routing_key"):
        parsed("pagerduty", first)
    assert detect(payload(old)).SOURCE == detect(payload(first)).SOURCE == "pagerduty"


def test_the_monitor_that_pages_is_no_machine() -> None:
    def page(firing: str) -> dict[str, Any]:
        held = {
            "summary": "GpuXid",
            "source": "Alertmanager",
            "severity": "error",
            "custom_details": {"firing": firing},
        }
        return {"routing_key": "r", "event_action": "trigger", "dedup_key": "k1", "payload": held}

    labels = "Labels:\n - alertname = GpuXid\n - node = worker-3\nSource: x\n"
    assert only("pagerduty", page(labels))["subject"] == "worker-3"
    assert only("pagerduty", page(labels + labels.replace("worker-3", "worker-4")))["subject"] is None


def test_a_priority_stands_before_datadogs_title() -> None:
    body = {
        "id": "5",
        "event_type": "query_alert_monitor",
        "title": "[P2] [Triggered on {host:worker-3}] Xid 79",
        "body": "",
    }
    found = only("datadog", body)
    assert (found["kind"], found["fault"], found["subject"]) == ("fault", "xid/79", "worker-3")
    assert detect(payload(body)).SOURCE == "datadog"


def test_tags_may_be_a_list() -> None:
    body = {**datadog(), "tags": ["host:worker-3", "gpu:4"], "scopes": ["host:worker-3"]}
    found = only("datadog", body)
    assert (found["subject"], found["entities"]) == ("worker-3", ["gpu:4"])
