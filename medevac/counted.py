"""Lists in a line of words: as many as are named, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence, Sized


def count(number: int, what: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def more(all_of: Sized, most: int) -> str:
    """`and 3 more` beside the first `most`; empty where that is all."""
    return f"and {len(all_of) - most} more" if len(all_of) > most else ""


def some(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    return " ".join(filter(None, (", ".join(names[:most]), more(names, most))))
