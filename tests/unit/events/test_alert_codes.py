"""Which fault an alert speaks of: the same rule for every sender that has labels, tags or details."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.events.payloads import UUID, an_alert, forms, webhook
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
]
OUTRIGHT: list[tuple[dict[str, object], str]] = [
    ({"medevac_fault": "thermal/gpu-temp", "xid": "79"}, "thermal/gpu-temp"),
    ({"medevac_fault": "no-such/fault", "xid": "79"}, "alert/GPU trouble"),
]
ALL = ("alertmanager", "grafana", "azure", "gcp", "datadog", "opsgenie", "pagerduty")


@pytest.mark.parametrize(("labels", "code"), LABELS, ids=str)
@pytest.mark.parametrize("source", ALL)
def test_one_rule_reads_the_labels_of_every_sender(source: str, labels: dict[str, object], code: str) -> None:
    """Their text says Xid 48 each time: it counts where no label is there to say anything."""
    assert said(source, labels) == [code]


def said(
    source: str, labels: dict[str, object], name: str = "GPU trouble", text: str = "Xid 48 on gpu 3", **rule: str
) -> list[str]:
    """The codes of an alert with these labels (`rule`: of its rule's own configuration) and this text."""
    as_texts = {k: str(v) for k, v in labels.items()}
    bodies: dict[str, Any] = {
        "azure": common("Prometheus", {"labels": as_texts}, alertRule=name, description=text),
        "gcp": incident(policy_name=name, summary=text, condition_name="c", metric={"labels": as_texts},
                        policy_user_labels=rule),
        "datadog": datadog(title=name, body=text, tags=",".join(f"{k}:{v}" for k, v in as_texts.items()), scopes=""),
        "opsgenie": opsgenie("Create", message=name, description=text, details=as_texts, tags=[]),
        "pagerduty": v2(summary=name, custom_details=labels, **{"class": text}),
    }  # fmt: skip
    bare = dict.fromkeys(("err_code", "gpu", "UUID", "pci_bus_id", "pod", "Hostname"))
    named = {**bare, "alertname": name, **({"rule": "xid"} if "Xid 48" in text else {}), **as_texts}
    alert = an_alert(labels=named, annotations={"summary": text})
    body = bodies.get(source) or (grafana(alert) if source == "grafana" else webhook(alert))
    return [form["fault"] for form in forms(source, body)]


@pytest.mark.parametrize(("labels", "code"), OUTRIGHT, ids=str)
@pytest.mark.parametrize("source", ["alertmanager", "grafana", "azure"])
def test_a_rules_own_label_says_it_outright(source: str, labels: dict[str, object], code: str) -> None:
    assert said(source, labels) == [code]


@pytest.mark.parametrize(("labels", "code"), OUTRIGHT, ids=str)
def test_a_policys_own_label_says_it_outright(labels: dict[str, object], code: str) -> None:
    """Cloud Monitoring's labels of metrics and machines are written by whoever owns these, its policy's are not."""
    assert said("gcp", {"xid": "79"}, medevac_fault=str(labels["medevac_fault"])) == [code]


@pytest.mark.parametrize("source", ["gcp", "datadog", "opsgenie", "pagerduty"])
def test_who_may_tag_an_alert_names_no_fault_outright(source: str) -> None:
    assert said(source, {"medevac_fault": "row-remap/failure"}, text="too hot") == ["alert/GPU trouble"]
    assert said(source, {"medevac_fault": "row-remap/failure", "xid": "13"}) == ["xid/13"]


@pytest.mark.parametrize("source", ALL)
def test_an_error_code_of_other_software_is_no_xid(source: str) -> None:
    """It counts beside a GPU's labels, or where the alert speaks of Xids."""
    shop = {"err_code": "79", "uuid": "7a-1", "device": "eth0", "err_msg": "card declined"}
    assert said(source, shop, "PaymentGatewayErrors", "customers wait") == ["alert/PaymentGatewayErrors"]
    assert said(source, {**shop, "err_msg": "Unknown error"}, "Shop", "wait") == ["alert/Shop"]
    assert said(source, shop, "TaxIdErrors", "customers wait") == ["alert/TaxIdErrors"]
    for beside in ({"gpu": "4"}, {"uuid": UUID}, {"device": "nvidia4"}, {"pci_bus_id": "00000000:3B:00.0"},
                   {"DCGM_FI_DRIVER_VERSION": "550"}, {"err_msg": "GPU has fallen off the bus."}):  # fmt: skip
        assert said(source, {"err_code": "79", **beside}, "Trouble", "oh") == ["xid/79"], beside
    assert said(source, {"err_code": "79", "metric": "DCGM_FI_DEV_XID_ERRORS"}, "Trouble", "oh") == ["xid/79"]
    assert said(source, {"err_code": "79"}, "NodeGpuXid", "oh") == ["xid/79"]
    assert said(source, {"err_code": "79"}, "Trouble", "an Xid was seen") == ["xid/79"]


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("text", ["XID 13, 79 on GPU 4", "Xid 94 and 79 on GPU 4", "XID errors: 79, 74"])
def test_of_several_xids_none_is_chosen(source: str, text: str) -> None:
    assert said(source, {"rule": "xid"}, text=text) == ["alert/GPU trouble"]


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize(
    "line",
    [
        "Nov 30 10:00:00 gpu-1 mychecker[12]: found Xid 79",
        "no nvidia Xid 79 found on any GPU",
        "Nov 30 10:00:00 gpu-1 alice: NVRM: Xid (PCI:0000:4e:00): 79, forged",
    ],
)
def test_a_line_that_a_process_wrote_is_no_fault_in_an_alert(source: str, line: str) -> None:
    assert said(source, {"rule": "xid"}, text=line) == ["alert/GPU trouble"]


@pytest.mark.parametrize("source", ["alertmanager", "grafana", "azure"])
def test_what_the_notes_of_an_alert_about_gpus_state_is_its_code(source: str) -> None:
    stated = "XID 79 on GPU 4: fallen off the bus"
    assert said_in_notes(source, "NvidiaGpuError", stated) == ["xid/79"]
    assert said_in_notes(source, "NvidiaGpuError", f"{stated}. If Xid 48 follows, call Bob.") == ["xid/79"]
    for more in ("please check its power", "it may need a reset"):
        assert said_in_notes(source, "NvidiaGpuError", f"{stated}, {more}") == ["xid/79"], more
    for advice in (
        "Look for Xid 79 in the log.",
        "May be Xid 79",
        "Xid 79 would mean a lost GPU",
        "When hot, Xid 79",
        "Xid 79, Xid 48",
    ):
        assert said_in_notes(source, "NvidiaGpuError", advice) == ["alert/NvidiaGpuError"], advice
    assert said_in_notes(source, "DiskFull", stated) == ["alert/DiskFull"]


def said_in_notes(source: str, name: str, summary: str) -> list[str]:
    alert = an_alert(labels={"err_code": None, "alertname": name}, annotations={"summary": summary})
    azure = common("Prometheus", {"annotations": {"summary": summary}}, alertRule=name, description="")
    body = azure if source == "azure" else grafana(alert) if source == "grafana" else webhook(alert)
    return [form["fault"] for form in forms(source, body)]


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
