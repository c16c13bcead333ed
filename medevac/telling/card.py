"""`Card`: what is to be said, without the looks of any one place where it is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo


@dataclass(frozen=True, slots=True)
class At:
    """A moment; each place shows it in its reader's own zone."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    url: str


Part = str | At | Link
Words = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Field:
    label: str
    words: Words


@dataclass(frozen=True, slots=True)
class Confirm:
    """Asked once more before the button does anything: a finger slips easily."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Button:
    action: str
    label: str
    value: str
    danger: bool = False
    confirm: Confirm | None = None


@dataclass(frozen=True, slots=True)
class Card:
    title: str
    summary: str
    """All of it in one line, for a notification or a reader without looks."""
    fields: tuple[Field, ...] = ()
    """Most important first: what has no room is cut from the end."""
    buttons: tuple[Button, ...] = ()
    footnote: Words = ()
    loud: bool = False
    """People are called to it when it is first shown."""


def plain(card: Card, zone: tzinfo | None = UTC) -> str:
    """For a terminal; in the zone of its process where none is given."""
    said = ((field.label, plain_words(field.words, zone).replace("\n", "\n  ")) for field in card.fields)
    lines = [card.title, *(f"{label}: {words}" for label, words in said)]
    return "\n".join([*lines, plain_words(card.footnote, zone)] if card.footnote else lines)


def plain_words(words: Words, zone: tzinfo | None = UTC) -> str:
    return "".join(_plain(part, zone) for part in words)


def _plain(part: Part, zone: tzinfo | None) -> str:
    match part:
        case At():
            return f"{part.at.astimezone(zone):%Y-%m-%d %H:%M %Z}"
        case Link():
            return f"{part.text} ({part.url})"
        case str():
            return part
