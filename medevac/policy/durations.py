"""How a policy file writes a length of time: `45m`, `1h30m`, `3s`, or a plain number of seconds."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_PATTERN = r"^(\d+(\.\d+)?[smhd])+$"


def seconds(value: Any) -> Any:
    """Text with units to seconds; anything else is left for pydantic to judge."""
    if not isinstance(value, str):
        return value
    text = value.replace(" ", "")
    if not re.match(_PATTERN, text):
        raise ValueError(f"`{value}` is no length of time; write it like `45m`, `1h30m` or `3s`")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def words(span_s: float) -> str:
    """Seconds as people say them: `15 min`, `24 h`, `3 s`, `2 d`."""
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if span_s >= size and (span_s % size == 0 or span_s >= 10 * size):
            return f"{span_s / size:.0f} {name}"
    return f"{span_s / 60:.0f} min" if span_s >= 600 else f"{span_s:g} s"


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _PATTERN}]}),
]
"""Seconds, zero or more."""
