"""NVSentinel's janitor: RebootNode and TerminateNode, which it carries out by the cloud's API."""

from __future__ import annotations

from activities.kubernetes.client import Object, url
from activities.kubernetes.nodes import conditions, metadata
from activities.ports import MachineState, NotSent, Verb
from activities.providers.cluster_managed.api import INCIDENT, Api, is_true, machine_id, token
from medevac.fleet.node import Capability, Node

GROUP = "janitor.dgxc.nvidia.com"


class NvSentinel:
    capabilities = frozenset({Capability.REBOOT, Capability.TERMINATE})

    def __init__(self, api: Api) -> None:
        self._api = api

    def owns(self, node: Node) -> bool:
        return True

    def state(self, node: Node, tag: str) -> MachineState | None:
        """What it was told to end is gone when it says so *and* its node is gone: neither alone is proof."""
        thing = self._node(node)
        asked = self._asked(node, tag)
        ready = thing is not None and is_true(thing, "Ready")
        return MachineState(
            exists=thing is not None or (asked is not None and not is_true(asked, "NodeTerminated")),
            power="on" if ready else "unknown",
            ready=ready,
        )

    def do(self, verb: Verb, node: Node, tag: str) -> str:
        if self._node(node) is None:
            if verb is Verb.TERMINATE and self._asked(node, tag) is not None:
                return "TerminateNode was made before"
            raise NotSent(f"{node.name} isn't the node of {node.machine.id} any more", final=True)
        kind, name = "TerminateNode", {"name": _name(node, tag)}
        if verb is Verb.REBOOT:
            kind, name = "RebootNode", {"generateName": f"{_name(node, tag)}-"}
        made = self._api.create(
            self._path(f"{kind.lower()}s"),
            {
                "apiVersion": f"{GROUP}/{self._api.version(GROUP)}",
                "kind": kind,
                "metadata": {**name, "annotations": {INCIDENT: tag}},
                "spec": {"nodeName": node.name, "force": not node.reachable},
            },
        )
        return f"{kind} {'is made' if made else 'was made before'}"

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        if verb is Verb.TERMINATE and (asked := self._asked(node, tag)) is not None:
            said = conditions(asked).get("NodeTerminated", {})
            if said.get("status") == "False" and (asked.get("status") or {}).get("completionTime"):
                raise NotSent(f"NVSentinel gave it up: {said.get('message', '')}", final=True)
        return None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        return ()

    # -- parts -------------------------------------------------------------------------------------------------

    def _path(self, plural: str, name: str = "") -> str:
        return self._api.path(GROUP, plural, name)

    def _asked(self, node: Node, tag: str) -> Object | None:
        return self._api.get(self._path("terminatenodes", _name(node, tag))) if tag else None

    def _node(self, node: Node) -> Object | None:
        """None also where another machine has its name."""
        thing = self._api.get(url("api", "v1", "nodes", node.name))
        spec, info = (thing or {}).get("spec") or {}, ((thing or {}).get("status") or {}).get("nodeInfo") or {}
        known = (
            machine_id(str(spec.get("providerID") or "")),
            info.get("systemUUID"),
            metadata(thing or {}).get("uid"),
        )
        return thing if node.machine.id in known else None


def _name(node: Node, tag: str) -> str:
    return f"medevac-{token(tag, node.machine.id)}"
