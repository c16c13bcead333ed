"""Alertmanager: each alert by itself, the machine and not its pods, the label's code and not the text's."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.events.event import Kind, Statement
from medevac.events.parsing import ParseError
from tests.unit.events.payloads import UUID, an_alert, forms, only, parsed, payload, webhook

AM = "alertmanager"


def test_a_dcgm_xid_alert() -> None:
    form = only(AM, webhook(an_alert()))
    assert (form["kind"], form["fault"], form["class"], form["severity"]) == ("fault", "xid/79", "critical", "critical")
    assert form["subject"] == "worker-3"
    assert set(form["entities"]) == {"gpu:2", f"gpu-uuid:{UUID}", "pci:0000:3b:00"}
    assert form["starts_at"].startswith("2026-03-01T08:00:00.5")
    assert form["ends_at"] is None
    assert form["statement"] == "level"
    assert form["actionable"] is True


def test_status_is_read_per_alert_and_a_clear_carries_the_key_of_its_fault() -> None:
    fault, clear = forms(AM, webhook(an_alert(), an_alert("resolved"), status="firing"))
    assert (fault["kind"], clear["kind"]) == ("fault", "recovered")
    assert fault["dedupe_key"] == clear["dedupe_key"]
    assert fault["id"] != clear["id"]
    assert clear["ends_at"] is not None


def test_a_repeat_is_the_same_statement_and_a_new_firing_is_not() -> None:
    first, again = only(AM, webhook(an_alert())), only(AM, webhook(an_alert(), receiver="other"))
    assert (first["id"], first["dedupe_key"]) == (again["id"], again["dedupe_key"])
    later = only(AM, webhook(an_alert(startsAt="2026-03-02T08:00:00Z")))
    assert later["dedupe_key"] != first["dedupe_key"]
    assert later["series"] == first["series"]


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({"err_code": "74"}, "xid/74"),
        ({"err_code": "74.0"}, "xid/74"),
        ({"err_code": None, "xid": "119"}, "xid/119"),
        ({"err_code": "0"}, "alert/NodeGpuXid"),
        ({"err_code": "9223372036854775794"}, "alert/NodeGpuXid"),
        ({"err_code": "seventy-nine"}, "alert/NodeGpuXid"),
        ({"err_code": "-79"}, "alert/NodeGpuXid"),
        ({"err_code": None}, "xid/79"),  # the text's, for the alert's name speaks of Xids
        ({"err_code": None, "alertname": "DiskFull"}, "alert/DiskFull"),
        ({"err_code": None, "alertname": None}, "alert/unnamed"),
        ({"err_code": "999"}, "xid/999"),
    ],
)
def test_where_the_code_is_from(labels: dict[str, Any], fault: str) -> None:
    alert = an_alert(labels=labels, annotations={"summary": "Xid 79 on a GPU", "description": "ask Bob"})
    assert only(AM, webhook(alert))["fault"] == fault


def test_a_text_that_names_two_codes_names_none() -> None:
    alert = an_alert(labels={"err_code": None}, annotations={"summary": "Xid 79 or Xid 48"})
    assert only(AM, webhook(alert))["fault"] == "alert/NodeGpuXid"


@pytest.mark.parametrize(
    ("labels", "subject"),
    [
        ({}, "worker-3"),
        ({"exported_node": "worker-9", "node": "where-ksm-runs"}, "worker-9"),
        ({"node": None, "Hostname": "worker-4"}, "worker-4"),
        ({"node": None, "instance": "10.0.3.7:9400"}, "10.0.3.7"),
        ({"node": None, "instance": "[fd00::17]:9400"}, "fd00::17"),
        ({"node": None, "instance": "worker-5:9100"}, "worker-5"),
        ({"node": None, "instance": "localhost:9400"}, None),
        ({"node": None, "exported_pod": "llama-0", "Hostname": "llama-0"}, None),
        ({"node": None, "pod": None}, None),  # still an exporter pod's name
    ],
)
def test_the_machine_is_named_and_a_pod_is_none(labels: dict[str, Any], subject: str | None) -> None:
    form = only(AM, webhook(an_alert(labels=labels)))
    assert form["subject"] == subject
    assert form["actionable"], "the inventory may know which node holds the GPU"
    assert only(AM, webhook(an_alert(labels={**labels, "UUID": None})))["actionable"] is (subject is not None)


@pytest.mark.parametrize("name", ["../../x", "a b", "x" * 300, "node\u0000"])
def test_a_bad_name_refuses_its_alert_and_no_other(name: str) -> None:
    read = parsed(AM, webhook(an_alert(labels={"node": name}), an_alert()))
    assert [e.subject for e in read.events] == ["worker-3"]
    (refusal,) = map(str, read.refused)
    assert refusal.startswith('alert 1: node name "')
    assert "not a valid node name" in refusal


@pytest.mark.parametrize("held_back", [7, "7"])
def test_alerts_that_were_held_back_are_told(held_back: object) -> None:
    read = parsed(AM, webhook(an_alert(), truncatedAlerts=held_back))
    assert read.truncated == 7
    fault, note = read.events
    assert fault.kind is Kind.FAULT
    assert (note.kind, note.fault, note.actionable) == (Kind.INFO, "alertmanager/truncated", False)
    assert "7 more" in note.summary


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": "5"}, 'version "5", expected "4"'),
        ({"version": None}, "version is missing"),
        ({"alerts": None}, "alerts is missing"),
        ({"alerts": {}}, "alerts has the wrong type"),
        ({"truncatedAlerts": "many"}, "truncatedAlerts has the wrong type"),
        ({"truncatedAlerts": -1}, "truncatedAlerts is negative"),
        ({"commonLabels": []}, "commonLabels has the wrong type"),
    ],
)
def test_a_body_that_is_no_version_4_webhook_is_refused_whole(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ParseError, match=complaint):
        parsed(AM, webhook(an_alert(), **change))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"status": "pending"}, 'status is "pending"'),
        ({"status": None}, "status is missing"),
        ({"labels": {"gpu": {"n": 1}}}, "field gpu has the wrong type"),
        ({"startsAt": "yesterday"}, 'startsAt is "yesterday", which is no time'),
        ({"startsAt": 17}, "startsAt is 17"),
    ],
)
def test_a_bad_alert_is_refused_by_its_number(change: dict[str, Any], complaint: str) -> None:
    read = parsed(AM, webhook(an_alert(), an_alert(**change)))
    assert len(read.events) == 1
    (refusal,) = map(str, read.refused)
    assert refusal.startswith("alert 2: ")
    assert complaint in refusal


def test_without_a_start_or_a_fingerprint_it_is_still_known_again() -> None:
    alert = an_alert(startsAt="0001-01-01T00:00:00Z", fingerprint=None)
    form = only(AM, webhook(alert))
    assert form["starts_at"] is None
    assert form["dedupe_key"] == only(AM, webhook(alert))["dedupe_key"] == form["series"]
    other = only(AM, webhook(an_alert(startsAt=None, fingerprint=None, labels={"gpu": "3"})))
    assert other["dedupe_key"] != form["dedupe_key"]


@pytest.mark.parametrize(("name", "kind"), [("Watchdog", "info"), ("InfoInhibitor", "info"), ("TestAlert", "test")])
def test_heartbeats_and_tests_ask_for_nothing(name: str, kind: str) -> None:
    form = only(AM, webhook(an_alert(labels={"alertname": name, "err_code": None})))
    assert (form["kind"], form["actionable"]) == (kind, False)


@pytest.mark.parametrize(
    "alert",
    [
        an_alert(labels={"alertname": "MedevacStuckStep"}),
        an_alert(labels={"medevac": "page"}),
        an_alert(annotations={"medevac": "page"}),
    ],
)
def test_what_medevac_itself_raises_is_marked(alert: dict[str, Any]) -> None:
    assert only(AM, webhook(alert))["marker"]
    assert only(AM, webhook(an_alert()))["marker"] is None


def test_only_a_webhook_of_alertmanager_is_recognised() -> None:
    from medevac.events.alertmanager import recognises

    assert recognises(payload(webhook(an_alert())))
    assert not recognises(payload(webhook(an_alert(), orgId=1)))  # Grafana's
    assert not recognises(payload({"alerts": []}))
    assert not recognises(payload("not json"))


def test_links_become_evidence() -> None:
    alert = an_alert(annotations={"summary": "x", "runbook_url": "javascript:alert(1)"})
    (event,) = parsed(AM, webhook(alert)).events
    assert [(e.title, e.url) for e in event.evidence] == [("query", "http://prom.example/graph")]
    assert event.statement is Statement.LEVEL


@pytest.mark.parametrize(
    ("label", "fault", "fault_class"),
    [
        ("thermal/gpu-temp", "thermal/gpu-temp", "transient"),
        ("row-remap/failure", "row-remap/failure", "critical"),
        ("gpu-lost", "gpu-lost", "critical"),
        ("monitor/exporter-silent", "monitor/exporter-silent", "monitor"),
        ("thermal/of-my-own", "thermal/of-my-own", "transient"),  # the namespace's row
        ("ecc/of-my-own", "ecc/of-my-own", "unknown"),
        ("no-such-space/x", "alert/DiskFull", "unknown"),
        ("critical", "alert/DiskFull", "unknown"),
        ("thermal/", "alert/DiskFull", "unknown"),
        ("thermal/*", "alert/DiskFull", "unknown"),
        ("../thermal", "alert/DiskFull", "unknown"),
        ("xid/79\nxid/13", "alert/DiskFull", "unknown"),
    ],
)
def test_a_rule_may_name_the_fault_and_the_catalogue_says_what_it_means(
    label: str, fault: str, fault_class: str
) -> None:
    alert = an_alert(labels={"alertname": "DiskFull", "err_code": None, "medevac_fault": label, "severity": "critical"})
    form = only(AM, webhook(alert))
    assert (form["fault"], form["class"]) == (fault, fault_class)


def test_the_named_fault_decides_over_a_code_that_the_metric_happens_to_carry() -> None:
    labels = {"medevac_fault": "thermal/gpu-temp", "err_code": "13"}
    assert only(AM, webhook(an_alert(labels=labels)))["fault"] == "thermal/gpu-temp"


def test_a_port_of_the_fabric_is_an_entity() -> None:
    labels = {"device": "mlx5_0", "port": "1", "gpu": None, "UUID": None, "pci_bus_id": None, "err_code": None}
    assert only(AM, webhook(an_alert(labels=labels)))["entities"] == ["ib:mlx5_0/1"]
    assert "ib:nvidia0" not in only(AM, webhook(an_alert(labels={"device": "nvidia0"})))["entities"]


@pytest.mark.parametrize(
    ("labels", "fault", "subject"),
    [
        ({"err_code": "XID 79"}, "xid/79", "worker-3"),
        ({"err_code": "xid_79"}, "xid/79", "worker-3"),
        ({"node": "worker-3:9100"}, "xid/79", "worker-3"),
    ],
)
def test_a_label_may_spell_the_code_out_and_hold_a_port(labels: dict[str, str], fault: str, subject: str) -> None:
    found = only("alertmanager", webhook(an_alert(labels={"err_code": "79", **labels})))
    assert (found["fault"], found["subject"]) == (fault, subject)
