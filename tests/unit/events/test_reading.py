"""The readers: strict JSON, times, entities, names; every refusal is one line that says what and where."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medevac.events import reading as r
from medevac.events.event import Kind, Severity
from medevac.events.parsing import MAX_PAYLOAD_BYTES, ParseError


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"a": 1', "ends too early"),
        (b'{"a": "b', "ends too early"),
        (b'{"a": 1} trailing', "line 1 column 10"),
        (b"<html>", "line 1 column 1"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "40 digits"),
        (b'{"a": 1, "a": 2}', '"a" stands twice'),
        (b"[" * 100 + b"]" * 100, "nested deeper"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 50_000, "nested deeper"),
        (b"\xff{}", "UTF-8"),
        (b"\xed\xa0\x80", "UTF-8"),
        (b"1" * (MAX_PAYLOAD_BYTES + 1), "more than"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_bad_json_is_refused_in_one_line(body: bytes, complaint: str) -> None:
    with pytest.raises(ParseError, match=complaint) as error:
        r.read_json(body)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_byte_order_mark_is_no_matter_and_what_no_database_holds_is_replaced() -> None:
    assert r.read_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert r.read_json(rb'{"a": "x\u0000y", "b": ["\ud800"]}') == {"a": "x\ufffdy", "b": ["\ufffd"]}
    assert r.read_json(rb'{"a": "\ud83d\ude80"}') == {"a": "🚀"}


def test_an_error_names_the_field_and_where_it_stands() -> None:
    fields = r.Fields.of({"labels": {"gpu": [1]}, "n": "x", "t": 1, "yes": "maybe"}, "alert 2")
    asked: list[tuple[Callable[[], object], str]] = [
        (lambda: fields.text("name"), "alert 2: field name is missing"),
        (lambda: fields.text("t"), "alert 2: field t has the wrong type"),
        (lambda: fields.integer("n"), r"field n has the wrong type \(string, expected whole number\)"),
        (lambda: fields.boolean("yes"), "field yes has the wrong type"),
        (lambda: fields.list("labels"), r"\(object, expected list\)"),
        (lambda: fields.texts("labels"), "alert 2.labels: field gpu has the wrong type"),
        (lambda: fields.fields("n"), r"\(string, expected object\)"),
        (lambda: r.Fields({"n": ["a", None]}).text_list("n"), r"field n\[\] has the wrong type \(null"),
        (lambda: r.Fields.of([], "alert 3"), "alert 3 is a list, expected an object"),
    ]
    for ask, complaint in asked:
        with pytest.raises(ParseError, match=complaint):
            ask()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T08:00:00Z", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T08:00:00.123456789Z", datetime(2026, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)),
        ("2026-03-01T08:00:00,5+00:00", datetime(2026, 3, 1, 8, 0, 0, 500000, tzinfo=UTC)),
        ("2026-03-01 10:00:00 +0200", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T02:30:00-05:30", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T10:00:00+02", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01 10:00:00.5 +0200 UTC", datetime(2026, 3, 1, 8, 0, 0, 500000, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2026-03-01T08:00:61Z", None),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        ("2026-03-01T08:00:00", None),
        ("2026-13-01T08:00:00Z", None),
        ("2026-03-01T08:00:00+99:00", None),
        ("٢٠٢٦-03-01T08:00:00Z", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1_772_352_000, None),
    ],
)
def test_times(text: object, expected: datetime | None) -> None:
    assert r.instant(text) == expected


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000, 1_000_000_000])
def test_unix_times_of_any_scale(scale: int) -> None:
    assert r.epoch(1_772_352_000 * scale) == datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert r.epoch(str(1_772_352_000 * scale)) == datetime(2026, 3, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("value", [0, -1, "", "x", None, True, float("nan"), float("inf"), 10**400, "9" * 400])
def test_what_is_no_unix_time(value: object) -> None:
    assert r.epoch(value) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (r.pci("00000000:9B:00.0"), "pci:0000:9b:00"),
        (r.pci("PCI:0000:9b:00"), "pci:0000:9b:00"),
        (r.pci("0018:01:00"), "pci:0018:01:00"),
        (r.pci("9b:00.0"), "pci:0000:9b:00"),
        (r.pci("00010000:01:00.0"), "pci:10000:01:00"),
        (r.pci("zz:00"), None),
        (r.pci(12), None),
        (r.gpu("4"), "gpu:4"),
        (r.gpu(4.0), "gpu:4"),
        (r.gpu("-1"), None),
        (r.gpu("nvidia4"), None),
        (r.gpu(True), None),
        (r.gpu(10**30), None),
        (r.nvlink(-1), None),
        (r.gpu_uuid("GPU-0a1b2c3d-1111-2222-3333-444455556666"), "gpu-uuid:GPU-0a1b2c3d-1111-2222-3333-444455556666"),
        (r.gpu_uuid("MIG-0a1b2c3d-1111-2222-3333-444455556666"), None),
        (r.ib("mlx5_7", 1), "ib:mlx5_7/1"),
        (r.ib("mlx5_7"), "ib:mlx5_7"),
        (r.ib("../x"), None),
        (r.gpu_serial(1653723052734), "gpu-serial:1653723052734"),
        (r.gpu_serial("a b"), None),
    ],
)
def test_entities_are_canonical_or_none(found: str | None, expected: str | None) -> None:
    assert found == expected


@pytest.mark.parametrize(
    "name",
    [
        "worker-3",
        "ip-10-0-1-2.ec2.internal",
        "my_vm_001",
        "GPU-Node-07",
        "10.0.3.7",
        "fd00::17",
        "i-0abc123",
        "ocid1.instance.oc1..aaaaexample",
        "2074079198322937303",
        "a",
    ],
)
def test_machines_have_such_names(name: str) -> None:
    assert r.node_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "a/b",
        "",
        "a b",
        "a\u00a0",
        "-a",
        "a-",
        "a..b",
        "a\nb",
        "a\x00",
        "x" * 254,
        "nöde",
        "a;reboot",
        "$(id)",
        "fe80::1%eth0",
        "%2e%2e%2f",
        7,
        None,
        ["a"],
    ],
)
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(ParseError, match="is not a valid node name"):
        r.node_name(name)


def test_blanks_at_the_ends_are_none_of_a_name_and_a_refused_one_is_shown_as_it_is() -> None:
    assert [r.node_name(name) for name in ("gpu-1 ", " gpu-1", "\tgpu-1")] == ["gpu-1"] * 3
    for name, shown in (("gpu  1 ", '"gpu  1 "'), ("gpu-1\n", r'"gpu-1\n"'), ("gpu-1\u00a0", r'"gpu-1\xa0"')):
        with pytest.raises(ParseError) as refused:
            r.node_name(name)
        assert f"node name {shown} is not" in str(refused.value)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.3.7:9400", "10.0.3.7"),
        ("[fd00::1]:9400", "fd00::1"),
        ("n-1:9100", "n-1"),
        ("fd00::1", "fd00::1"),
        ("", None),
        (":9100", None),
        ("a b:1", None),
        ("http://x:1/", None),
    ],
)
def test_the_host_of_an_address(address: str, host: str | None) -> None:
    assert r.host_of(address) == host


def test_a_word_is_the_senders_only_where_all_mean_it_alike() -> None:
    assert [r.severity_word(w) for w in ("Critical", "FATAL", "isolate")] == [Severity.CRITICAL] * 3
    assert [r.severity_word(w) for w in ("warning", "Non-fatal", "NonFatal")] == [Severity.WARNING] * 3
    assert [r.severity_word(w) for w in ("none", "", None, 3, "sev1", "error")] == [None] * 6


def test_a_bad_part_is_refused_and_takes_its_events_with_it() -> None:
    reading = r.Reading("x")
    for i in range(3):
        with reading.part(f"item {i}"):
            reading.add(Kind.FAULT, "xid/79", part=i, key=("k", i))
            if i == 1:
                raise ParseError("no\ngood")
    done = reading.parsed()
    assert [e.dedupe_key for e in done.events] == ["k|0", "k|2"]
    assert [str(x) for x in done.refused] == ["item 1: no good"]


def test_two_deliveries_of_one_statement_share_their_id_and_a_long_key_stays_apart() -> None:
    def add(part: object, key: str) -> tuple[str, str]:
        event = r.Reading("x").add(Kind.FAULT, "xid/79", part=part, key=(key,))
        return event.id, event.dedupe_key

    assert add({"a": 1}, "k") == add({"a": 1}, "k")
    assert add({"a": 1}, "k")[0] != add({"a": 2}, "k")[0]
    one, two = add(1, "x" * 390 + "1")[1], add(1, "x" * 390 + "2")[1]
    assert one != two
    assert len(one) <= r.MAX_KEY


def test_what_nobody_can_see_is_neither_key_nor_id() -> None:
    """Two statements that shared an empty id would be taken for one, and the second would be dropped."""
    reading = r.Reading("x")
    for i in range(2):
        for nothing in ("", " ", "\r\n", "\u2028"):
            event = reading.add(Kind.FAULT, "xid/79", part=i, key=nothing, id=nothing)
            assert event.id.startswith("x-")
            assert event.dedupe_key.startswith("xid/79|")
    assert len({e.id for e in reading.events}) == len({e.dedupe_key for e in reading.events}) == 2
    with reading.part("test " + "x" * 5_000):
        raise ParseError("no good")
    assert len(str(reading.refused[0])) < 200


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["x" * 5_000, "\x00", "\ud800"])
    | st.text()
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=50) | st.dictionaries(st.text(max_size=20), inner, max_size=50),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=20), json_like, max_size=50), st.text())
@settings(max_examples=50, derandomize=True, deadline=None)
def test_whatever_the_detail_the_event_is_small_and_can_be_stored(detail: dict[str, object], summary: str) -> None:
    event = r.Reading("x").add(Kind.INFO, None, part=summary, key=(summary,), detail=detail, summary=summary)
    text = event.model_dump_json()
    assert len(text) < 3 * r.MAX_DETAIL_BYTES
    assert "\x00" not in text
    assert type(event).model_validate_json(text) == event


@given(st.text() | st.integers() | st.floats() | st.none() | st.binary())
@settings(derandomize=True, deadline=None)
def test_no_reader_of_a_single_value_raises(value: object) -> None:
    for read in (r.instant, r.epoch, r.rfc1123, r.pci, r.gpu, r.gpu_uuid, r.gpu_serial, r.ib, r.whole, r.real):
        read(value)
    r.severity_word(value)
    r.is_node_name(value)
    if isinstance(value, str):
        r.host_of(value)


def test_a_random_state_that_someone_else_moved_fails_no_property_test() -> None:
    """Any thread of the process may draw while Hypothesis does: a retry that waits, of a client of an earlier test."""

    @given(st.integers().map(lambda _: random.random()))
    @settings(max_examples=3, derandomize=True, database=None)
    def drawn(value: float) -> None:
        assert 0 <= value < 1

    drawn()
