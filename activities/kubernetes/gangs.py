"""How a gang whose pods must leave a node comes back: who starts it anew, by which switch, or why nobody does. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from activities.kubernetes.client import Object
from activities.kubernetes.nodes import labels
from activities.kubernetes.owners import Root

SUSPEND = "spec.suspend"
RUN_POLICY = "spec.runPolicy.suspend"
ACTIVE = "spec.active"
"""Kueue's own switch: off takes the workload's quota and pods away, on puts it into its queue again."""

SWITCHES: dict[tuple[str, str], tuple[str, str]] = {
    ("batch", "Job"): ("jobs", SUSPEND),
    ("jobset.x-k8s.io", "JobSet"): ("jobsets", SUSPEND),
    ("trainer.kubeflow.org", "TrainJob"): ("trainjobs", SUSPEND),
    ("kubeflow.org", "PyTorchJob"): ("pytorchjobs", RUN_POLICY),
    ("kubeflow.org", "MPIJob"): ("mpijobs", RUN_POLICY),
    ("kubeflow.org", "TFJob"): ("tfjobs", RUN_POLICY),
    ("kubeflow.org", "JAXJob"): ("jaxjobs", RUN_POLICY),
    ("kubeflow.org", "XGBoostJob"): ("xgboostjobs", RUN_POLICY),
    ("kubeflow.org", "PaddleJob"): ("paddlejobs", RUN_POLICY),
    ("ray.io", "RayJob"): ("rayjobs", SUSPEND),
}
"""Resource and switch. A controller ends the pods of a suspended workload without counting them as failures."""
KUEUE = "kueue.x-k8s.io"
QUEUE = f"{KUEUE}/queue-name"
JOB_UID = f"{KUEUE}/job-uid"
HEAD = ("ray.io/node-type", "head")


@dataclass(frozen=True, slots=True)
class Left:
    """Not started anew by us."""

    why: str


@dataclass(frozen=True, slots=True)
class Switch:
    """What stops a workload and starts it again, and of which object."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    field: str

    def patch(self, *, on: bool) -> Object:
        """`on` = stopped."""
        value = on if self.field != ACTIVE else not on
        *above, last = self.field.split(".")
        body: Object = {last: value}
        for part in reversed(above):
            body = {part: body}
        return body

    def stopped(self, thing: Object) -> bool:
        found: object = thing
        for part in self.field.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found is False if self.field == ACTIVE else found is True


def comes_back(root: Root, pods: Iterable[Object]) -> Switch | Left:
    """By the workload itself; one in a queue of Kueue (`queued`) is Kueue's to stop and to start."""
    thing = root.thing
    if thing is None:
        return Left(f"its {root.kind} can't be read or is of a kind that isn't known: its owner must start it again")
    group, _, version = str(thing.get("apiVersion", "")).rpartition("/")
    spec = thing.get("spec") or {}
    if why := _restarts_itself(group, root.kind, spec, pods):
        return Left(why)
    known = SWITCHES.get((group, root.kind))
    if known is None:
        return Left(f"nothing is known that starts a {root.kind} anew: its owner must see to it")
    plural, field = known
    switch = Switch(group, version, plural, root.namespace, root.name, field)
    if switch.stopped(thing):
        return Left("it is suspended by someone, who starts it again")
    return switch


def queued(thing: Object) -> bool:
    return bool(labels(thing).get(QUEUE))


def in_queue(workload: Object) -> Switch | Left:
    """Of Kueue's Workload."""
    group, _, version = str(workload.get("apiVersion", "")).rpartition("/")
    meta = workload.get("metadata") or {}
    admitted = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    if any("topologyAssignment" in one for one in admitted):
        return Left("Kueue puts another node in this one's place (topology-aware)")
    switch = Switch(group, version, "workloads", meta.get("namespace", ""), meta.get("name", ""), ACTIVE)
    return Left("it is deactivated by someone, who starts it again") if switch.stopped(workload) else switch


def _restarts_itself(group: str, kind: str, spec: Object, pods: Iterable[Object]) -> str:
    """Empty where it doesn't."""
    match kind:
        case "LeaderWorkerSet":
            policy = (spec.get("leaderWorkerTemplate") or {}).get("restartPolicy", "RecreateGroupOnPodRestart")
            if policy == "RecreateGroupOnPodRestart":
                return "its controller makes the whole group anew"
            return f"its restart policy is {policy}: only the pod comes back, its owner must see to the rest"
        case "RayCluster" | "RayService":
            return _ray(pods)
        case "RayJob" if not spec.get("shutdownAfterJobFinishes") or spec.get("clusterSelector"):
            return _ray(pods)
        case "Job" if group == "batch.volcano.sh":
            return _volcano(spec)
        case "Job":
            template = ((spec.get("template") or {}).get("spec")) or {}
            if spec.get("backoffLimitPerIndex") is not None or not template.get("subdomain"):
                # Without names for each other its pods can't talk: they don't depend on each other.
                return "its indexes work alone, and its controller makes another pod"
            if spec.get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
                return f"it is managed by {spec['managedBy']}, which must start it again"
        case "PyTorchJob" if spec.get("elasticPolicy"):
            return "it is elastic: it goes on with those that are left, and takes in the new one"
    return ""


def _ray(pods: Iterable[Object]) -> str:
    if any(labels(pod).get(HEAD[0]) == HEAD[1] for pod in pods):
        return "its head goes, and with it whatever ran there: its owner must submit it again"
    return "KubeRay makes another worker, and Ray runs its tasks again"


def _volcano(spec: Object) -> str:
    policies = [*(spec.get("policies") or ())]
    for task in spec.get("tasks") or ():
        policies += task.get("policies") or ()
    for policy in policies:
        events = {policy.get("event"), *(policy.get("events") or ())}
        if events & {"PodEvicted", "*"}:
            return f"Volcano answers an eviction with {policy.get('action')}, which counts as one of its retries"
    return "it has no policy for PodEvicted: its owner must restart it"
