"""NVSentinel: its janitor carries out RebootNode and TerminateNode by the cloud's API; or somebody outside is asked.

An ExternalRemediationRequest is its way to somebody outside: the janitor lets go of the node, and whoever takes such
requests reports by a condition.
"""

from __future__ import annotations

from typing import Any

from activities.kubernetes.client import Object, url
from activities.kubernetes.nodes import conditions, machine_id, metadata
from activities.ports import MachineState, NotAllowed, NotSent, Verb
from activities.providers.cluster_managed.api import INCIDENT, Api, is_true, name_of
from medevac.fleet.node import Capability, Node

JANITOR = "janitor.dgxc.nvidia.com"
OUTSIDE = ("nvsentinel.nvidia.com", "nvsentinel.dgxc.nvidia.com")
"""Groups of the request, by version of NVSentinel."""


class NvSentinel:
    capabilities = frozenset({Capability.REBOOT, Capability.TERMINATE})
    done = "NodeTerminated"

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
            exists=thing is not None or (asked is not None and not is_true(asked, self.done)),
            power="on" if ready else "unknown",
            ready=ready,
        )

    def do(self, verb: Verb, node: Node, tag: str) -> str:
        if self._node(node) is None:
            if verb is Verb.TERMINATE and self._asked(node, tag) is not None:
                return "it was asked for before"
            raise NotSent(f"{node.name} isn't the node of {node.machine.id} any more", final=True)
        name = {"name": name_of(node, tag)} if verb is Verb.TERMINATE else {"generateName": f"{name_of(node, tag)}-"}
        path = self._path(verb)
        group, version, plural = path.split("/")[2:5]
        kind, spec = self._order(verb, node)
        thing = {
            "apiVersion": f"{group}/{version}",
            "kind": kind,
            "metadata": {**name, "annotations": {INCIDENT: tag}},
            "spec": spec,
        }
        return f"{plural}: {'made' if self._api.create(path, thing) else 'made before'}"

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        if verb is Verb.TERMINATE and (asked := self._asked(node, tag)) is not None:
            said = conditions(asked).get(self.done, {})
            if said.get("status") == "False" and self._over(asked):
                raise NotSent(f"it was given up: {said.get('message', '')}", final=True)
        return None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        return ()

    # -- what another way of asking has otherwise --------------------------------------------------------------

    def _path(self, verb: Verb, name: str = "") -> str:
        return self._api.path(JANITOR, "rebootnodes" if verb is Verb.REBOOT else "terminatenodes", name)

    def _order(self, verb: Verb, node: Node) -> tuple[str, dict[str, Any]]:
        kind = "RebootNode" if verb is Verb.REBOOT else "TerminateNode"
        return kind, {"nodeName": node.name, "force": not node.reachable}

    def _over(self, asked: Object) -> bool:
        return bool((asked.get("status") or {}).get("completionTime"))

    # -- parts -------------------------------------------------------------------------------------------------

    def _asked(self, node: Node, tag: str) -> Object | None:
        return self._api.get(self._path(Verb.TERMINATE, name_of(node, tag))) if tag else None

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


class External(NvSentinel):
    """By an ExternalRemediationRequest."""

    done = "ExternalRemediationComplete"

    def _path(self, verb: Verb, name: str = "") -> str:
        for group in OUTSIDE[:-1]:
            try:
                return self._api.path(group, "externalremediationrequests", name)
            except NotAllowed:
                continue
        return self._api.path(OUTSIDE[-1], "externalremediationrequests", name)

    def _order(self, verb: Verb, node: Node) -> tuple[str, dict[str, Any]]:
        action = "REPLACE_VM" if verb is Verb.TERMINATE else "RESTART_VM" if node.machine.virtual else "RESTART_BM"
        event = {
            "version": 1, "agent": "medevac", "componentClass": "Node", "checkName": "medevac", "nodeName": node.name,
            "isFatal": True, "isHealthy": False, "recommendedAction": action, "message": f"medevac asks to {verb} it",
        }  # fmt: skip
        return "ExternalRemediationRequest", {"healthEvent": event}

    def _over(self, asked: Object) -> bool:
        return True
