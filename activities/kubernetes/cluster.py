"""`KubernetesCluster`: the cluster port on a real API server. Published as kind `kubernetes` of `medevac.clusters`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from activities.kubernetes import (
    dead,
    eviction,
    evidence,
    local_data,
    marking,
    nodes,
    notices,
    pods,
    probing,
    requeue,
    rights,
    saying,
    volumes,
    workloads,
)  # fmt: skip
from activities.kubernetes.client import Client, Object, url
from activities.kubernetes.nodeside import NodeSide
from activities.kubernetes.options import Options
from activities.kubernetes.own import OwnNodes
from activities.kubernetes.owners import Owners
from activities.kubernetes.remediators import Remediators
from activities.kubernetes.telling import Tellings
from activities.kubernetes.watching import NodeWatch
from activities.ports import Eviction, MachineState, Mark, NotSent, Pod, Requeued, Told, Unreadable, Verb
from activities.recent import Recent
from activities.registry import ConfigurationError, complaints
from medevac.fleet.node import Capability, Node, Workload
from medevac.fleet.remediator import Remediator
from medevac.incident import StepKey

log = logging.getLogger(__name__)
BUDGETS_S = 2.0
"""How old the list of disruption budgets may be: it only names who refuses, the API server decides."""
ATTACHMENTS_S = 1.0
"""An older list could only show a volume that has been detached since."""
NODE_S = 10.0
"""A node as it was read so lately may be written to: the write says which version it was made for."""


class KubernetesCluster:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self._client = Client(options)
        self._owners = Owners(self._client)
        self._remediators = Remediators(self._client)
        self._own = OwnNodes(self._client, options.own_pods, options.own_databases)
        self._watch = NodeWatch(self._client, lambda thing: nodes.read(thing, name, options))
        self._within = NodeSide(self._client, options.node_side) if options.node_side else None
        self._budgets = Recent[dict[str, list[Object]]](BUDGETS_S)
        self._attachments = Recent[list[Object]](ATTACHMENTS_S)
        self._nodes = Recent[Object | None](NODE_S)

    # -- reading -----------------------------------------------------------------------------------------------

    def nodes(self) -> Iterable[Node]:
        return self._watch.nodes()

    def node(self, name: str) -> Node | None:
        thing = self._nodes.ask(lambda: self._client.get(url("api", "v1", "nodes", name)), name)
        return None if thing is None else nodes.read(thing, self.name, self.options)

    def watch(self, hear: Callable[[Told], None], *, relist_s: float, events: bool) -> Tellings:
        return Tellings(self._client, hear, relist_s, events)

    def workloads(self, node: str) -> list[Workload]:
        return workloads.on_node(self._client, self._owners, node, self.options)

    def all_workloads(self) -> dict[str, list[Workload]]:
        return workloads.on_all(self._client, self._owners, self.options)

    def pods(self, node: str) -> list[Pod]:
        found = pods.on_node(self._client, node)
        guards = self._guards() if found else {}
        return sorted(
            (pods.read(pod, self._workload(pod), guards, self.options) for pod in found), key=lambda pod: pod.uid
        )

    def attachments(self, node: str) -> list[str]:
        if not self.options.wait_for_volumes:
            return []
        every = self._attachments.get()
        return volumes.attached(
            self._client, node, self._attachments.ask(self._all_attachments) if every is None else every
        )

    def _all_attachments(self) -> list[Object]:
        return list(self._client.list(volumes.ATTACHMENTS))

    def remediators(self, node: Node) -> list[Remediator]:
        return self._remediators.of(node)

    def _workload(self, pod: Object) -> str:
        if pods.daemon_like(pod):
            owner = nodes.controller(pod) or {"kind": "Pod", "name": nodes.metadata(pod)["name"]}
            return f"{nodes.metadata(pod)['namespace']}/{owner['kind']}/{owner['name']}"
        return self._owners.root(pod).title

    def _guards(self) -> dict[str, list[Object]]:
        known = self._budgets.get()
        return self._budgets.ask(lambda: pods.budgets(self._client)) if known is None else known

    # -- writing -----------------------------------------------------------------------------------------------

    def mark(self, node: str, mark: Mark) -> Literal["done", "already"]:
        made = marking.mark(self._client, node, mark, self._nodes.get(node))
        if made == "done":
            saying.marked(self._client, node, mark)
        return made

    def lift(self, node: str, incident: str) -> Literal["done", "already"]:
        known = self._nodes.get(node)
        quiet = False

        def first(thing: Object) -> bool:
            nonlocal quiet
            if not quiet and self.options.rights == "evict":  # who may not write to pods has told none
                quiet = True
                self._nobody_is_told(node)
            return self._none_is_stopped(thing, incident)

        made = marking.lift(self._client, node, incident, first, known)
        if made == "done":
            saying.lifted(self._client, node, incident)
        if self._within and self.options.node_side and self.options.node_side.reset_gpu:
            self._within.resume(node)
        return made

    def notice(self, node: str, by: datetime) -> None:
        if failed := notices.give(self._client, node, by, self.options):
            raise NotSent(f"{len(failed)} pods were not told: {'; '.join(failed[:3])}")

    def take_back_notice(self, node: str, by: datetime) -> None:
        if failed := notices.take_back(self._client, node, by, self.options):
            raise NotSent(f"{len(failed)} pods still carry it: {'; '.join(failed[:3])}")

    def _nobody_is_told(self, node: str) -> None:
        """A notice that can't be taken back is no reason to keep the mark: its time passes by itself."""
        try:
            failed = notices.take_back(self._client, node, None, self.options)
        except Unreadable as error:
            failed = [str(error)]
        if failed:
            log.error("%s: notices of eviction still stand: %s", node, "; ".join(failed[:3]))

    def runs_medevac(self, node: str) -> bool:
        return node in self._own.names()

    def own_unknown(self) -> tuple[str, ...]:
        return self._own.unknown()

    def _none_is_stopped(self, thing: Object, incident: str) -> bool:
        """Nothing stays stopped that was to be started anew; what may not be is no reason to keep the mark."""
        if not nodes.requeuing(thing):
            return True
        for failed in requeue.resume_all(self._client, thing, incident):
            log.error("%s: %s", nodes.metadata(thing)["name"], failed)
        return False

    def requeue(self, workload: Workload, node: str, incident: str) -> Requeued:
        return requeue.step(self._client, self._owners, workload, node, incident)

    def resume(self, node: str, incident: str) -> list[str]:
        return requeue.resume(self._client, node, incident)

    def free(self, node: Node, *, gone: bool) -> list[str]:
        return dead.free(self._client, node, self.options, gone=gone)

    def local_data(self, node: str) -> tuple[str, ...]:
        return local_data.used(self._client, node, self.options)

    def probe(self, command: str, workload: Workload) -> datetime | None:
        return probing.probe(self.options.probes, command, workload, self.options.probe_s)

    def evict(self, pod: Pod, grace_s: float) -> Eviction:
        return eviction.evict(self._client, pod, grace_s)

    def delete(self, pod: Pod, grace_s: float) -> Eviction:
        return eviction.delete(self._client, pod, grace_s)

    # -- from within a node ------------------------------------------------------------------------------------

    def node_capabilities(self, node: Node) -> frozenset[Capability]:
        return self._within.capabilities(node) if self._within else frozenset()

    def node_state(self, node: Node, key: StepKey) -> MachineState:
        return self._on_nodes().state(node, key)

    def do_on_node(self, verb: Verb, node: Node, key: StepKey) -> JsonValue:
        return self._on_nodes().do(verb, node, key)

    def proceed_on_node(self, verb: Verb, node: Node, key: StepKey) -> str | None:
        return self._on_nodes().proceed(verb, node, key)

    def evidence(self, node: Node, incident: str) -> Iterable[tuple[str, bytes]]:
        return evidence.pieces(self._client, self.options.collector, node, incident)

    def _on_nodes(self) -> NodeSide:
        if self._within is None:
            raise NotSent(f"cluster {self.name}: `node_side` is not configured", final=True)
        return self._within

    # -- doctor ------------------------------------------------------------------------------------------------

    def missing_rights(self) -> list[str]:
        """What the account lacks of what `options.rights` says that it is for, as `verb resource`."""
        within = self._within.missing_rights() if self._within else []
        collector = self.options.collector
        needed = (*rights.JOBS, rights.LOGS)
        collecting = rights.missing_of(self._client, needed, collector.namespace) if collector else []
        return list(dict.fromkeys((*rights.missing(self._client, self.options.rights), *within, *collecting)))

    def close(self) -> None:
        self._watch.close()
        self._client.close()


def make(name: str, options: dict[str, Any]) -> KubernetesCluster:
    try:
        read = Options.model_validate(options)
    except ValidationError as error:
        said = complaints(error)
        raise ConfigurationError(f"cluster {name} (kubernetes): {said}; see docs/kubernetes.md") from None
    try:
        return KubernetesCluster(name, read)
    except Exception as error:
        raise ConfigurationError(
            f"cluster {name} (kubernetes): can't sign in: {error}; give `kubeconfig` (and `context`) in its options,"
            " set KUBECONFIG, or run inside the cluster"
        ) from None
