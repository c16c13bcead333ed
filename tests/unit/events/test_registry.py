"""Which parsers there are, who reads what, and that a third party's is contained."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from medevac.events import registry
from medevac.events.normal import normal_form, read
from medevac.events.parsing import Parsed, ParseError, Payload
from tests.unit.events.payloads import an_alert, cloud_event, nvsentinel, payload, webhook


class Plugin:
    SOURCE = "acme"
    CLOUDEVENT_TYPES = ("com.acme.",)

    @staticmethod
    def parse(payload: Payload) -> Parsed:
        raise RuntimeError("a bug of theirs")

    @staticmethod
    def recognises(payload: Payload) -> bool:
        return payload.body == b"acme"


def plug(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    found = [EntryPoint(f"p{i}", value, registry.GROUP) for i, value in enumerate(values)]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    registry.parsers.cache_clear()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    registry.parsers.cache_clear()
    yield
    registry.parsers.cache_clear()


def test_every_built_in_parser_goes_by_its_name() -> None:
    assert set(registry.BUILT_IN) <= set(registry.sources())
    for source, parser in registry.parsers().items():
        assert source == parser.SOURCE
        assert parser.__doc__


@pytest.mark.parametrize(
    ("body", "source"),
    [
        (webhook(an_alert()), "alertmanager"),
        (cloud_event(), "cloudevents"),
        (nvsentinel(), "nvsentinel"),
        ({"fault": "xid/79", "node": "worker-3"}, "generic"),
        ("[ 1.000000] NVRM: Xid (PCI:0000:3b:00): 79, x", "kmsg"),
    ],
)
def test_a_payload_is_known_without_its_source(body: Any, source: str) -> None:
    assert source == registry.detect(payload(body)).SOURCE
    assert {e.source for e in read(None, payload(body)).events} == {source}


def test_what_nobody_knows_is_refused_with_the_names_to_choose_from() -> None:
    with pytest.raises(ParseError, match=r"nobody's payload.*alertmanager"):
        read(None, payload("hello"))
    with pytest.raises(ParseError, match=r"unknown source 'alertmanagr'; known: .*alertmanager"):
        read("alertmanagr", payload("hello"))


def test_one_that_breaks_over_a_payload_keeps_nobody_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medevac.events.nvsentinel.recognises", lambda payload: 1 / 0)
    assert registry.detect(payload(webhook(an_alert()))).SOURCE == "alertmanager"


def test_a_third_partys_parser_joins_and_its_bugs_are_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    plug(monkeypatch, f"{__name__}:Plugin")
    assert registry.detect(payload("acme")).SOURCE == "acme"
    with pytest.raises(ParseError, match=r"parser acme failed on this payload \(RuntimeError\)"):
        read("acme", payload("acme"))
    claimed = registry.claimant("com.acme.gpu.health")
    assert claimed is not None
    assert claimed.SOURCE == "acme"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("no.such.module:x", "can't be loaded"),
        ("json:loads", "can't be loaded"),
        ("medevac.events.kmsg", "the source 'kmsg' is taken"),
    ],
)
def test_a_plugin_that_can_not_be_used_is_named(monkeypatch: pytest.MonkeyPatch, value: str, complaint: str) -> None:
    plug(monkeypatch, value)
    with pytest.raises(registry.RegistryError, match=complaint):
        registry.parsers()


def test_importing_the_domain_looks_nothing_up() -> None:
    code = (
        "import importlib.metadata as m\n"
        "real = m.entry_points\n"
        "def watched(**k):\n"
        "    if k.get('group') == 'medevac.events': raise SystemExit('looked up at import')\n"
        "    return real(**k)\n"
        "m.entry_points = watched\n"
        "import sys, medevac.events.registry, medevac.faults.faultset, medevac.faults.catalogue\n"
        "assert not {'medevac.events.alertmanager', 'medevac.events.kmsg'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_line_of_the_normal_form_has_the_same_shape() -> None:
    bodies = (webhook(an_alert()), cloud_event(), nvsentinel())
    lines = [normal_form(e) for body in bodies for e in read(None, payload(body)).events]
    assert len({tuple(line) for line in lines}) == 1
    assert {"subject", "kind", "fault", "severity", "entities", "starts_at", "not_before", "ends_at"} <= set(lines[0])
    assert {"actionable", "dedupe_key", "source", "class", "detail", "digest"} <= set(lines[0])
