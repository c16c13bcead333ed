"""Repair that a provider keeps in its own API: the labels of a node say whose it is, and no more."""

from __future__ import annotations

from collections.abc import Iterator

from activities.kubernetes import others
from activities.kubernetes.health_checks import MACHINE, PAUSED
from activities.kubernetes.reach import Found, everywhere
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator, Switch


def of(node: Node) -> Iterator[Found]:
    labels = node.labels
    if labels.get("eks.amazonaws.com/compute-type") == "auto":
        why = "EKS Auto Mode, which repairs by itself"
        off = "it can't be switched off: say `coexist: yield`"
        yield Found(Remediator(name=others.EKS, switch=Switch.ON, seen=why, off=off), everywhere)
    elif group := labels.get("eks.amazonaws.com/nodegroup"):
        off = (
            f"aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name {group}"
            " --node-repair-config enabled=false"
        )
        why = f"managed node group {group}; whether its repair is on only the EKS API says"
        yield Found(Remediator(name=others.EKS, switch=Switch.OUTSIDE, seen=why, off=off), everywhere)
    if pool := labels.get("cloud.google.com/gke-nodepool"):
        off = f"gcloud container node-pools update {pool} --cluster CLUSTER --no-enable-autorepair"
        why = f"node pool {pool}; repair is on by default, and only the GKE API says"
        yield Found(Remediator(name=others.GKE, switch=Switch.OUTSIDE, seen=why, off=off), everywhere)
    if "kubernetes.azure.com/cluster" in labels or "kubernetes.azure.com/agentpool" in labels:
        why = "AKS, which repairs nodes that are not ready"
        off = "it can't be switched off: say `coexist: yield`"
        yield Found(Remediator(name=others.AKS, switch=Switch.ON, seen=why, off=off), everywhere)
    if node.owner.startswith(MACHINE):
        why = f"{node.owner}; its health checks may be in a management cluster"
        off = f"kubectl annotate machinehealthcheck NAME {PAUSED}=true, in the management cluster"
        yield Found(Remediator(name=others.CLUSTER_API, switch=Switch.OUTSIDE, seen=why, off=off), everywhere)
