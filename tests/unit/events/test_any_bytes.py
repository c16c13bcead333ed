"""Whatever is delivered: a parser answers with events or with one line, and with nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medevac.events import registry
from medevac.events.normal import normal_form, read
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import is_node_name
from tests.unit.events.payloads import an_alert, cloud_event, nvsentinel, webhook

SOURCES = sorted(registry.parsers())
KMSG = (
    "[  1.000001] NVRM: GPU at PCI:0000:3b:00: GPU-0a1b2c3d-1111-2222-3333-444455556666\n"
    "[  1.000002] NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 145, pid=1, name=x, RLW_REMAP Fatal XC1 i0 Link 3 (0x0 0x1)\n"
    "<3>[  1.000003] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 31 LTSSM Fault Up\n"
    "Mar  1 08:00:00 worker-3 kernel: NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None)"
    " to 0x1 (GPU Reset Required)\n"
)
SEEDS: list[bytes] = [
    json.dumps(webhook(an_alert(), an_alert("resolved"))).encode(),
    json.dumps(cloud_event(subject="worker-3/gpu/1")).encode(),
    json.dumps([nvsentinel()]).encode(),
    json.dumps({"node": "worker-3", "fault": "xid/79", "entities": ["gpu:1"]}).encode(),
    KMSG.encode(),
]


def hold(source: str, payload: Payload) -> None:
    refused, broke = "", None
    try:
        parsed = read(source, payload)
    except ParseError as error:
        parsed, refused = Parsed(()), str(error)
        broke = error.__cause__  # set where the registry contained a parser's own bug
    assert broke is None
    assert "\n" not in refused
    assert len(refused) < 2_000
    for refusal in parsed.refused:
        assert "\n" not in str(refusal)
    for event in parsed.events:
        line = json.dumps(normal_form(event), allow_nan=False)
        line.encode("utf-8")
        assert "\\u0000" not in line
        assert len(line) < 60_000
        assert event.subject is None or is_node_name(event.subject)
        assert event.dedupe_key
        assert event.id
        assert type(event).model_validate_json(event.model_dump_json()) == event


# A whole document of the right shape with one value replaced reaches deeper than noise does.
ODD_TEXTS = ["", " ", "\x00", "\ud800", "x" * 5_000, "../..", "NaN", "true", "0", "9" * 39, "１２", "\u2028"]
ODD_TIMES = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T25:61:61Z"]
ODD_THINGS: list[Any] = [None, True, 0, -1, 1.5, 1e300, 2**70, [], {}, [[]], [None], {"a": None}]
odd = st.sampled_from([*ODD_TEXTS, *ODD_TIMES, *ODD_THINGS])


HEADERS = ["content-type", "ce-id", ":method", "webhook-request-origin"]
short = st.text(max_size=9)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | short,
    lambda inner: st.lists(inner) | st.dictionaries(short, inner),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(inner, (*path, key))
    return found


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


DOCUMENTS = [json.loads(seed) for seed in SEEDS[:-1]]
DOCUMENTS[2] = DOCUMENTS[2][0]
OWN = ["alertmanager", "cloudevents", "nvsentinel", "generic"]


@pytest.mark.parametrize(("source", "document"), list(zip(OWN, DOCUMENTS, strict=True)), ids=OWN)
@given(data=st.data())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_one_odd_value_in_a_whole_document(source: str, document: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(document)))
    body = json.dumps(with_value(document, path, data.draw(odd)))
    hold(source, Payload(body.encode(), {}))


@pytest.mark.parametrize("source", SOURCES)
@given(
    st.binary(max_size=300),
    st.dictionaries(st.sampled_from(["content-type", "ce-id", ":method"]), st.text(max_size=30)),
)
@settings(max_examples=20, derandomize=True, deadline=None)
def test_noise(source: str, body: bytes, headers: dict[str, str]) -> None:
    hold(source, Payload(body, headers))


@pytest.mark.parametrize("source", SOURCES)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=9), x),
        max_leaves=12,
    )
)
@settings(max_examples=20, derandomize=True, deadline=None)
def test_any_json(source: str, body: Any) -> None:
    hold(source, Payload(json.dumps(body).encode(), {}))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(len(SEEDS)))
@given(st.data())
@settings(max_examples=8, derandomize=True, deadline=None)
def test_cut_flipped_and_foreign(source: str, seed: int, data: st.DataObject) -> None:
    body = bytearray(SEEDS[seed][: data.draw(st.integers(0, len(SEEDS[seed])))])
    for i in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), max_size=5)):
        if body:
            body[i] = data.draw(st.integers(0, 255))
    hold(source, Payload(bytes(body), {}))


LONG = 200_000
BOMBS = {
    "spaces": b" " * LONG,
    "brackets": b"[" * LONG,
    "objects": b'{"a":' * LONG,
    "quotes": b'"' * LONG,
    "digits": b"1" * LONG,
    "newlines": b"\n" * LONG,
    "one key": b'{"' + b"k" * LONG + b'": 1}',
    "a name": json.dumps(webhook(an_alert(labels={"node": None, "Hostname": "dcgm-exporter" + "-a" * LONG}))).encode(),
    "a text": json.dumps(webhook(an_alert(labels={"err_code": None}, annotations={"summary": "xid " * LONG}))).encode(),
    "parenthesis": b"NVRM: Xid (PCI:0000:3b:00" + b" GPU-I:05" * LONG + b"): 79",
    "names": b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=" + b"a:" * LONG,
    "tags": b"a " * LONG + b"kernel: NVRM: Xid (PCI:0000:3b:00): 79",
    "hex": b"NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Fatal XC1 i0 Link 3 (" + b"0x0 " * LONG,
    "unit": b"NVRM: Xid (PCI:0000:3b:00): 145, " + b"A" * LONG,
    "many lines": b"NVRM: Xid (PCI:0000:3b:00): 79\n" * 20_000,
    "many links": b"".join(
        b"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link %d x\n" % i for i in range(9_999)
    ),
    "many alerts": json.dumps(webhook(*[an_alert()] * 3_000)).encode(),
    "many parts": json.dumps([1] * 20_000).encode(),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", ["alertmanager", "cloudevents", "nvsentinel", "generic", "kmsg"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_no_payload_takes_long(source: str, bomb: str) -> None:
    """A pattern that backtracks or a loop that squares would not end within the test's time-out."""
    hold(source, Payload(BOMBS[bomb], {}))
