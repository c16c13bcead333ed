"""A Job that runs one pod on one node, once. Its name is made of the step's key and is the token: who creates it
again finds it. The pod is never made anew, and whatever it does must itself refuse to run on another boot.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Literal

from activities.kubernetes.client import Client, Object, url
from activities.kubernetes.names import CORDONED, TAINT
from activities.kubernetes.nodes import conditions, metadata, notes
from activities.kubernetes.options import JobOptions
from activities.ports import NotSent, Unreadable

KIND = "medevac.dev/job"
"""Label of Jobs and pods: what they are for."""
KEY = "medevac.dev/key"
"""Annotation of a Job: the step it stands for."""
OF_JOB = "batch.kubernetes.io/job-name"
MAX_MESSAGE = 4096
"""What a kubelet keeps of a termination message."""
MARGIN_S = 15.0
"""Beyond the pod's own limit, until the Job is given up: a kubelet that hangs ends nothing."""
OVER = ("Complete", "SuccessCriteriaMet", "Failed", "FailureTarget")
"""`Failed` comes only when no pod is left, which on a dead node is never; `FailureTarget` comes before it."""


@dataclass(frozen=True, slots=True)
class Task:
    """What runs on the node, with the least rights that do."""

    kind: str
    key: str
    node: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    host_paths: dict[str, str] = field(default_factory=dict)
    """Of the node, read-only at the same place in the pod; with its kind, such as `Socket` or `Directory`."""
    privileged: bool = False
    """Root on the node: all devices, all processes, its root directory at `/host`."""

    @property
    def name(self) -> str:
        return f"medevac-{self.kind}-{hashlib.sha256(self.key.encode()).hexdigest()[:24]}"


@dataclass(frozen=True, slots=True)
class Reading:
    """A Job as it stands."""

    state: Literal["absent", "waiting", "running", "over"]
    why: str = ""
    """What it waits for, or how it ended, in words."""
    started: bool = False
    """Its program ran on the node, or runs."""
    code: int | None = None
    """Exit code; None where the program's own end isn't known."""
    message: str = ""
    """What the program left as termination message."""
    pod: str = ""
    notes: dict[str, str] = field(default_factory=dict)


def create(client: Client, options: JobOptions, task: Task) -> bool:
    """True when this call began it; False when it is there already. Raises `NotSent` or `Unclear`."""
    path = url("apis", "batch", "v1", "namespaces", options.namespace, "jobs")
    answer = client.write("POST", path, manifest(options, task))
    if answer.code == 409 and answer.body.get("reason") == "AlreadyExists":
        return False
    if answer.code == 404:
        raise NotSent(f"no namespace {options.namespace}: apply deploy/kubernetes (see docs/kubernetes.md)", final=True)
    if not answer.ok:
        raise answer.error()
    return True


def read(client: Client, options: JobOptions, task: Task) -> Reading:
    """Raises `Unreadable`, also for a Job of this name that isn't ours."""
    job = client.get(url("apis", "batch", "v1", "namespaces", options.namespace, "jobs", task.name))
    if job is None:
        return Reading("absent", f"there is no Job {task.name}")
    if notes(job).get(KEY) != task.key:
        raise Unreadable(f"Job {options.namespace}/{task.name} is not the one of {task.key}; remove it")
    path = url("api", "v1", "namespaces", options.namespace, "pods")
    return judge(job, list(client.list(path, {"labelSelector": f"{OF_JOB}={task.name}"})))


def output(client: Client, options: JobOptions, pod: str, limit: int) -> bytes:
    """The beginning of what the pod printed. Raises `Unreadable`."""
    path = url("api", "v1", "namespaces", options.namespace, "pods", pod, "log")
    return (client.text(path, {"limitBytes": str(limit)}) or b"")[:limit]


