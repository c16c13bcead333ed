"""The demo's view of each incident's way: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

WAITS = ("handed_over", "observed")
SHOWN_LINES = 4
UNTOLD = ("intent", "vote")
"""Lines that only make an effect once-only, and what the demo's own people say as they do it."""
GOOD = ("returned", "replaced", "disposed")


APPROVED = "approved"
STEPS = {
    "mark": "marked",
    "acquire": "leased",
    "evacuate": "evacuated",
    "prove": "repaired",
    "verify": "verified",
}
"""What the end of a step means for the incident's way."""


def milestone(line: dict[str, Any]) -> str:
    """Which part of the way a ledger line completes; empty for the others."""
    if line["kind"] == "decision":
        return "decided"
    if line["kind"] == "end":
        return str(line["text"].split(":")[0])
    step, _, how = line["text"].partition(": ")
    if line["kind"] != "step" or step not in STEPS or not how.startswith(("done", "already")):
        return ""
    return "replaced" if step == "prove" and "request" in how else STEPS[step]


@dataclass(slots=True)
class _Way:
    node: str
    view: dict[str, Any] | None = None
    lines: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    reached: list[str] = field(default_factory=list)
    """Milestones in the order in which they were reached; a second remedy reaches some of them again."""

    @property
    def state(self) -> str:
        if self.view is None:
            return "posted"
        return str(self.view["end"] or self.view["state"])

    @property
    def settled(self) -> bool:
        return self.view is not None and (self.view["end"] is not None or self.view["state"] in WAITS)


class Telling:
    def __init__(self, nodes: list[str]) -> None:
        self._began = time.monotonic()
        self._ways = {node: _Way(node) for node in nodes}
        self._incidents: dict[str, _Way] = {}
        """An incident goes on under its successor's name once its node was replaced."""
        self._notes: list[str] = []
        self._live: Live | None = None
        self._killed_at: datetime | None = None
        self._resumed_s: float | None = None
        self._console = Console()
        self._tty = sys.stdout.isatty()

    @contextmanager
    def live(self) -> Iterator[None]:
        if not self._tty:
            yield
            return
        with Live(self._table(), console=self._console, auto_refresh=False, transient=False) as self._live:
            yield
        self._live = None

    def say(self, node: str, kind: str, text: str) -> None:
        way = self._ways.get(node)
        line = f"{self._clock()} {kind:<10} {text}"
        if way is not None:
            way.lines.append(line)
            if kind == APPROVED:
                way.reached.append(kind)
        if self._live is None:
            print(f"{node}: {line}", flush=True)

    def note(self, text: str) -> None:
        self._notes.append(f"{self._clock()} {text}")
        if self._live is None:
            print(self._notes[-1], flush=True)

    def killed(self) -> None:
        self._killed_at = datetime.now(UTC)

    def take(self, view: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        way = self._incidents.get(view["id"]) or self._ways.get(view["node"])
        if way is None:
            return
        self._incidents[view["id"]] = way
        way.view = view
        for line in lines:
            key = f"{line['key']['step']}/{line['key']['n']}/{line['kind']}/{line['text']}"
            if key in way.seen:
                continue
            way.seen.add(key)
            if line["kind"] not in UNTOLD:
                reached = milestone(line)
                if reached and way.reached[-1:] != [reached]:
                    way.reached.append(reached)
                self.say(way.node, reached or line["kind"], line["text"])
            self._look_for_resumption(line)

    def _look_for_resumption(self, line: dict[str, Any]) -> None:
        """The first step that ended after the kill, by the ledger's own time."""
        if self._killed_at is None or self._resumed_s is not None or line["kind"] != "step":
            return
        after = (datetime.fromisoformat(line["at"]) - self._killed_at).total_seconds()
        if after > 0:
            self._resumed_s = after
            self.note(f"resumed {after:.1f} s after the kill: {line['text']}")

    def draw(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def settled(self) -> bool:
        return all(way.settled for way in self._ways.values())

    def well(self) -> bool:
        return all(way.state in GOOD for way in self._ways.values())

    def summary(self, took_s: float) -> None:
        print()
        table = Table(
            box=None, pad_edge=False, header_style="bold", title=f"after {took_s:.0f} s", title_justify="left"
        )
        for column in ("node", "fault", "remedy", "end", "incident"):
            table.add_column(column)
        for way in self._ways.values():
            view = way.view or {}
            table.add_row(
                way.node,
                str(view.get("fault") or ""),
                str(view.get("rung") or ""),
                way.state,
                str(view.get("id") or ""),
            )
        (self._console if self._tty else Console(width=160)).print(table)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:5.1f}s"

    def _table(self) -> Group:
        parts: list[Table | Text] = []
        for way in self._ways.values():
            fault = way.view["fault"] if way.view else ""
            parts.append(Text(f"{way.node}  {fault}  {way.state}", style="bold green" if way.state in GOOD else "bold"))
            parts.append(Text(f"   {' → '.join(way.reached)}", style="cyan"))
            parts += [Text(f"   {line}", overflow="ellipsis", no_wrap=True) for line in way.lines[-SHOWN_LINES:]]
        parts += [Text(note, style="yellow") for note in self._notes[-3:]]
        return Group(*parts)
