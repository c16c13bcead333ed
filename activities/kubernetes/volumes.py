"""Volumes that are still attached to a node though the pods that used them have left."""

from __future__ import annotations

from collections.abc import Iterable

from activities.kubernetes import pods
from activities.kubernetes.client import Client, Object, url
from activities.kubernetes.nodes import metadata

ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
"""Of the whole cluster: the API server doesn't choose them by node."""


def attached(client: Client, node: str, attachments: Iterable[Object] | None = None) -> list[str]:
    """Names of persistent volumes. What the pods that stay use (a daemon with a volume) is nobody's to wait for.

    `attachments` of the cluster, where they have just been listed.
    """
    names = [
        str(volume)
        for one in (client.list(ATTACHMENTS) if attachments is None else attachments)
        if (one.get("spec") or {}).get("nodeName") == node
        and (volume := (one["spec"].get("source") or {}).get("persistentVolumeName"))
    ]
    if not names:
        return []
    used = {claim for pod in pods.on_node(client, node) for claim in claims(pod)}
    return sorted(name for name in names if _claimed_by(client, name) not in used)


def claims(pod: Object) -> list[tuple[str, str]]:
    """Namespace and name. A generic ephemeral volume's claim is named after pod and volume."""
    meta, found = metadata(pod), []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            found.append((meta["namespace"], str(claim["claimName"])))
        elif "ephemeral" in volume:
            found.append((meta["namespace"], f"{meta['name']}-{volume['name']}"))
    return found


def _claimed_by(client: Client, volume: str) -> tuple[str, str] | None:
    """None where the volume is gone, or nobody's: its attachment still holds the node's disk."""
    thing = client.get(url("api", "v1", "persistentvolumes", volume))
    claim = ((thing or {}).get("spec") or {}).get("claimRef") or {}
    return (claim["namespace"], claim["name"]) if claim else None
