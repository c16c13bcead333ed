"""A node that nobody hears: whether its machine is proved off, and what may be let go of then."""

from __future__ import annotations

import time
from dataclasses import dataclass

from activities.failures import redact
from activities.ports import CanFree, Cluster, MachineState, NotSent, Unreadable
from activities.registry import NotConfigured, Registry
from activities.signatures import Precondition
from medevac.fleet.node import Node

OFF_S = 60.0
"""A machine that is switched off and on again is off for a moment, too."""
READ_S = 5.0


def is_off(state: MachineState) -> bool:
    """By its provider's word alone. What isn't known isn't off."""
    return not state.exists or state.power == "off"


def let_go(cluster: Cluster, node: Node, state: MachineState) -> str:
    """One step; what is still held, in words, or empty. Only for a machine that is proved off."""
    if not isinstance(cluster, CanFree):
        return ""
    try:
        held = cluster.free(node, gone=not state.exists)
    except NotSent as error:
        return "" if error.final else f"what it held could not be let go: {redact(str(error), 200)}"
    return f"still held: {', '.join(held)}" if held else ""


@dataclass(slots=True)
class Silence:
    """Of one evacuation. The provider is asked only while the node is silent."""

    registry: Registry
    cluster: Cluster
    pre: Precondition
    off_s: float = OFF_S
    """How long the provider must have said so, without a break, before it is believed."""
    _since: float | None = None
    _state: MachineState | None = None
    _read_at: float = float("-inf")

    def frees(self, node: Node) -> str | None:
        """None unless the machine is proved off; else one step of letting go: what is still held, or empty."""
        if node.reachable:
            self._since = None
            return None
        if not isinstance(self.cluster, CanFree):
            return None
        now = time.monotonic()
        if now - self._read_at >= min(READ_S, self.off_s / 4):
            self._read_at, self._state = now, self._read(node)
            if self._state is None or not is_off(self._state):
                self._since = None
            elif self._since is None:
                self._since = now
        if self._state is None or self._since is None or now - self._since < self.off_s:
            return None
        return let_go(self.cluster, node, self._state)

    @property
    def deciding(self) -> bool:
        """Its provider says that it is off, just not for long enough yet."""
        return self._since is not None

    def _read(self, node: Node) -> MachineState | None:
        try:
            return self.registry.provider(self.pre.provider).state(node, self.pre.incident)
        except (NotConfigured, NotSent, Unreadable):
            return None
