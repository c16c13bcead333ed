"""A provider, checks, tickets and a chat that are real by their word and only note what is asked of them.

They are installed like anybody's adapters, through entry points, into a folder that the processes get on their path.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.ports import CheckResult, MachineState, TicketRef, Verb
from medevac.faults.classes import Covers
from medevac.fleet.node import ABLE, Capability, Node
from medevac.incident import StepKey

KIND = "standin"
NAMES = ("providers", "checks", "tickets", "chat")


def install(folder: Path) -> None:
    made = folder / "standins-1.0.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: standins\nVersion: 1.0\n")
    groups = (f"[medevac.{name}]\n{KIND} = {__name__}:{name}\n" for name in NAMES)
    (made / "entry_points.txt").write_text("\n".join(groups))


class _Noting:
    simulated = False

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._calls = options["calls"]

    def note(self, *what: object) -> str:
        """One line for each effect that was asked for."""
        handle = os.open(self._calls, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        try:
            os.write(handle, (" ".join(map(str, what)) + "\n").encode())
        finally:
            os.close(handle)
        return f"{self.name}-1"


class providers(_Noting):
    def capabilities(self, node: Node) -> frozenset[Capability]:
        return ABLE

    def state(self, node: Node, tag: str) -> MachineState:
        return MachineState(exists=True, power="on", boot_id=node.machine.boot_id, ready=node.ready)

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        return self.note("provider", verb, node.name)


class checks(_Noting):
    def covers(self, node: Node) -> frozenset[Covers]:
        return frozenset(Covers)

    def run(self, node: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult | None:
        self.note("check", node.name)
        return CheckResult(passed=True, covers=covers, started_at=datetime.now(UTC), boot_id=node.machine.boot_id)


class tickets(_Noting):
    def find(self, key: str) -> TicketRef | None:
        return None

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        return TicketRef(system=self.name, id=self.note("ticket", title))


class chat(_Noting):
    def find(self, key: str) -> str | None:
        return None

    def post(self, key: str, thread: str, text: str) -> str:
        return self.note("chat", thread)
