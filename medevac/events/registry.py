"""Which senders can be read: the modules named here, and those that others install.

A built-in sender is a module of this package named in `BUILT_IN`. A third party's is any object that obeys
`medevac.events.parsing.Parser`, published through the entry-point group `medevac.events`.
Nothing is imported or looked up before the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import cast

from medevac.events.json_text import as_utf8
from medevac.events.parsing import Parsed, ParseError, Parser, Payload
from medevac.events.transport import placed, with_exit_code

GROUP = "medevac.events"

BUILT_IN: tuple[str, ...] = (
    *("nvsentinel", "cloudevents", "grafana", "alertmanager", "aws", "azure", "gcp", "oci", "pagerduty", "opsgenie"),
    *("datadog", "eks_nma", "npd", "k8s_node", "gpud", "dcgm", "dcgm_exporter", "nvidia_smi", "active_checks", "slurm"),
    *("nhc", "generic", "kmsg"),
)
"""Asked in this order by `detect`: the more particular first."""


class RegistryError(RuntimeError):
    """An installed parser can't be used. The message names it and says what to do."""


@cache
def parsers() -> Mapping[str, Parser]:
    """Every known parser by its source, built-in ones first. Raises `RegistryError`."""
    found: dict[str, Parser] = {}
    for name in BUILT_IN:
        module = cast(Parser, import_module(f"medevac.events.{name}"))
        found[module.SOURCE] = module
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            plugin = cast(Parser, entry.load())
            source = plugin.SOURCE
            usable = callable(plugin.parse) and callable(plugin.recognises)
        except Exception as e:
            raise RegistryError(f"event parser {entry.value} can't be loaded ({e}); repair or remove it") from e
        if not usable or source in found:
            why = f"the source {source!r} is taken" if source in found else "it isn't a Parser"
            raise RegistryError(f"event parser {entry.value} can't be used: {why}; rename or remove it")
        found[source] = plugin
    return MappingProxyType(found)


def sources() -> tuple[str, ...]:
    return tuple(parsers())


def parser(source: str) -> Parser:
    """Raises `ParseError` that lists the known sources."""
    try:
        return parsers()[source]
    except KeyError:
        raise ParseError(f"unknown source {source[:60]!r}; known: {', '.join(sorted(parsers()))}") from None


def detect(payload: Payload) -> Parser:
    """The one parser that surely knows the payload; raises `ParseError` when none does."""
    payload = _in_utf8(payload)
    for candidate in parsers().values():
        if _knows(candidate, payload):
            return candidate
    raise ParseError(f"nobody's payload: name its source, one of {', '.join(sorted(parsers()))}")


def _knows(candidate: Parser, payload: Payload) -> bool:
    """One that breaks over a payload doesn't know it, and keeps nobody else from knowing it."""
    try:
        return candidate.recognises(payload)
    except Exception:
        return False


def read(source: str | None, payload: Payload) -> Parsed:
    """The one way in. Whatever text was delivered, a parser gets UTF-8 without a byte order mark; a third party's that
    breaks its contract is contained here."""
    payload = _in_utf8(payload)
    chosen = parser(source) if source else detect(payload)
    try:
        return placed(chosen.parse(with_exit_code(payload)), payload.headers)
    except ParseError:
        raise
    except Exception as e:
        raise ParseError(f"parser {chosen.SOURCE} failed on this payload ({type(e).__name__})") from e


def _in_utf8(payload: Payload) -> Payload:
    body = as_utf8(payload.body)
    return payload if body is payload.body else replace(payload, body=body)


def claimant(cloudevent_type: str) -> Parser | None:
    """Who reads CloudEvents of this type: the parser one of whose `CLOUDEVENT_TYPES` it begins with."""
    for candidate in parsers().values():
        if cloudevent_type.startswith(tuple(getattr(candidate, "CLOUDEVENT_TYPES", ())) or ("\0",)):
            return candidate
    return None
