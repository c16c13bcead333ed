"""How commands speak: tables for people, JSON where one would pipe, one line for what went wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

STYLES = {
    "green": ("returned", "replaced", "disposed", "withdrawn", "approved", "end"),
    "yellow": (
        "waiting_approval",
        "waiting_lease",
        "held",
        "pending",
        "blocked",
        "refused",
        "cancelled",
        "hold",
        "abort",
    ),
    "red": ("handed_over", "rejected", "expired", "failed", "timed_out"),
}


class Failed(Exception):
    """Ends a command with one line on standard error. `code`: 1 it failed, 2 the input or the usage was wrong."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    listed = [[_cell(cell) for cell in row] for row in rows]
    if not listed:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, column in enumerate(columns):
        # On a narrow terminal sentences give way; a name that is folded can't be copied.
        table.add_column(column, overflow="fold", no_wrap=all(" " not in row[n] or len(row[n]) < 20 for row in listed))
    for row in listed:
        table.add_row(*(Text(cell, style_of(cell)) for cell in row))
    # A pipe has no width; rich would fold at 80.
    Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or 200)).print(table)


def tell_cut(shown: int, limit: int, more: str = "--limit shows more") -> None:
    """A list that was cut must not be taken for all there is."""
    if shown >= limit:
        print(f"only {shown} are shown, there may be more: {more}", file=sys.stderr)


def print_styled(*parts: tuple[str, str]) -> None:
    """One line of (text, style); colours where a person reads it, the bare words in a pipe."""
    from rich.console import Console
    from rich.text import Text

    if not sys.stdout.isatty():
        print("".join(plain(text) for text, _ in parts))
        return
    Console().print(Text.assemble(*((plain(text), style) for text, style in parts)), soft_wrap=True)


def style_of(word: str) -> str:
    """How a state, an end, an outcome or a kind of line looks; empty for every other text."""
    return next((style for style, those in STYLES.items() if word in those), "")


def _cell(value: Any) -> str:
    """Outside text may hold terminal escapes."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " for c in text)


def plain(value: Any) -> str:
    return _cell(value)
