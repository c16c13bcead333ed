"""Headers of whoever ships from the machine itself: they fill what a statement leaves open, and override nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import read
from tests.unit.events.payloads import UUID, an_alert, webhook

BOOT = "0d5b3d0e-7d55-4c0e-9d5f-5d4a3c2b1a09"
HEALTHY = {"header": ["Health Monitor Report"], "body": {"Overall Health": {"value": "Healthy"}}}
SPOT = {"action": "terminate", "time": "2026-03-01T08:02:00Z"}


def here(node: str = "gpu-7", cluster: str = "c1") -> dict[str, str]:
    return {"x-medevac-node": node, "x-medevac-cluster": cluster, "x-medevac-boot-id": BOOT}


def one(source: str, body: Any, headers: dict[str, str]) -> Any:
    raw = body if isinstance(body, str) else json.dumps(body)
    (event,) = read(source, Payload(raw.encode(), headers)).events
    return event


@pytest.mark.parametrize(
    ("source", "body"), [("dcgm", HEALTHY), ("aws", SPOT), ("gcp", "TERMINATE_ON_HOST_MAINTENANCE")]
)
def test_what_names_no_machine_is_about_the_one_that_sent_it(source: str, body: Any) -> None:
    event = one(source, body, here())
    assert (event.subject, event.cluster, event.boot_id) == ("gpu-7", "c1", BOOT)
    assert one(source, body, here()).id == event.id
    assert one(source, body, here("gpu-8")).id != event.id, "another machine's same words are no repeat"
    assert one(source, body, {}).subject is None


def test_a_statement_that_names_its_machine_keeps_it_and_takes_no_boot() -> None:
    event = one("alertmanager", webhook(an_alert()), here())
    assert (event.subject, event.boot_id) == ("worker-3", None)
    assert event.cluster == "c1", "a sender of one cluster needn't label every alert with it"
    alert = webhook(an_alert(labels={"cluster": "c2"}))
    assert one("alertmanager", alert, here()).cluster == "c2"


XID = "[ 1.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("said", ["bad node!", "${NODE_NAME}", "../etc"])
def test_a_header_that_is_no_name_refuses_what_needs_it_with_its_value(said: str) -> None:
    for source, body in (("kmsg", XID), ("dcgm", json.dumps(HEALTHY))):
        with pytest.raises(ParseError, match="header X-Medevac-Node is") as refused:
            read(source, Payload(body.encode(), {"x-medevac-node": said}))
        assert f'"{said}", expected the name of the node' in str(refused.value)
    with pytest.raises(ParseError, match=r'header X-Medevac-Cluster is "\$\{CLUSTER\}", expected a cluster'):
        read("kmsg", Payload(XID.encode(), here(cluster="${CLUSTER}")))


def test_an_empty_header_is_none() -> None:
    assert one("dcgm", HEALTHY, {"x-medevac-node": " ", "x-medevac-cluster": ""}).subject is None


def test_a_bad_header_costs_no_statement_that_does_not_need_it() -> None:
    """To Alertmanager a 4xx is the end of its alerts: those that name their machine are taken."""
    named, unnamed = an_alert(labels={"cluster": "c1"}), {"node": None, "pod": None, "UUID": None}
    lost = an_alert(labels=unnamed | {"cluster": "c1"}, fingerprint="11")
    by_gpu = an_alert(labels=unnamed | {"cluster": "c1", "UUID": UUID}, fingerprint="22")
    headers = {"x-medevac-node": "${NODE}"}
    found = read("alertmanager", Payload(json.dumps(webhook(named, lost, by_gpu)).encode(), headers))
    assert [event.subject for event in found.events] == ["worker-3", None]
    assert [(one.where, '"${NODE}"' in one.reason) for one in found.refused] == [("1 of 3", True)]
    heartbeat = an_alert(labels=unnamed | {"alertname": "Watchdog"})
    assert len(read("alertmanager", Payload(json.dumps(webhook(heartbeat)).encode(), headers)).events) == 1

    whose = an_alert(labels={"node": "worker-4"}, fingerprint="33")
    found = read("alertmanager", Payload(json.dumps(webhook(named, whose)).encode(), {"x-medevac-cluster": "a b"}))
    assert [event.cluster for event in found.events] == ["c1"], "the other could be of any cluster that knows its name"
    assert len(found.refused) == 1


def test_the_clear_of_a_health_report_carries_the_key_of_what_it_clears() -> None:
    bad = {
        "body": {
            "Overall Health": {"value": "Failure"},
            "GPU": {"children": {"0": {"children": {"PCIe system": {"value": "Failure"}}, "value": "Failure"}}},
        }
    }
    fault, clear = one("dcgm", bad, here()), one("dcgm", HEALTHY, here())
    assert clear.dedupe_key == fault.series
    assert fault.subject == clear.subject == "gpu-7"


def test_the_exit_status_beside_the_body_says_what_the_body_does_not() -> None:
    headers = here() | {"x-medevac-exit-code": " 15 "}
    event = one("nvidia_smi", "", headers)
    assert (event.subject, event.fault, event.kind) == ("gpu-7", "gpu-lost", "fault")
    (told,) = read("nvidia_smi", Payload(b"", headers, 8)).events
    assert told.fault == "power/external", "who knows it otherwise isn't overruled"
    with pytest.raises(ParseError):
        read("nvidia_smi", Payload(b"", here()))


@pytest.mark.parametrize("said", ["SIGKILL", "1 5", "1" * 400, "٣", "1.5"])
def test_an_exit_status_that_is_none_is_refused_in_words(said: str) -> None:
    with pytest.raises(ParseError, match="header X-Medevac-Exit-Code is") as refused:
        read("nvidia_smi", Payload(b"", {"x-medevac-exit-code": said}))
    assert len(str(refused.value)) < 200
