"""What each level of access needs, and what an account lacks of it. The manifests are tested against this table."""

from __future__ import annotations

from typing import Literal

from activities.kubernetes.client import Client, Object
from activities.kubernetes.owners import PLURALS

Level = Literal["watch", "observe", "mark", "evict"]
Right = tuple[str, str, str]
"""API group, resource (with its subresource), verb."""

_READ: tuple[Right, ...] = (
    *(("", "nodes", verb) for verb in ("get", "list", "watch")),
    *(("", "pods", verb) for verb in ("get", "list", "watch")),
    ("policy", "poddisruptionbudgets", "list"),
    ("storage.k8s.io", "volumeattachments", "list"),
    *(("", "persistentvolumes", verb) for verb in ("get", "list")),
    *((group, plural, "get") for (group, kind), plural in PLURALS.items() if kind != "Pod"),
    # Who else repairs nodes.
    ("apps", "deployments", "list"),
    ("apps", "daemonsets", "list"),
    ("karpenter.sh", "nodepools", "list"),
    ("cluster.x-k8s.io", "machinehealthchecks", "list"),
    ("machine.openshift.io", "machinehealthchecks", "list"),
    ("remediation.medik8s.io", "nodehealthchecks", "list"),
)
_MARK: tuple[Right, ...] = (("", "nodes", "patch"), ("", "nodes/status", "patch"), ("", "events", "create"))
_EVICT: tuple[Right, ...] = (
    ("", "pods", "patch"),
    ("", "pods", "delete"),
    ("", "pods/eviction", "create"),
    ("", "events", "list"),
)

_WATCH: tuple[Right, ...] = (
    *(("", "nodes", verb) for verb in ("get", "list", "watch")),
    *(("", "events", verb) for verb in ("list", "watch")),
)

NEEDED: dict[Level, tuple[Right, ...]] = {
    "watch": _WATCH,
    "observe": _READ,
    "mark": _READ + _MARK,
    "evict": _READ + _MARK + _EVICT,
}
JOBS: tuple[Right, ...] = (("batch", "jobs", "create"), ("batch", "jobs", "get"), ("", "pods", "list"))
"""In the one namespace where Jobs of a kind run."""
LOGS: Right = ("", "pods/log", "get")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def missing(client: Client, level: Level) -> list[str]:
    """As `verb resource`, asked of the API server one by one. Raises `NotSent` or `Unclear`."""
    return [words(right) for right in NEEDED[level] if not allowed(client, right)]


def missing_of(client: Client, needed: tuple[Right, ...], namespace: str) -> list[str]:
    """As `missing`, of rights in one namespace."""
    return [f"{words(right)} in {namespace}" for right in needed if not allowed(client, right, namespace)]


def words(right: Right) -> str:
    group, resource, verb = right
    return f"{verb} {resource}{f'.{group}' if group else ''}"


def allowed(client: Client, right: Right, namespace: str = "") -> bool:
    group, resource, verb = right
    name, _, below = resource.partition("/")
    asked: Object = {"group": group, "resource": name, "subresource": below, "verb": verb, "namespace": namespace}
    answer = client.write("POST", REVIEWS, {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    })  # fmt: skip
    if not answer.ok:
        raise answer.error()
    return bool((answer.body.get("status") or {}).get("allowed"))
