"""Who else keeps a node: what other remediators leave on it while they have it. Pure, from the Node object alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from activities.kubernetes.client import Object

Things = dict[str, list[tuple[str, str]]]
"""What stands on a node, by where: keys with their values."""

NVSENTINEL = "NVSentinel"
KARPENTER = "Karpenter"
AKS = "AKS node auto-repair"
GKE = "GKE node auto-repair"
EKS = "EKS node auto repair"
CLUSTER_API = "MachineHealthCheck"
MEDIK8S = "medik8s"
DRAINO = "draino"
TERMINATION_HANDLER = "aws-node-termination-handler"
KURED = "kured"
AUTOSCALER = "cluster-autoscaler"

QUARANTINE = "quarantineHealthEvent"
"""Of NVSentinel: set in its dry runs too, where it has neither cordoned nor tainted."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing on a node that says whose hands it is in."""

    who: str
    where: str
    """`taint`, `label`, `annotation` or `condition`."""
    key: str
    """Ends with `/` where any key below it is meant."""
    value: str | None = None
    """None = whatever stands there."""
    also: Callable[[Object], bool] = lambda node: True

    def on(self, node: Object, things: Things) -> bool:
        return any(self._is(key, value) for key, value in things[self.where]) and self.also(node)

    def _is(self, key: str, value: str) -> bool:
        named = key.startswith(self.key) if self.key.endswith("/") else key == self.key
        return named and self.value in (None, value)


def _taken_out(node: Object) -> bool:
    taints = ((node.get("metadata") or {}).get("annotations") or {}).get(f"{QUARANTINE}AppliedTaints", "")
    return bool((node.get("spec") or {}).get("unschedulable")) or taints not in ("", "[]", "null")


def _drains(node: Object) -> bool:
    """Its condition stays when the drain is over; the message says so."""
    found = (c for c in (node.get("status") or {}).get("conditions") or () if c.get("type") == "DrainScheduled")
    return any(not ({"Completed:", "Failed:"} & set(str(c.get("message", "")).split())) for c in found)


SIGNS = (
    Sign(NVSENTINEL, "annotation", QUARANTINE, also=_taken_out),
    Sign(NVSENTINEL, "label", "k8saas.nvidia.com/cordon-by", NVSENTINEL),
    Sign(NVSENTINEL, "label", "dgxc.nvidia.com/nvsentinel-state"),
    Sign(KARPENTER, "taint", "karpenter.sh/disrupted"),
    Sign(KARPENTER, "taint", "karpenter.sh/disruption", "disrupting"),
    Sign(KARPENTER, "taint", "karpenter.sh/rebooting"),
    Sign(AKS, "taint", "remediator.kubernetes.azure.com/unschedulable"),
    Sign(AKS, "taint", "remediator.aks.microsoft.com/unschedulable"),
    Sign(GKE, "taint", "cloud.google.com/impending-node-termination"),
    Sign(MEDIK8S, "taint", "medik8s.io/remediation"),
    Sign(TERMINATION_HANDLER, "taint", "aws-node-termination-handler/"),
    Sign(DRAINO, "annotation", "draino.planet.com/conditions"),
    Sign(DRAINO, "condition", "DrainScheduled", "True", also=_drains),
    Sign(KURED, "annotation", "weave.works/kured-reboot-in-progress"),
    Sign(AUTOSCALER, "taint", "ToBeDeletedByClusterAutoscaler"),
)


CORDONS = (
    Sign(NVSENTINEL, "annotation", f"{QUARANTINE}IsCordoned", "True"),
    Sign(DRAINO, "annotation", "draino.planet.com/conditions"),
)
"""Says that the cordon is its own too, also where it found the node cordoned by us."""


def keeper(node: Object) -> str | None:
    """The remediator whose marks stand on the node; the first where several do."""
    things = _things(node)
    return next((sign.who for sign in SIGNS if sign.on(node, things)), None)


def cordons(node: Object) -> bool:
    """True where another one counts the node's cordon as its own."""
    things = _things(node)
    return any(sign.on(node, things) for sign in CORDONS)


def _things(node: Object) -> Things:
    meta, spec, status = node.get("metadata") or {}, node.get("spec") or {}, node.get("status") or {}
    return {
        "taint": [(str(t.get("key")), str(t.get("value") or "")) for t in spec.get("taints") or ()],
        "label": list((meta.get("labels") or {}).items()),
        "annotation": list((meta.get("annotations") or {}).items()),
        "condition": [(str(c.get("type")), str(c.get("status"))) for c in status.get("conditions") or ()],
    }
