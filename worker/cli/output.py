"""How commands speak: tables for people, JSON where one would pipe, one line for what went wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any


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
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in listed:
        table.add_row(*(Text(cell) for cell in row))
    # A pipe has no width; rich would fold at 80.
    Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "200"))).print(table)


def _cell(value: Any) -> str:
    """Outside text may hold terminal escapes."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " for c in text)


def plain(value: Any) -> str:
    return _cell(value)
