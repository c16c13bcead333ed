"""CloudEvents: the three modes, the handshake, and to whom an event is handed on."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from medevac.events.cloudevents import handshake_answer, recognises
from medevac.events.parsing import ParseError
from tests.unit.events.payloads import BATCH, STRUCTURED, cloud_event, forms, nvsentinel, only, parsed, payload

CE = "cloudevents"
HEADERS = {
    "ce_specversion": "1.0",
    "ce_type": "com.acme.gpu.health",
    "ce_source": "/acme/prod%20one",
    "ce_id": "e-1",
    "ce_time": "2026-03-01T08:00:00Z",
    "content_type": "application/json; charset=utf-8",
}


def test_structured() -> None:
    form = only(CE, cloud_event(subject="worker-3/gpu/2"), **STRUCTURED)
    assert (form["subject"], form["kind"], form["fault"]) == ("worker-3", "fault", "xid/79")
    assert form["entities"] == ["gpu:2"]
    assert form["severity"] == "critical"
    assert form["starts_at"].startswith("2026-03-01T08:00:00")


def test_binary_and_its_percent_encoding() -> None:
    form = only(CE, {"node": "worker-3", "xid": "48"}, **HEADERS)
    assert (form["subject"], form["fault"]) == ("worker-3", "xid/48")
    assert form["detail"]["event_source"] == "/acme/prod one"
    assert form["dedupe_key"] == "/acme/prod one|e-1"


def test_the_content_type_alone_decides_the_mode() -> None:
    inner = cloud_event({"node": "worker-9", "xid": 48})
    form = only(CE, inner, **HEADERS)  # binary: the body is data, whatever it looks like
    assert form["kind"] == "info"
    with pytest.raises(ParseError, match="a batch needs the content type"):
        parsed(CE, [cloud_event()], **STRUCTURED)
    with pytest.raises(ParseError, match="not a batch"):
        parsed(CE, cloud_event(), **BATCH)
    with pytest.raises(ParseError, match="only JSON"):
        parsed(CE, "<x/>", content_type="application/cloudevents+xml")


def test_a_batch_and_its_bad_part() -> None:
    read = parsed(CE, [cloud_event(), {"specversion": "1.0"}, cloud_event(id="e-2")], **BATCH)
    assert [e.detail["event_id"] for e in read.events] == ["e-1", "e-2"]
    assert [str(r) for r in read.refused] == ["event 2: attribute id is missing: this is no CloudEvent"]
    assert forms(CE, [], **BATCH) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"specversion": "2.0"}, 'specversion "2.0"'),
        ({"specversion": None}, "specversion is missing"),
        ({"id": ""}, "id is missing"),
        ({"source": None}, "source is missing"),
        ({"type": {"a": 1}}, "is no string"),
        ({"data": None, "data_base64": "@@@"}, "not valid base64"),
        ({"data": {}, "data_base64": "e30="}, "both data and data_base64"),
        ({"data": None, "data_base64": base64.b64encode(b"{").decode()}, "data is not valid JSON"),
        ({"data": {"node": "../x", "xid": 79}}, "not a valid node name"),
        ({"data": {"node": "worker-3", "xid": "many"}}, "which is no code"),
        ({"data": {"node": ["worker-3"], "xid": 79}}, "field node has the wrong type"),
    ],
)
def test_what_is_refused(change: dict[str, Any], complaint: str) -> None:
    event = cloud_event() | change
    read = parsed(CE, {k: v for k, v in event.items() if v is not None}, **STRUCTURED)
    assert read.events == ()
    (refusal,) = map(str, read.refused)
    assert complaint in refusal


def test_data_in_base64() -> None:
    data = base64.b64encode(json.dumps({"node": "worker-3", "sxid": 20034}).encode()).decode()
    form = only(CE, cloud_event(data_base64=data) | {"data": None}, **STRUCTURED)
    assert form["fault"] == "sxid/20034"


def test_where_subject_and_data_name_two_machines_none_is_meant() -> None:
    form = only(CE, cloud_event(subject="worker-4/gpu/0"), **STRUCTURED)
    assert (form["subject"], form["actionable"]) == (None, False)
    assert form["detail"]["contradiction"] == "subject names worker-4, data names worker-3"
    same = only(CE, cloud_event(subject="worker-3.prod.example/gpu/0"), **STRUCTURED)
    assert same["subject"] == "worker-3"


def test_an_unknown_type_is_taken_and_never_acted_on() -> None:
    form = only(CE, cloud_event({"hello": 1}, type="com.acme.coffee"), **STRUCTURED)
    assert (form["kind"], form["fault"], form["actionable"]) == ("info", "cloudevent/com.acme.coffee", False)


def test_a_recovery_is_no_fault() -> None:
    for over in ({"healthy": True}, {"status": "resolved"}):
        form = only(CE, cloud_event({"node": "worker-3", "xid": 79} | over), **STRUCTURED)
        assert form["kind"] == "recovered"
        assert form["dedupe_key"] == only(CE, cloud_event(), **STRUCTURED)["series"]


def test_nvsentinels_events_are_read_by_its_parser_in_every_mode() -> None:
    event = nvsentinel()
    binary = {f"ce_{k}": str(v) for k, v in event.items() if k != "data"} | {"content_type": "application/json"}
    for form in (
        only(CE, event, **STRUCTURED),
        only(CE, [event], **BATCH),
        only(CE, event["data"], **binary),
        only(CE, event),
    ):
        assert (form["source"], form["fault"], form["subject"]) == ("nvsentinel", "xid/79", "worker-3")


def test_our_own_type_is_read_as_the_plain_form() -> None:
    data = {"node": "worker-3", "fault": "thermal/gpu-temp"}
    form = only(CE, cloud_event(data, type="dev.medevac.fault"), **STRUCTURED)
    assert (form["source"], form["fault"], form["kind"]) == ("generic", "thermal/gpu-temp", "fault")


def test_a_refusal_of_the_other_parser_names_the_part() -> None:
    read = parsed(CE, [nvsentinel(), nvsentinel(nodeName="../x")], **BATCH)
    assert len(read.events) == 1
    (refusal,) = map(str, read.refused)
    assert refusal.startswith('event 2: node name "../x"')


def test_the_handshake() -> None:
    asked = {":method": "OPTIONS", "webhook_request_origin": "sender.example", "webhook_request_rate": "120"}
    form = only(CE, "", **asked)
    assert (form["kind"], form["fault"], form["actionable"]) == ("handshake", "cloudevents/webhook-validation", False)
    assert form["detail"]["response"]["headers"] == {
        "WebHook-Allowed-Origin": "sender.example",
        "WebHook-Allowed-Rate": "120",
    }
    odd = payload("", webhook_request_origin="x\r\nSet-Cookie: a=b", webhook_request_rate="1e9")
    answer = handshake_answer(odd)
    assert answer["WebHook-Allowed-Rate"] == "*"
    assert "\n" not in answer["WebHook-Allowed-Origin"]
    with pytest.raises(ParseError, match="empty"):
        parsed(CE, "")


def test_an_event_of_version_0_1_is_read_too() -> None:
    old = {
        "cloudEventsVersion": "0.1",
        "eventType": "com.acme.gpu.health",
        "eventID": "e-9",
        "source": "acme",
        "eventTime": "2026-03-01T08:00:00Z",
        "extensions": {"compartmentId": "x"},
        "data": {"node": "worker-3", "xid": 79},
    }
    assert only(CE, old)["fault"] == "xid/79"


def test_recognition() -> None:
    assert recognises(payload(cloud_event()))
    assert recognises(payload([cloud_event()]))
    assert recognises(payload("", webhook_request_origin="x"))
    assert not recognises(payload({"specversion": "1.0"}))
    assert not recognises(payload("[]"))
