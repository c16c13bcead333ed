"""What a person may say about a Kubernetes cluster in the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from medevac.model import Model

Labels = tuple[str, ...]

DOMAINS: dict[str, Labels] = {
    "region": ("topology.kubernetes.io/region",),
    "zone": ("topology.kubernetes.io/zone",),
    "rack": ("topology.kubernetes.io/rack", "medevac.dev/rack", "oci.oraclecloud.com/rdma.local_block_id"),
    "switch": (
        "medevac.dev/switch", "network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3",
        "cloud.google.com/gce-topology-subblock",
    ),
    "image": ("medevac.dev/image",),
}  # fmt: skip


class JobOptions(Model):
    """Of pods that are pinned to one node."""

    namespace: str
    image: str = Field(min_length=1)
    """Has Python 3.8 or newer as `python3`, where no command is named."""
    runtime_class: str | None = None
    """Such as `nvidia`, which gives the pod the node's driver."""
    pull_secrets: tuple[str, ...] = ()
    priority_class: str | None = None
    tolerations: tuple[dict[str, JsonValue], ...] = ()
    """Beside our mark and the cordon: taints that GPU nodes always carry here."""
    start_s: float = Field(120.0, gt=0)
    """How long its pod may take to start: image pull, and a driver that comes up after a boot."""
    run_s: float = Field(60.0, gt=0)
    keep_s: int = Field(86_400, ge=3_600)
    """Afterwards the cluster removes what is left of it. Until then it is what remembers that it ran."""


class Options(Model):
    """All have a default that fits a cluster of one of the large providers."""

    kubeconfig: Path | None = None
    """Unset: the pod's own account inside a cluster, `KUBECONFIG` or `~/.kube/config` elsewhere."""
    context: str | None = None
    rights: Literal["watch", "observe", "mark", "evict"] = "evict"
    """What the account is meant to be allowed; `medevac doctor` names what it lacks (`deploy/kubernetes/`)."""
    connect_timeout_s: float = Field(1.0, gt=0)
    read_timeout_s: float = Field(2.5, gt=0)
    """Of one object. Listings have four times as long."""
    connections: int = Field(32, ge=1)
    page: int = Field(500, ge=1)
    """Objects in one answer of a listing."""
    pool_labels: Labels = (
        "medevac.dev/pool", "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
    )  # fmt: skip
    """Node labels that name the pool; the first that is there counts."""
    gpu_resources: Labels = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")
    sku_labels: Labels = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
    topology: dict[str, Labels] = {}
    """Failure domain (`rack`, `switch`, …): the labels that name it, in place of the shipped ones (`DOMAINS`)."""
    roles: dict[str, dict[str, str]] = {}
    """Role (`storage`, `etcd`, `medevac`, …): node labels that mean it, beside `node-role.kubernetes.io/<role>`."""
    providers: dict[str, str] = {}
    """Scheme of the nodes' providerID (`aws`, `gce`, …): name of the configured provider, where they differ."""
    provider: str = ""
    """Of nodes without a providerID (bare metal)."""
    wait_for_volumes: bool = True
    """A drain ends only when the volumes of the pods that left are detached, as their next users need it."""
    probes: dict[str, tuple[str, ...]] = {}
    """Name, as the policy's `checkpoints` say under `command`: a program and its arguments, run by the worker without a
    shell. `{namespace}`, `{kind}` and `{name}` as whole arguments stand for the job. Exit status 0 and one time
    (RFC 3339) on standard output = the last complete checkpoint."""
    probe_s: float = Field(5.0, gt=0)
    last: tuple[str, ...] = ()
    """Namespaces whose pods leave last, such as storage and monitoring."""
