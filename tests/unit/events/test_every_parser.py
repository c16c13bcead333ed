"""What holds for every sender: no input makes a parser raise anything but `ParseError`, or work without bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medevac.events.event import HealthEvent, Kind
from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import detect, parsers
from tests.unit.events import test_aws as aws
from tests.unit.events import test_checks as checks
from tests.unit.events import test_dcgm as dcgm
from tests.unit.events import test_kubernetes_senders as kubernetes
from tests.unit.events import test_node_tools as tools
from tests.unit.events import test_other_clouds as clouds
from tests.unit.events import test_paging_tools as paging
from tests.unit.events import test_slurm as slurm
from tests.unit.events.payloads import UUID, an_alert, cloud_event, payload, webhook
from tests.unit.events.test_more_shapes import SHAPES

CORPUS: tuple[tuple[str, Any], ...] = (
    ("alertmanager", webhook(an_alert(), an_alert("resolved"))),
    ("cloudevents", cloud_event({"node": "worker-3", "xid": 79})),
    ("grafana", paging.grafana(an_alert())),
    ("aws", aws.SPOT),
    ("aws", aws.sqs(aws.sns(aws.health(aws.INSTANCE, "i-0ff")))),
    ("aws", aws.sqs({**aws.DIRECT, **aws.HOOK})),
    ("azure", {"DocumentIncarnation": 1, "Events": [clouds.scheduled()]}),
    ("azure", clouds.activity(clouds.resource_health("Degraded"))),
    ("azure", clouds.common("Platform", {})),
    ("gcp", clouds.push(clouds.entry("hostError"))),
    ("gcp", clouds.entry("upcomingMaintenance", {"upcomingMaintenance": {"type": "SCHEDULED"}})),
    ("oci", clouds.oci("instancemaintenance", instanceId=clouds.OCID)),
    ("npd", kubernetes.node(kubernetes.condition("KernelDeadlock", "True"))),
    ("eks_nma", kubernetes.node(kubernetes.condition("StorageReady", "False"))),
    ("k8s_node", kubernetes.event("Rebooted")),
    ("dcgm", dcgm.health("Warning", GPU={"children": {"0": dcgm.entity("Warning")}})),
    ("dcgm", dcgm.diag({"name": "memory", "results": [{"status": "Fail", "gpu_ids": "1", "warnings": "remapping"}]})),
    ("dcgm", {"condition": "XID Error", "data": {"ErrNum": 79}}),
    ("active_checks", dcgm.TABLE),
    ("active_checks", checks.nccl()),
    ("active_checks", checks.IB),
    ("dcgm_exporter", f"DCGM_FI_DEV_XID_ERRORS{{{tools.LABELS}}} 79\n"),
    ("nvidia_smi", tools.smi_xml(tools.ECC_NEW)),
    ("nvidia_smi", f"index, uuid, temperature.gpu\n0, {UUID}, 40\n"),
    ("gpud", [{"component": "cpu", "events": [{"name": "x", "type": "Fatal", "message": "Xid 79"}]}]),
    ("slurm", slurm.SINFO),
    ("slurm", slurm.node(["DOWN", "DRAIN"], "NHC: check_gpu_count")),
    ("nhc", "w1 | ERROR: nhc: Health check failed: check_gpu_count: 7\n"),
    ("pagerduty", paging.webhook("incident.triggered")),
    ("pagerduty", paging.v2()),
    ("opsgenie", paging.opsgenie("Create")),
    ("datadog", paging.datadog()),
    ("kmsg", "[ 1.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"),
)  # fmt: skip


MUTATED = (*CORPUS, *((shape.source, shape.body) for shape in SHAPES.values() if shape.source != "cloudevents"))


def read(
    source: str, body: bytes, headers: dict[str, str] | None = None, exit_code: int | None = None
) -> list[HealthEvent]:
    """Straight from the module, past the registry that contains what a foreign parser throws."""
    found = parsers()[source].parse(Payload(body, headers or {}, exit_code))
    for event in found.events:
        json.dumps(event.model_dump(mode="json"), ensure_ascii=False).encode()
        assert event.source == source or source == "cloudevents"  # which hands on the types of others
        assert "\n" not in event.summary
    for refusal in found.refused:
        assert "\n" not in str(refusal)
    return list(found.events)


def survives(source: str, body: bytes, **more: Any) -> None:
    parsers()[source].recognises(Payload(body))
    refused: ParseError | None = None
    try:
        read(source, body, **more)
    except ParseError as e:
        refused = e
    assert refused is None or (str(refused).strip() and "\n" not in str(refused) and len(str(refused)) < 1_500)


def test_every_sender_is_in_the_corpus() -> None:
    assert set(parsers()) - {source for source, _ in CORPUS} == {"nvsentinel", "generic"}  # tested beside their own


@pytest.mark.parametrize(("source", "body"), CORPUS, ids=lambda v: v if isinstance(v, str) and len(v) < 20 else "")
def test_each_is_read_recognised_and_repeatable(source: str, body: Any) -> None:
    raw = payload(body)
    assert source == detect(raw).SOURCE
    first, again = read(source, raw.body), read(source, raw.body)
    assert first
    assert [e.id for e in first] == [e.id for e in again]
    assert len({(e.id, e.fault, e.subject, e.kind) for e in first}) == len(first)


ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, 0, -1, 1e308, 2**63, 10**30, "", " ", "NaN", "\x00", "\ud800", "../..", "$HOST",
                     "x" * 5_000, [], {}, [[]], {"": ""}, "Xid 79", "9" * 30,
                     "0001-01-01T00:00:00Z", "2026-99-01T99:00:00Z"]),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
)  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths(inner, (*at, key))
    return found


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    held = copy
    for key in at[:-1]:
        held = held[key]
    held[at[-1]] = new
    return copy


@st.composite
def mutated(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[str, bytes]:
    source, body = draw(st.sampled_from(MUTATED))
    if isinstance(body, dict | list):
        for _ in range(draw(st.integers(0, 3))):
            known = paths(body)
            if known:
                body = replaced(body, draw(st.sampled_from(known)), draw(ODD))
    raw = bytearray(payload(body).body)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=6))
    return source, bytes(raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw)


@given(mutated(), st.sampled_from([None, None, 0, 1, 14, 15, 124, 205, 226, 2**40]))
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_payloads(case: tuple[str, bytes], exit_code: int | None) -> None:
    source, body = case
    survives(source, body, exit_code=exit_code)


@given(mutated(), st.sampled_from(sorted(parsers())))
@settings(max_examples=300, deadline=None)
def test_payloads_of_others(case: tuple[str, bytes], source: str) -> None:
    survives(source, case[1])


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda t: t.encode("utf-8", "surrogatepass"))))
@settings(max_examples=100, deadline=None)
def test_any_bytes(body: bytes) -> None:
    for source in parsers():
        survives(source, body)


def test_a_test_or_handshake_is_never_actionable() -> None:
    for body in (aws.sqs({**aws.DIRECT, "Event": "autoscaling:TEST_NOTIFICATION"}),):
        (event,) = read("aws", payload(body).body)
        assert event.kind is Kind.TEST
        assert not event.actionable
