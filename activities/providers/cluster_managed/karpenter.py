"""Karpenter: a machine is its NodeClaim. A successor is asked for by a NodeClaim as the NodePool has it now."""

from __future__ import annotations

from typing import Any

from activities.kubernetes.client import Object, url
from activities.kubernetes.nodes import labels, machine_id, metadata, notes
from activities.ports import MachineState, NotAllowed, NotSent, Verb
from activities.providers.cluster_managed.api import INCIDENT, Api, ending, is_true, name_of
from medevac.fleet.node import Capability, Node

GROUP = "karpenter.sh"
POOL = "karpenter.sh/nodepool"
PINNED = ("node.kubernetes.io/instance-type", "karpenter.sh/capacity-type")
"""What a successor has in common with the one that it replaces, beside the NodePool."""
HASHES = ("karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version")
"""By which Karpenter sees that a NodeClaim is as its NodePool has it now."""


class Karpenter:
    capabilities = frozenset({Capability.REPLACE, Capability.TERMINATE})

    def __init__(self, api: Api) -> None:
        self._api = api

    def owns(self, node: Node) -> bool:
        return node.owner.startswith("NodeClaim/")

    def state(self, node: Node, tag: str) -> MachineState | None:
        claim = self._claim(node)
        if claim is None:
            self._gone(node)
        successor = self._successor(node, tag)
        status = (successor or {}).get("status") or {}
        return MachineState(
            exists=claim is not None,
            power="on" if claim is not None and not ending(claim) else "unknown",
            ready=claim is not None and not ending(claim) and is_true(claim, "Ready"),
            successor=status.get("nodeName") or None,
            successor_id=machine_id(status["providerID"]) if status.get("providerID") else None,
            successor_ready=successor is not None and is_true(successor, "Ready"),
        )

    def do(self, verb: Verb, node: Node, tag: str) -> str:
        claim = self._claim(node)
        if claim is None:
            self._gone(node)
            if verb is Verb.TERMINATE:
                return f"{node.machine.id} is gone already"
            raise NotSent(f"no NodeClaim has the machine {node.machine.id}", final=True)
        if verb is Verb.TERMINATE:
            return self._api.delete(self._path(metadata(claim)["name"]), claim)
        if ending(claim):
            raise NotSent(f"{metadata(claim)['name']} is being deleted by somebody else", final=True)
        made = self._like(claim, node, tag)
        asked = self._api.create(self._path(), made)
        return f"{metadata(made)['name']} {'is made' if asked else 'was made before'}"

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        if verb is Verb.REQUEST and (successor := self._successor(node, tag)) is not None:
            for condition in (successor.get("status") or {}).get("conditions") or ():
                if condition.get("type") == "Launched" and condition.get("reason") == "InsufficientCapacityError":
                    raise NotSent(f"no capacity: {condition.get('message', '')}", final=True)
        return None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        successor = self._successor(node, tag)
        if successor is None or ending(successor):
            return ()
        if machine_id(str((successor.get("status") or {}).get("providerID") or "")) in joined:
            return ()
        self._api.delete(self._path(metadata(successor)["name"]), successor)
        return (metadata(successor)["name"],)

    # -- parts -------------------------------------------------------------------------------------------------

    def _path(self, name: str = "") -> str:
        return self._api.path(GROUP, "nodeclaims", name)

    def _claim(self, node: Node) -> Object | None:
        if self.owns(node):
            named = self._api.get(self._path(node.owner.partition("/")[2]))
            found = [named] if named else []
        else:  # its node is gone, and with it the name
            found = self._api.listed(self._path())
        id = node.machine.id
        return next((c for c in found if machine_id(str((c.get("status") or {}).get("providerID") or "")) == id), None)

    def _gone(self, node: Node) -> None:
        """Karpenter takes the node away before its NodeClaim. Raises `NotAllowed` where the node is still there."""
        there = self._api.get(url("api", "v1", "nodes", node.name))
        if there is not None and machine_id(str((there.get("spec") or {}).get("providerID") or "")) == node.machine.id:
            raise NotAllowed(f"no NodeClaim here has {node.machine.id}, though its node is there")

    def _successor(self, node: Node, tag: str) -> Object | None:
        return self._api.get(self._path(name_of(node, tag))) if tag else None

    def _like(self, old: Object, node: Node, tag: str) -> Object:
        pool_name = labels(old).get(POOL, "")
        pool = self._api.get(self._api.path(GROUP, "nodepools", pool_name)) if pool_name else None
        if pool is None:
            raise NotSent(f"{metadata(old)['name']} has no NodePool that could have another", final=True)
        if metadata(pool).get("deletionTimestamp"):
            raise NotSent(f"NodePool {pool_name} is being deleted", final=True)
        _within_limits(pool, old)
        template: dict[str, Any] = pool["spec"]["template"]
        spec = {name: value for name, value in template["spec"].items() if name not in ("requirements", "resources")}
        pinned = {key: labels(old)[key] for key in PINNED if key in labels(old)}
        wanted = [one for one in template["spec"].get("requirements") or () if one["key"] not in pinned]
        wanted += [_is(key, value) for key, value in (pinned | {POOL: pool_name}).items()]
        given = template.get("metadata") or {}
        return {
            "apiVersion": old["apiVersion"],
            "kind": "NodeClaim",
            "metadata": {
                "name": name_of(node, tag),
                "labels": {**(given.get("labels") or {}), POOL: pool_name},
                "annotations": {
                    **(given.get("annotations") or {}),
                    **{name: notes(pool)[name] for name in HASHES if name in notes(pool)},
                    INCIDENT: tag,
                },
                "ownerReferences": [
                    {"apiVersion": pool["apiVersion"], "kind": "NodePool", "name": pool_name,
                     "uid": metadata(pool)["uid"]}
                ],
            },
            "spec": {**spec, "requirements": wanted, "resources": (old.get("spec") or {}).get("resources") or {}},
        }  # fmt: skip


def _is(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}


def _within_limits(pool: Object, old: Object) -> None:
    """Karpenter keeps to its NodePool's limits only for the NodeClaims that it makes itself."""
    used = (pool.get("status") or {}).get("resources") or {}
    more = {"nodes": "1", **((old.get("status") or {}).get("capacity") or {})}
    for name, limit in (pool["spec"].get("limits") or {}).items():
        amounts = [str(amount) for amount in (limit, used.get(name, "0"), more.get(name, "0"))]
        if all(amount.isdigit() for amount in amounts):
            most, now, one = map(int, amounts)
            if now + one > most:
                raise NotSent(
                    f"no capacity: NodePool {metadata(pool)['name']} has its limit of {most} {name}", final=True
                )
