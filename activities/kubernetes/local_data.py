"""What of a node's own disks its work uses: it would be gone with the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from activities.kubernetes import pods
from activities.kubernetes.client import Client, Object
from activities.kubernetes.nodes import metadata
from activities.kubernetes.options import Options
from activities.kubernetes.volumes import claims

SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr",
    "/var/lib/kubelet", "/var/log", "/var/run",
)  # fmt: skip
"""What every node of its kind has. An `emptyDir` isn't looked at: it ends with its pod, wherever the machine stays."""
DATA = ("", "Directory", "DirectoryOrCreate")


def used(client: Client, node: str, options: Options) -> tuple[str, ...]:
    """By the work on it, in words. Raises `Unreadable`."""
    listed = [pod for pod in pods.on_node(client, node) if pods.read(pod, "", {}, options).tier == "workload"]
    found = {path for pod in listed for path in _paths(pod, options.shared_paths)}
    if wanted := {claim for pod in listed for claim in claims(pod)}:
        found |= set(_volumes(client, wanted))
    return tuple(sorted(found))


def _paths(pod: Object, shared: tuple[str, ...]) -> Iterator[str]:
    spec = pod.get("spec") or {}
    written = {
        mount.get("name")
        for container in spec.get("containers") or ()
        for mount in container.get("volumeMounts") or ()
        if not mount.get("readOnly")
    }
    for volume in spec.get("volumes") or ():
        host = volume.get("hostPath")
        if host is None or volume.get("name") not in written or (host.get("type") or "") not in DATA:
            continue
        path = str(host.get("path", ""))
        if not _below(path, SYSTEM) and not _below(path, shared):
            yield f"host path {path}"


def _below(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)


def _volumes(client: Client, wanted: set[tuple[str, str]]) -> Iterator[str]:
    """Persistent volumes that lie on this node's own disks."""
    for volume in client.list("/api/v1/persistentvolumes"):
        spec = volume.get("spec") or {}
        claim = spec.get("claimRef") or {}
        if ("local" in spec or "hostPath" in spec) and (claim.get("namespace"), claim.get("name")) in wanted:
            yield f"local volume {metadata(volume)['name']} of {claim['namespace']}/{claim['name']}"
