"""Text as Windows writes it, UTF-16 or with a byte order mark: every parser reads it as the same text in UTF-8."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import detect, read
from tests.unit.events.payloads import payload
from tests.unit.events.test_every_parser import CORPUS

NAMES = [f"{source} {i}" for i, (source, _) in enumerate(CORPUS)]
XID = "NVRM: Xid (PCI:0000:3b:00): 79, x"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(("source", "body"), CORPUS, ids=NAMES)
def test_every_sender_is_read_whatever_the_encoding(source: str, body: Any, encoding: str) -> None:
    plain = payload(body)
    mark = "" if encoding == "utf-8-sig" else "\ufeff"
    delivered = Payload((mark + plain.body.decode()).encode(encoding))
    assert source == detect(delivered).SOURCE
    assert read(source, delivered) == read(source, plain)
    assert read(None, delivered).events


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_half_a_character_is_refused_in_json_and_hides_no_fault_in_a_log(encoding: str) -> None:
    text = "\ufeff" + XID + "\r\n"
    log = text.encode(encoding) + b"\x00"
    assert [e.fault for e in read("kmsg", Payload(log)).events] == ["xid/79"]
    plain = ("\ufeff" + json.dumps({"node": "w", "fault": "xid/79", "summary": "?"})).encode(encoding)
    lone = plain.replace("?".encode(encoding), "\ud800".encode(encoding, "surrogatepass"))
    for broken in (plain + b"\x00", lone):
        with pytest.raises(ParseError, match="not UTF-8 text"):
            read("generic", Payload(broken))


def test_other_encodings_are_refused_by_name() -> None:
    with pytest.raises(ParseError, match="UTF-32 text; send it as UTF-8"):
        read("kmsg", Payload(XID.encode("utf-32")))
    with pytest.raises(ParseError, match="more than the"):
        read("kmsg", Payload(b"\xff\xfe" + b"a\x00" * (9 * 1024 * 1024)))
