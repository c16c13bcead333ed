"""A JSON object whose every error names the field and where it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from medevac.events.parsing import ParseError
from medevac.events.values import real, whole

MAX_PARTS = 10_000
"""Parts (alerts, lines, entries) read from one list of a payload. Of more parts the first are taken and the others
told (`Reading.first`); more than that in a list that is no list of parts is refused. Nothing is cut in silence."""

_KINDS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "list",
    dict: "object",
    type(None): "null",
}


def _wrong(where: str, key: str, value: object, want: str) -> ParseError:
    prefix = f"{where}: " if where else ""
    return ParseError(f"{prefix}field {key} has the wrong type ({_KINDS.get(type(value), '?')}, expected {want})")


class Fields:
    """A JSON object that knows where it stands, so that every error names the field.

    Getters: `text`, `integer`, `number`, `boolean`, `list`, `text_list`, `fields` raise when the field is missing,
    unless a default is given; a present value of the wrong type always raises. null counts as missing.
    """

    __slots__ = ("value", "where")

    def __init__(self, value: Mapping[str, JsonValue], where: str = "") -> None:
        self.value = value
        self.where = where

    @classmethod
    def of(cls, value: JsonValue, where: str = "") -> Fields:
        if not isinstance(value, dict):
            place = where or "body"
            raise ParseError(f"{place} is a {_KINDS.get(type(value), '?')}, expected an object")
        return cls(value, where)

    def get(self, key: str) -> JsonValue:
        """As it is; None where it is missing."""
        return self.value.get(key)

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _missing(self, key: str) -> ParseError:
        return ParseError(f"{self.where + ': ' if self.where else ''}field {key} is missing")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        if not isinstance(value, str):
            raise _wrong(self.where, key, value, "string")
        return value

    def maybe_text(self, key: str) -> str | None:
        """None where it is missing or empty."""
        return self.text(key, "") or None

    def scalar(self, key: str) -> str | None:
        """A string or number as text (senders write codes both ways); None where missing or empty."""
        value = self.value.get(key)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _wrong(self.where, key, value, "string or number")
        return value if isinstance(value, str) else str(value)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; one written as text is taken as meant."""
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        number = whole(value)
        if number is None:
            raise _wrong(self.where, key, value, "whole number")
        return number

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        found = real(value)
        if found is None:
            raise _wrong(self.where, key, value, "number")
        return found

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """true or false; the words "true" and "false" are taken as meant, nothing else is."""
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise _wrong(self.where, key, value, "boolean")

    def list(self, key: str, default: Sequence[JsonValue] | None = None) -> Sequence[JsonValue]:
        value = self.parts(key, default)
        if len(value) > MAX_PARTS:
            raise ParseError(f"{self._path(key)} has {len(value)} entries, more than the {MAX_PARTS} allowed")
        return value

    def parts(self, key: str, default: Sequence[JsonValue] | None = None) -> Sequence[JsonValue]:
        """A list of any length, for `Reading.first`."""
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return default
        if not isinstance(value, list):
            raise _wrong(self.where, key, value, "list")
        return value

    def text_list(self, key: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list of strings alone: of null, a number or an object no name is made."""
        found = self.list(key, default)
        if wrong := [value for value in found if not isinstance(value, str)]:
            raise _wrong(self.where, f"{key}[]", wrong[0], "string")
        return tuple(str(value) for value in found)

    def fields(self, key: str, default: Mapping[str, JsonValue] | None = None) -> Fields:
        value = self.value.get(key)
        if value is None:
            if default is None:
                raise self._missing(key)
            return Fields(default, self._path(key))
        if not isinstance(value, dict):
            raise _wrong(self.where, key, value, "object")
        return Fields(value, self._path(key))

    def texts(self, key: str) -> dict[str, str]:
        """An object of strings (labels, annotations); numbers and booleans become text, null is left out."""
        found: dict[str, str] = {}
        for name, value in self.fields(key, {}).value.items():
            if isinstance(value, dict | list):
                raise _wrong(self._path(key), name, value, "string")
            if value is not None:
                found[name] = value if isinstance(value, str) else json.dumps(value)
        return found
