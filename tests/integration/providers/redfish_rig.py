"""The rig of the Redfish provider: machines behind BMCs, and their nodes as a cluster would show them."""

from __future__ import annotations

import itertools
from typing import Any

from activities.ports import Provider, Verb
from activities.providers.redfish.provider import RedfishProvider, make
from medevac.fleet.node import Capability, Machine, Node
from tests.contracts.rigs import Trouble
from tests.integration.providers.bmcs import SYSTEMS, Bmcs, Call

CAN = frozenset({Verb.REBOOT, Verb.REINSTALL, Verb.TERMINATE})
KINDS = {Verb.REBOOT: "restart", Verb.REINSTALL: "install", Verb.TERMINATE: "off"}
CAPABILITIES = frozenset({Capability.REBOOT, Capability.REINSTALL, Capability.TERMINATE, Capability.POWER_STATE})
UP = "OSRunning"


class RedfishRig:
    def __init__(self, far: Bmcs, **options: Any) -> None:
        self.far = far
        far.heard = self._heard
        self._numbers = itertools.count(1)
        self._nodes: dict[str, Node] = {}
        """By machine."""
        self._booting: dict[str, str] = {}
        self._dead = False
        self.ids = [far.rack(), far.rack()]
        given = {
            "machines": {id: {"address": far.url, "system": f"{SYSTEMS}{id}"} for id in self.ids},
            "credential": "env:TEST_BMC", "verify": False, "reinstall": "media", "image": f"{far.url}/images/os.iso",
            "power_off": True, "read_timeout_s": 60,
        }  # fmt: skip
        self.options = given | options
        self.redfish: RedfishProvider = make("metal", self.options)
        self.provider: Provider = self.redfish
        self.node = self.join("gpu-1", self.ids[0])

    # -- the far side ------------------------------------------------------------------------------------------

    def trouble(self, verb: Verb, trouble: Trouble) -> None:
        self.far.script(KINDS[verb], trouble)

    def unreadable(self) -> None:
        self.far.script("read", Trouble.TIMEOUT_BEFORE)

    def calls(self, verb: Verb) -> int:
        return self.far.count(KINDS.get(verb, "-"))

    def applied(self, verb: Verb) -> int:
        return len(self.far.done(KINDS.get(verb, "-")))

    def billed(self) -> int:
        return 0

    def _heard(self, call: Call) -> None:
        if call.kind in ("restart", "install"):
            self._booting[call.machine] = call.kind

    # -- the cluster's view ------------------------------------------------------------------------------------

    def join(self, name: str, id: str) -> Node:
        n = next(self._numbers)
        self._nodes[id] = Node(
            cluster="prod", name=name, uid=f"uid-{n}", pool="train", gpus=8,
            machine=Machine(
                provider="metal", id=id, virtual=False, boot_id=f"boot-{n}", installation=f"installed-{n}",
                capabilities=CAPABILITIES,
            ),
        )  # fmt: skip
        return self._nodes[id]

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def change(self, id: str, /, **changes: Any) -> Node:
        """Of its node, or of its machine where that has such a field."""
        node = self._nodes[id]
        of_machine = {key: value for key, value in changes.items() if key in Machine.model_fields}
        of_node = {key: value for key, value in changes.items() if key not in of_machine}
        machine = node.machine.model_copy(update=of_machine)
        self._nodes[id] = node.model_copy(update={**of_node, "machine": machine})
        return self._nodes[id]

    def pass_time(self) -> None:
        self.far.hurry()
        booting, self._booting = self._booting, {}
        for id, kind in booting.items():
            if id not in self._nodes:
                continue
            if self._dead:
                self.far.more[id]["BootProgress"] = {"LastState": "MemoryInitializationStarted"}
                self.change(id, ready=False)
                continue
            n = next(self._numbers)
            self.change(id, boot_id=f"boot-{n}", **({"installation": f"installed-{n}"} if kind == "install" else {}))
        for id in self._nodes:
            if self.far.power(id) == "Off":
                self.change(id, ready=False)

    def swap(self) -> Node:
        self.lose()
        return self.join(self.node.name, self.ids[1])

    def lose(self) -> None:
        """Taken out of its chassis, whose BMC goes on."""
        self.far.more[self.node.machine.id]["Status"] = {"State": "Absent"}
        del self._nodes[self.node.machine.id]

    def never_boots(self) -> None:
        self._dead = True

    def never_joins(self) -> None:
        raise NotImplementedError("nothing can be asked for")
