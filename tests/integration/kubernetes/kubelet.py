"""Plays the kubelet for the Jobs that medevac runs on a node: starts their pods, ends them, or never does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from activities.kubernetes.client import MERGE, STRATEGIC, Object, url
from activities.kubernetes.jobs import KEY
from activities.kubernetes.nodes import conditions, metadata, notes
from tests.integration.kubernetes.site import Site, until

JOBS = ("apis", "batch", "v1", "namespaces")


class Kubelet:
    """Of all nodes of one test, for the Jobs of one namespace."""

    def __init__(self, site: Site, namespace: str) -> None:
        self.site = site
        self.namespace = namespace

    def jobs(self, *nodes: str) -> list[Object]:
        """Those that are pinned to nodes of this test."""
        wanted = set(nodes or self.site.names)
        return [job for job in self.site.admin.list(url(*JOBS, self.namespace, "jobs")) if pinned(job) in wanted]

    def pod(self, key: str = "") -> Object:
        """The one that waits to be played; bound to its node."""

        def look() -> Object | None:
            names = {metadata(job)["name"] for job in self.jobs() if notes(job)[KEY] == key or not key}
            return next(
                (
                    pod
                    for pod in self.site.admin.list(url("api", "v1", "namespaces", self.namespace, "pods"))
                    if metadata(pod)["labels"].get("job-name") in names
                    and (pod.get("spec") or {}).get("nodeName")
                    and not over(pod)
                ),
                None,
            )

        return until("a pod is bound to its node", look)

    def starts(self, pod: Object) -> Object:
        return self._status(pod, {"phase": "Running"}, {"running": {"startedAt": now()}})

    def waits(self, pod: Object, reason: str, message: str) -> Object:
        return self._status(pod, {"phase": "Pending"}, {"waiting": {"reason": reason, "message": message}})

    def ends(self, pod: Object, message: str | dict[str, Any], code: int = 0) -> Object:
        """The program has ended by itself, and left this as its message."""
        text = message if isinstance(message, str) else json.dumps(message)
        ended = {"exitCode": code, "startedAt": now(), "finishedAt": now(), "message": text}
        return self._status(pod, {"phase": "Failed" if code else "Succeeded"}, {"terminated": ended})

    def fails(self, pod: Object, reason: str, *, started: bool) -> Object:
        """Ended by the kubelet, as at the pod's own deadline, or never let in."""
        ended = {"exitCode": 137, "reason": "Error", "startedAt": now() if started else None, "finishedAt": now()}
        return self._status(pod, {"phase": "Failed", "reason": reason}, {"terminated": ended} if started else None)

    def time_is_over(self, job: Object) -> None:
        """The Job controller gives the Job up at its deadline; when this returns, it has said so."""
        path = url(*JOBS, self.namespace, "jobs", metadata(job)["name"])
        self.site.patch(path, {"spec": {"activeDeadlineSeconds": 1}})
        until("the Job is given up", lambda: conditions(self.site.get(path) or {}).get("FailureTarget"))

    def remove(self, job: Object) -> None:
        path = url(*JOBS, self.namespace, "jobs", metadata(job)["name"])
        self.site.send("DELETE", path, {"propagationPolicy": "Foreground"})
        until("the Job is gone", lambda: self.site.get(path) is None)

    def close(self) -> None:
        for job in self.jobs():
            path = url(*JOBS, self.namespace, "jobs", metadata(job)["name"])
            self.site.send("DELETE", path, {"propagationPolicy": "Background"})

    def _status(self, pod: Object, status: Object, state: Object | None) -> Object:
        path = url("api", "v1", "namespaces", self.namespace, "pods", metadata(pod)["name"], "status")
        (container,) = pod["spec"]["containers"]
        said = {
            "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
            "ready": False, "state": state,
        }  # fmt: skip
        body = {**status, "containerStatuses": [said] if state else []}
        return self.site.patch(path, {"status": body}, kind=MERGE)


def pinned(job: Object) -> str:
    """The node that it names, and no other way to say it."""
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    ((field,),) = (
        term["matchFields"] for term in affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    )
    (name,) = field["values"]
    return str(name)


def over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def reboot(site: Site, node: str, boot_id: str) -> None:
    info = site.node(node)["status"]["nodeInfo"] | {"bootID": boot_id}
    site.patch(site.node_path(node, "status"), {"status": {"nodeInfo": info}}, kind=STRATEGIC)


def dies(site: Site, node: str) -> None:
    """Its kubelet falls silent."""
    site.patch(site.node_path(node), {"metadata": {"annotations": {"test.medevac.dev/dead": "true"}}})
    silent = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    site.patch(site.node_path(node, "status"), {"status": {"conditions": silent}}, kind=STRATEGIC)
