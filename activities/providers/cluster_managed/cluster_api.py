"""Cluster API: a Machine that is deleted, or marked for its owner to remediate, is made anew by whoever owns it."""

from __future__ import annotations

from typing import Literal

from activities.kubernetes.client import Object
from activities.kubernetes.nodes import controller, machine_id, metadata, notes
from activities.ports import MachineState, NotAllowed, NotSent, Verb
from activities.providers.cluster_managed.api import Api, ending
from medevac.fleet.node import Capability, Node

GROUP = "cluster.x-k8s.io"
MAKERS = frozenset({"MachineSet", "MachinePool", "KubeadmControlPlane"})
"""Owners that make another Machine for one that is gone."""
REMEDIATE = "cluster.x-k8s.io/remediate-machine"
PAUSED = "cluster.x-k8s.io/paused"
DELETE_FIRST = "cluster.x-k8s.io/delete-machine"
"""Set by who wants one Machine less, such as cluster-autoscaler: its MachineSet makes no other."""


class ClusterApi:
    capabilities = frozenset({Capability.TERMINATE})

    def __init__(self, api: Api, how: Literal["delete", "remediate"], namespace: str) -> None:
        self._api = api
        self._how = how
        self._namespace = namespace

    def owns(self, node: Node) -> bool:
        return node.owner.startswith("Machine/")

    def state(self, node: Node, tag: str) -> MachineState | None:
        machine = self._machine(node)
        runs = machine is not None and not ending(machine)
        return MachineState(
            exists=machine is not None,
            power="on" if runs else "unknown",
            ready=machine is not None and runs and (machine.get("status") or {}).get("phase") == "Running",
        )

    def do(self, verb: Verb, node: Node, tag: str) -> str:
        machine = self._machine(node)
        if machine is None:
            raise NotSent(f"no Machine has {node.machine.id}", final=True)
        path, name = self._path(machine), metadata(machine)["name"]
        if ending(machine):
            return f"{name} is being deleted already"
        owner = controller(machine)
        if owner is None or owner["kind"] not in MAKERS:
            raise NotSent(f"{name} has no owner that would make another", final=True)
        self._not_held(machine)
        if self._how == "delete":
            return self._api.delete(path, machine)
        if REMEDIATE in notes(machine):
            return f"{name} is marked already"
        self._api.annotate(path, machine, {REMEDIATE: ""})
        return f"{name} is marked for {owner['kind']} {owner['name']} to remediate"

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        return None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        return ()

    # -- parts -------------------------------------------------------------------------------------------------

    def _machine(self, node: Node) -> Object | None:
        found = self._api.listed(self._api.path(GROUP, "machines", namespace=self._namespace))
        id = node.machine.id
        named = next((m for m in found if machine_id(str((m.get("spec") or {}).get("providerID") or "")) == id), None)
        # Read by itself: a listing may be some seconds old.
        return self._api.get(self._path(named)) if named is not None else None

    def _path(self, machine: Object) -> str:
        return self._api.path(GROUP, "machines", metadata(machine)["name"], metadata(machine)["namespace"])

    def _not_held(self, machine: Object) -> None:
        """Nobody acts on what is paused, and what somebody is taking away is not made anew."""
        name = metadata(machine)["name"]
        if DELETE_FIRST in notes(machine):
            raise NotSent(f"{name} is marked to be deleted for good, as cluster-autoscaler does", final=True)
        of = str((machine.get("spec") or {}).get("clusterName") or "")
        try:
            cluster = (
                self._api.get(self._api.path(GROUP, "clusters", of, metadata(machine)["namespace"])) if of else None
            )
        except NotAllowed:
            cluster = None  # seeing it is optional: whoever pauses one marks its Machines too, or waits
        if PAUSED in notes(machine) or ((cluster or {}).get("spec") or {}).get("paused"):
            raise NotSent(f"{name} is paused: its controllers would do nothing", final=True)
