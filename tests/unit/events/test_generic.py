"""Our own plain form: short to write, and no typo becomes silence."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.events.generic import recognises
from medevac.events.parsing import ParseError
from tests.unit.events.payloads import forms, only, parsed, payload

FAULT = {"node": "worker-3", "fault": "xid/79"}


def test_the_shortest_fault() -> None:
    form = only("generic", FAULT)
    assert (form["kind"], form["fault"], form["subject"], form["class"]) == ("fault", "xid/79", "worker-3", "critical")
    assert (form["statement"], form["severity"], form["actionable"]) == ("edge", "critical", True)


def test_everything_that_can_be_said() -> None:
    form = only(
        "generic",
        {
            "node": "worker-3",
            "cluster": "prod",
            "kind": "planned",
            "fault": "maintenance/power",
            "key": "ticket-1",
            "id": "n-1",
            "statement": "level",
            "severity": "warning",
            "entities": ["gpu:4", "gpu:4", "ib:mlx5_0/1"],
            "boot_id": "b-1",
            "summary": "PDU swap",
            "time": "2026-03-01T08:00:00Z",
            "not_before": "2026-03-02T08:00:00Z",
            "ends_at": "2026-03-02T09:00:00Z",
            "evidence": [{"title": "ticket", "url": "https://t.example/1"}],
            "detail": {"pdu": 7},
            "actionable": False,
        },
    )
    assert form["class"] == "planned"
    assert (form["dedupe_key"], form["id"], form["boot_id"]) == ("ticket-1", "n-1", "b-1")
    assert form["entities"] == ["gpu:4", "ib:mlx5_0/1"]
    assert form["not_before"] == "2026-03-02T08:00:00Z"
    assert form["actionable"] is False
    assert form["detail"] == {"pdu": 7}


def test_a_recovery_has_the_key_of_its_fault() -> None:
    fault = {"node": "worker-3", "fault": "thermal/gpu-temp", "entities": ["gpu:1", "gpu:0"]}
    clear = fault | {"kind": "recovered", "entities": ["gpu:0", "gpu:1"]}
    one, two = only("generic", fault), only("generic", clear)
    assert one["dedupe_key"] == two["dedupe_key"]
    assert one["statement"] == "level"


def test_a_measurement() -> None:
    form = only(
        "generic",
        {
            "kind": "measurement",
            "node": "worker-3",
            "entities": ["gpu:4"],
            "measurement": {"name": "gpu_temp", "value": 78.1, "unit": "C", "window_s": 60},
        },
    )
    assert form["kind"] == "measurement"
    assert form["measurement"] == {"name": "gpu_temp", "value": 78.1, "unit": "C", "window_s": 60.0}


TWO = [FAULT, FAULT | {"node": "worker-4"}]


@pytest.mark.parametrize("body", [TWO, {"events": TWO}])
def test_many_at_once(body: Any) -> None:
    assert [f["subject"] for f in forms("generic", body)] == ["worker-3", "worker-4"]


def test_without_a_machine_it_is_not_acted_on() -> None:
    assert only("generic", {"fault": "xid/79"})["actionable"] is False


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nod": "x"}, 'unknown field "nod"'),
        ({"fault": None}, "kind is missing"),
        ({"fault": None, "kind": "fault"}, "a fault needs one"),
        ({"fault": "XID 79"}, "expected a code with its namespace"),
        ({"fault": "xid/../../x/y/z/w"}, "expected a code"),
        ({"kind": "disaster"}, "expected one of fault"),
        ({"kind": "handshake"}, "not for senders"),
        ({"node": "../x"}, "not a valid node name"),
        ({"entities": ["GPU 4"]}, "entities holds"),
        ({"entities": "gpu:4"}, "entities has the wrong type"),
        ({"time": "noon"}, "expected ISO 8601"),
        ({"severity": "sev1"}, "severity is"),
        ({"kind": "measurement"}, "measurement is missing"),
        ({"kind": "measurement", "measurement": {"name": "t", "value": "hot"}}, "value has the wrong type"),
        ({"kind": "measurement", "measurement": {"name": "t", "value": 1, "window_s": -1}}, "negative"),
        ({"evidence": [{"url": "file:///etc/passwd"}]}, "is none"),
        ({"key": "x" * 500}, "longer than"),
        ({"detail": []}, "detail has the wrong type"),
    ],
)
def test_what_is_refused_says_what_is_wrong(change: dict[str, Any], complaint: str) -> None:
    event = {k: v for k, v in (FAULT | change).items() if v is not None}
    read = parsed("generic", [FAULT, event])
    assert len(read.events) == 1
    assert complaint in str(read.refused[0])
    assert str(read.refused[0]).startswith("event 2: ")


def test_bodies_of_another_shape() -> None:
    assert [str(r) for r in parsed("generic", "7").refused] == ["event 1: is a number, expected an object"]
    with pytest.raises(ParseError, match="beside events: x"):
        parsed("generic", {"events": [], "x": 1})
    with pytest.raises(ParseError, match="empty"):
        parsed("generic", "")


def test_recognition() -> None:
    assert recognises(payload(FAULT))
    assert recognises(payload({"events": [FAULT]}))
    assert not recognises(payload([]))
    assert not recognises(payload({"alerts": []}))
    assert not recognises(payload(FAULT | {"other": 1}))
