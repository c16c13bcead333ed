"""Whether a storage system bears that one of its servers goes: the installation's own program says, just now."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from activities.ports import Unreadable
from activities.program import Program
from activities.recent import Recent
from medevac.fleet.node import Node
from medevac.model import Model

ANSWER_S = 2.5
"""A plan waits for it: who needs longer to know keeps what it knew last."""
FRESH_S = 10.0


class StorageProbe(Model):
    """One of `storage_probes` in the configuration file."""

    name: str = Field(min_length=1)
    """As a pool of the policy says under `storage_probe`."""
    command: tuple[str, ...] = Field(min_length=1)
    """A program and its arguments, without a shell. It reads which node is meant, and ends with 0 where it may go."""
    environment: tuple[str, ...] = ()
    """Variables of the worker that it is given, beside PATH, HOME and LANG."""


class StorageProbes:
    """Thread-safe; what a probe said of a node counts for `FRESH_S`."""

    def __init__(self, probes: Iterable[StorageProbe] = ()) -> None:
        self._programs = {
            one.name: Program(f"storage probe {one.name}", one.command, one.environment, ANSWER_S) for one in probes
        }
        self._said = Recent[str](FRESH_S)

    def why_not(self, name: str, node: Node) -> str:
        """Empty where it passes. Whatever goes wrong is a reason like any other, without the program's secrets."""
        if (program := self._programs.get(name)) is None:
            return f"the configuration has no `storage_probes` called {name}"
        key = f"{name} {node.cluster}/{node.name}"
        known = self._said.get(key)
        return self._said.ask(lambda: _asked(program, node), key) if known is None else known


def _asked(program: Program, node: Node) -> str:
    try:
        program.read({"cluster": node.cluster, "node": node.name, "machine": node.machine.id, "labels": node.labels})
    except Unreadable as error:
        return str(error)
    return ""
