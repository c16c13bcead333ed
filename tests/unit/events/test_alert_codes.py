"""Which fault an alert speaks of: the same rule for every sender that has labels, tags or details."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.events.payloads import an_alert, forms, webhook
from tests.unit.events.test_other_clouds import common, incident
from tests.unit.events.test_paging_tools import datadog, grafana, opsgenie, v2

LABELS: list[tuple[dict[str, object], str]] = [
    ({"err_code": "79"}, "xid/79"),
    ({"XID": 79.0}, "xid/79"),
    ({"Xid_Code": "Xid 79"}, "xid/79"),
    ({"xid": "20034"}, "sxid/20034"),
    ({"xid": "SXid 20034"}, "sxid/20034"),
    ({"xid": "SXid 79"}, "alert/GPU trouble"),
    ({"err_code": "79", "xid": "79"}, "xid/79"),
    ({"err_code": "79", "xid": "48"}, "alert/GPU trouble"),
    ({"err_code": "0"}, "alert/GPU trouble"),
    ({"xid": "9223372036854775794"}, "alert/GPU trouble"),
    ({"xid": "seventy-nine"}, "alert/GPU trouble"),
    ({"xid": "4321"}, "alert/GPU trouble"),
    ({"xid": ""}, "xid/48"),
    ({}, "xid/48"),
    ({"medevac_fault": "thermal/gpu-temp", "xid": "79"}, "thermal/gpu-temp"),
    ({"medevac_fault": "no-such/fault", "xid": "79"}, "alert/GPU trouble"),
]


@pytest.mark.parametrize(("labels", "code"), LABELS, ids=str)
@pytest.mark.parametrize("source", ["alertmanager", "grafana", "azure", "gcp", "datadog", "opsgenie", "pagerduty"])
def test_one_rule_reads_the_labels_of_every_sender(source: str, labels: dict[str, object], code: str) -> None:
    """Their text says Xid 48 each time: it counts where no label is there to say anything."""
    name, text = "GPU trouble", "Xid 48 on gpu 3"
    as_texts = {k: str(v) for k, v in labels.items()}
    bodies: dict[str, Any] = {
        "azure": common("Prometheus", {"labels": as_texts}, alertRule=name, description=text),
        "gcp": incident(policy_name=name, summary=text, condition_name="c", metric={"labels": as_texts}),
        "datadog": datadog(title=name, body=text, tags=",".join(f"{k}:{v}" for k, v in as_texts.items()), scopes=""),
        "opsgenie": opsgenie("Create", message=name, description=text, details=as_texts, tags=[]),
        "pagerduty": v2(summary=name, custom_details=labels, **{"class": text}),
    }  # fmt: skip
    named = {"err_code": None, "alertname": name, "rule": "xid", **as_texts}
    alert = an_alert(labels=named, annotations={"summary": text})
    body = bodies.get(source) or (grafana(alert) if source == "grafana" else webhook(alert))
    assert [form["fault"] for form in forms(source, body)] == [code]


@pytest.mark.parametrize("source", ["alertmanager", "grafana", "azure"])
def test_a_rules_notes_count_only_where_the_alert_is_about_xids(source: str) -> None:
    notes = {"summary": "Too hot. Look for Xid 79 in the log."}
    alert = an_alert(labels={"err_code": None, "alertname": "Hot"}, annotations=notes)
    body = {
        "alertmanager": webhook(alert),
        "grafana": grafana(alert),
        "azure": common("Prometheus", {"annotations": notes}, alertRule="Hot"),
    }[source]
    assert [form["fault"] for form in forms(source, body)] == ["alert/Hot"]


def test_tags_that_differ_say_nothing() -> None:
    (found,) = forms("opsgenie", opsgenie("Create", message="GPU trouble", tags=["xid:79", "xid:48"]))
    assert found["fault"] == "alert/GPU trouble"
