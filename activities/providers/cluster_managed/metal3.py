"""Metal3: a reboot is an annotation on the BareMetalHost, which its operator takes away once the host is on again."""

from __future__ import annotations

import json

from activities.kubernetes.client import Object
from activities.kubernetes.nodes import notes
from activities.ports import MachineState, NotSent, Verb
from activities.providers.cluster_managed.api import Api
from medevac.fleet.node import Capability, Node

GROUP = "metal3.io"
REBOOT = "reboot.metal3.io"
HELD = ("baremetalhost.metal3.io/detached", "baremetalhost.metal3.io/paused")
PROVISIONED = frozenset({"provisioned", "externally provisioned"})


class Metal3:
    capabilities = frozenset({Capability.REBOOT, Capability.POWER_STATE})

    def __init__(self, api: Api) -> None:
        self._api = api

    def owns(self, node: Node) -> bool:
        """By its providerID: `metal3://namespace/host/machine`."""
        return node.machine.id.count("/") == 2

    def state(self, node: Node, tag: str) -> MachineState | None:
        if not self.owns(node):
            return None
        host = self._host(node)
        status = (host or {}).get("status") or {}
        powered = status.get("poweredOn")
        on = "unknown" if powered is None else "on" if powered else "off"
        return MachineState.model_validate({
            "exists": host is not None and _provisioned(host),
            "power": on if host is not None else "unknown",
            "ready": on == "on" and status.get("operationalStatus") == "OK",
        })  # fmt: skip

    def do(self, verb: Verb, node: Node, tag: str) -> str:
        host = self._host(node)
        if host is None or not _provisioned(host):
            raise NotSent(f"no BareMetalHost is provisioned as {node.machine.id}", final=True)
        if held := [note for note in HELD if note in notes(host)]:
            raise NotSent(f"its BareMetalHost carries {held[0]}: its operator would do nothing", final=True)
        if not (host.get("spec") or {}).get("online"):
            raise NotSent("its BareMetalHost is to be off (`spec.online`): somebody else turned it off", final=True)
        mode = "soft" if node.reachable else "hard"
        self._api.annotate(self._path(node), host, {REBOOT: json.dumps({"mode": mode})})
        return f"{REBOOT} is set, {mode}"

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        return None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        return ()

    # -- parts -------------------------------------------------------------------------------------------------

    def _path(self, node: Node) -> str:
        namespace, name, _ = node.machine.id.split("/")
        return self._api.path(GROUP, "baremetalhosts", name, namespace)

    def _host(self, node: Node) -> Object | None:
        host = self._api.get(self._path(node))
        consumer = ((host or {}).get("spec") or {}).get("consumerRef") or {}
        # A host outlives what was installed on it, and is another machine for the next one.
        return host if host is not None and consumer.get("name") == node.machine.id.split("/")[2] else None


def _provisioned(host: Object) -> bool:
    return ((host.get("status") or {}).get("provisioning") or {}).get("state") in PROVISIONED
