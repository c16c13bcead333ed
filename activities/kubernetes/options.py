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


PAUSE = tuple(
    f"nvidia.com/gpu.deploy.{part}"
    for part in ("device-plugin", "dcgm", "dcgm-exporter", "gpu-feature-discovery", "nvsm", "node-status-exporter")
)


class ResetOptions(Model):
    """A GPU is reset only when nobody has it open: these are stopped first and run again afterwards."""

    stop: tuple[str, ...] = ("nvidia-dcgm", "dcgm-exporter", "nvidia-fabricmanager", "nvidia-persistenced")
    """systemd units, where they are there and run."""
    pause: tuple[str, ...] = PAUSE
    """Labels by which the GPU operator lets its pods run on a node (`true`): they leave, the device plugin's too."""
    linked: Literal["whole", "refuse"] = "whole"
    """GPUs that are linked to the one are reset with it, or it is left alone."""
    virtual: bool = False
    """Also in virtual machines. Many clouds don't let a guest reset its GPU: try it on one first."""
    driver_root: str = Field("/", pattern="^/")
    """Where the driver's programs are on the node; `/run/nvidia/driver` for the GPU operator's driver container."""
    wait_s: float = Field(90.0, ge=0)
    """For what still has it open to end."""
    reset_s: float = Field(90.0, gt=0)


class RebootOptions(Model):
    hang_s: float = Field(75.0, gt=0)
    """After `systemctl reboot`, until the kernel itself is told to."""


class NodeSideOptions(JobOptions):
    """What may be done from within a node; nothing of it unless it is named."""

    namespace: str = "medevac-node-side"
    run_s: float = Field(300.0, gt=0)
    agents: tuple[str, ...] = ()
    """systemd units of monitors, all of which the rung `restart_agent` restarts."""
    reset_gpu: ResetOptions | None = None
    reboot: RebootOptions | None = None
    """Where the machine's provider can't reboot it; one that can is preferred."""


class CollectorOptions(JobOptions):
    """A pod that prints what should be kept of a node before anything irreversible, such as `nvidia-bug-report.sh`."""

    namespace: str = "medevac-node-side"
    command: tuple[str, ...] = Field(min_length=1)
    privileged: bool = False
    """Root on the node, whose root directory is at `/host`."""
    bytes: int = Field(4 * 1024 * 1024, ge=1_024)
    """Of what it prints; its beginning is kept."""


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
    own_pods: Labels = (
        "app.kubernetes.io/part-of=medevac", "app.kubernetes.io/name=temporal", "component=etcd,tier=control-plane",
    )  # fmt: skip
    """Label selectors of the pods that are medevac and what it stands on: nodes that run one, beside those of
    DaemonSets, have the role `medevac`. None: only labels of nodes say so (`roles`). As shipped, those of our
    manifests, of Temporal's Helm chart, and etcd's static pods."""
    own_databases: Labels = ("app.kubernetes.io/name in (postgresql, postgres)", "cnpg.io/cluster")
    """The same of databases, but only in namespaces where a pod of `own_pods` runs: elsewhere they are somebody's."""
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
    shared_paths: tuple[str, ...] = ()
    """Paths of nodes that aren't on their own disks, such as a network file system: they outlive the machine."""
    last: tuple[str, ...] = ()
    """Namespaces whose pods leave last, such as storage and monitoring."""
    node_side: NodeSideOptions | None = None
    """Rungs from within the nodes; their account needs `deploy/kubernetes/node-side.yaml`."""
    collector: CollectorOptions | None = None
    """Unset: conditions, Events and pods are kept, which the API server itself knows."""
