"""Objects that order the repair of nodes: MachineHealthChecks (Cluster API, OpenShift), NodeHealthChecks (medik8s)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from activities.kubernetes import others
from activities.kubernetes.client import Client, Forbidden, Object
from activities.kubernetes.nodes import metadata, notes, selects
from activities.kubernetes.reach import Found, unreadable
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator, Switch

MACHINE = "Machine/"
"""How `Node.owner` begins where such a check may reach the node."""
PAUSED = "cluster.x-k8s.io/paused"
MACHINES = (
    ("/apis/cluster.x-k8s.io/v1beta2/machinehealthchecks", "/apis/cluster.x-k8s.io/v1beta1/machinehealthchecks"),
    ("/apis/machine.openshift.io/v1beta1/machinehealthchecks",),
)
"""Of one API group, the newest version that is served counts."""
NODES = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks"


def machines(client: Client, versions: tuple[str, ...]) -> Iterator[Found]:
    group = versions[0].split("/")[2]
    resource = f"machinehealthchecks.{group}"
    try:
        checks: list[Object] = next((found for path in versions if (found := list(client.list(path)))), [])
    except Forbidden:
        # An API that isn't served answers the same way to an account that may not list it.
        if _served(client, group):
            yield unreadable(others.CLUSTER_API, f"the account may not list {resource}")
        return
    on = [check for check in checks if PAUSED not in notes(check)]
    if not on:
        return
    names = [f"{metadata(check)['namespace']}/{metadata(check)['name']}" for check in on]
    off = "; ".join(
        f"kubectl -n {metadata(check)['namespace']} annotate {resource} {metadata(check)['name']} {PAUSED}=true"
        for check in on
    )
    yield Found(
        Remediator(
            name=others.CLUSTER_API, switch=Switch.ON, seen=f"health checks of machines: {', '.join(names)}", off=off
        ),
        _of_a_machine,
    )


def nodes(client: Client) -> Iterator[Found]:
    try:
        checks = list(client.list(NODES))
    except Forbidden:
        if _served(client, NODES.split("/")[2]):
            yield unreadable(others.MEDIK8S, "the account may not list nodehealthchecks.remediation.medik8s.io")
        return
    for check in checks:
        spec, name = check.get("spec") or {}, metadata(check)["name"]
        if spec.get("pauseRequests"):
            continue
        pause = '{"spec":{"pauseRequests":["medevac"]}}'
        off = f"kubectl patch nodehealthcheck {name} --type merge -p '{pause}'"
        found = Remediator(name=others.MEDIK8S, switch=Switch.ON, seen=f"nodehealthcheck {name}", off=off)
        yield Found(found, partial(_reaches, spec.get("selector") or {}))


def _of_a_machine(node: Node) -> bool:
    return node.owner.startswith(MACHINE)


def _reaches(selector: Object, node: Node) -> bool:
    return selects(selector, node.labels)


def _served(client: Client, group: str) -> bool:
    return client.get(f"/apis/{group}") is not None