def judge(job: Object, pods: list[Object]) -> Reading:
    """Pure."""
    kept = notes(job)
    ended = next(
        (f"{c.get('reason', kind)}: {c.get('message', '')}" for kind, c in conditions(job).items()
         if kind in OVER and c.get("status") == "True"),
        "",
    )  # fmt: skip
    pod = max(pods, key=lambda one: (_final(one), metadata(one).get("creationTimestamp", "")), default=None)
    if pod is None:
        return Reading("over" if ended else "waiting", ended or "it has no pod yet", notes=kept)
    status, name = pod.get("status") or {}, str(metadata(pod)["name"])
    state = next((one.get("state") or {} for one in status.get("containerStatuses") or ()), {})
    if _final(pod):
        last = state.get("terminated") or {}
        said = " ".join(filter(None, (status.get("reason"), status.get("message"), last.get("reason"))))
        return Reading(
            "over", said, started=bool(last.get("startedAt")), code=last.get("exitCode"),
            message=str(last.get("message") or ""), pod=name, notes=kept,
        )  # fmt: skip
    started = "running" in state
    why = _waits(pod, state)
    if ended:
        return Reading("over", f"{ended}; {why}" if why else ended, started=started, pod=name, notes=kept)
    return Reading("running" if started else "waiting", why, started=started, pod=name, notes=kept)


def _final(pod: Object) -> bool:
    status = pod.get("status") or {}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    return status.get("phase") in ("Succeeded", "Failed") or any("terminated" in state for state in states)


def _waits(pod: Object, state: Object) -> str:
    if waiting := state.get("waiting"):
        return f"{waiting.get('reason', 'waiting')}: {waiting.get('message', '')}".rstrip(": ")
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'unschedulable')}: {scheduled.get('message', '')}"
    return "its pod is being ended" if "deletionTimestamp" in metadata(pod) else ""


def manifest(options: JobOptions, task: Task) -> Object:
    labels = {KIND: task.kind, "app.kubernetes.io/managed-by": "medevac"}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": task.name, "labels": labels, "annotations": {KEY: task.key, **task.notes}},
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": math.ceil(options.start_s + options.run_s + 2 * MARGIN_S),
            "ttlSecondsAfterFinished": options.keep_s,
            "template": {"metadata": {"labels": labels}, "spec": _pod(options, task)},
        },
    }  # fmt: skip


def _pod(options: JobOptions, task: Task) -> Object:
    if task.privileged:
        rights: Object = {"privileged": True, "runAsUser": 0}
    else:
        rights = {
            "runAsUser": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": list(task.capabilities)},
            "seccompProfile": {"type": "RuntimeDefault"},
        }  # fmt: skip
    paths = {f"host-{n}": path for n, path in enumerate(task.host_paths)}
    mounts: list[Object] = [{"name": name, "mountPath": path, "readOnly": True} for name, path in paths.items()]
    volumes: list[Object] = [
        {"name": name, "hostPath": {"path": path, "type": task.host_paths[path]}} for name, path in paths.items()
    ]
    if task.privileged:
        # What is mounted below it, such as /run, stays writable.
        mounts.append({"name": "root", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"})
        volumes.append({"name": "root", "hostPath": {"path": "/", "type": "Directory"}})
    pod: Object = {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
        # By the kubelet's clock, from the start: the pod stays, and says what became of it.
        "activeDeadlineSeconds": math.ceil(options.run_s + MARGIN_S),
        "automountServiceAccountToken": False, "enableServiceLinks": False, "hostPID": task.privileged,
        # As a DaemonSet's pods: through the scheduler, so that the taints of others are respected.
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [task.node]}]}
        ]}}},
        "tolerations": [
            *({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (TAINT, CORDONED)),
            *options.tolerations,
        ],
        "containers": [{
            "name": task.kind, "image": options.image, "command": list(task.command),
            "env": [{"name": name, "value": value} for name, value in task.env.items()],
            "securityContext": rights, "terminationMessagePolicy": "File",
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
        "imagePullSecrets": [{"name": name} for name in options.pull_secrets],
    }  # fmt: skip
    if options.runtime_class:
        pod["runtimeClassName"] = options.runtime_class
    if options.priority_class:
        pod["priorityClassName"] = options.priority_class
    return pod
