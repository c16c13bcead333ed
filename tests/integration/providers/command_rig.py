"""The rig of the command provider: the shipped example, run against a small cloud of our own."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from activities.ports import Provider, Verb
from activities.providers.command.provider import CommandProvider, make
from medevac.fleet.node import Capability, Machine, Node
from tests.contracts.rigs import Trouble
from tests.integration.providers.neocloud import Neocloud

EXAMPLE = Path(__file__).parents[3] / "deploy" / "providers" / "neocloud.py"
CAN = frozenset({Verb.REBOOT, Verb.REINSTALL, Verb.REQUEST, Verb.TERMINATE})
CAPABILITIES = frozenset({
    Capability.REBOOT, Capability.REINSTALL, Capability.REPLACE, Capability.TERMINATE, Capability.POWER_STATE,
    Capability.SERIAL,
})  # fmt: skip
NAMES = ("state", "reboot", "reinstall", "request", "terminate", "release", "evidence", "check")


def example(**more: Any) -> dict[str, Any]:
    commands = {name: [sys.executable, "-I", "-S", str(EXAMPLE), name] for name in NAMES}
    return {"commands": commands, "environment": ["NEOCLOUD_URL", "NEOCLOUD_TOKEN"]} | more


class CommandRig:
    def __init__(self, far: Neocloud, **options: Any) -> None:
        self.far = far
        far.heard = self._heard
        self._numbers = itertools.count(1)
        self._nodes: dict[str, Node] = {}
        self._changing: list[tuple[str, str]] = []
        self._dead, self._joins = False, True
        self.command: CommandProvider = make("neocloud", example() | options)
        self.provider: Provider = self.command
        self.node = self.join("gpu-1", far.launch())

    def trouble(self, verb: Verb, trouble: Trouble) -> None:
        self.far.scripts.append((verb.value, trouble))

    def unreadable(self) -> None:
        self.far.scripts.append(("read", Trouble.TIMEOUT_BEFORE))

    def calls(self, verb: Verb) -> int:
        return self.far.calls.count(verb.value)

    def applied(self, verb: Verb) -> int:
        return sum(what == verb.value for what, _ in self.far.effects)

    def billed(self) -> int:
        return sum(bool(one["tag"]) and one["status"] == "running" for one in self.far.machines.values())

    def _heard(self, what: str, id: str) -> None:
        self._changing.append((what, id))

    # -- the cluster's view ------------------------------------------------------------------------------------

    def join(self, name: str, id: str) -> Node:
        machine = Machine(provider="neocloud", id=id, boot_id=f"boot-{id}", capabilities=CAPABILITIES)
        self._nodes[id] = Node(
            cluster="prod", name=name, uid=f"uid-{next(self._numbers)}", sku="h100-sxm-80g", machine=machine
        )
        return self._nodes[id]

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def pass_time(self) -> None:
        changing, self._changing = self._changing, []
        for what, id in changing:
            if what == "terminate":
                self.far.machines[id]["status"] = "terminated"
                self._nodes.pop(id, None)
            elif what == "request":
                if self._joins:
                    self.join(f"node-{id}", id)
            elif id in self._nodes:
                self._boot(what, id)

    def _boot(self, what: str, id: str) -> None:
        node = self._nodes[id]
        if self._dead:
            self.far.machines[id]["status"] = "booting"
            self._nodes[id] = node.model_copy(update={"ready": False})
            return
        if what == "reinstall":
            self.far.machines[id]["installed_at"] += "+"
        machine = node.machine.model_copy(update={"boot_id": f"{node.machine.boot_id}+"})
        self._nodes[id] = node.model_copy(update={"machine": machine})

    def swap(self) -> Node:
        self.lose()
        return self.join(self.node.name, self.far.launch())

    def lose(self) -> None:
        self.far.machines[self.node.machine.id]["status"] = "terminated"
        del self._nodes[self.node.machine.id]

    def never_boots(self) -> None:
        self._dead = True

    def never_joins(self) -> None:
        self._joins = False
