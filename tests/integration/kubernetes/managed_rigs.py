"""The rigs of the Kubernetes-managed provider: owners in a real API server, whose controllers are played here."""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from activities.kubernetes.client import MERGE, Object, url
from activities.kubernetes.nodes import metadata, notes
from activities.ports import Provider, Verb
from activities.providers.cluster_managed.provider import ManagedProvider, make
from medevac.fleet.node import Capability, Machine, Node
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.kubelet import dies
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until

DEFINED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Calls = dict[Verb, tuple[str, str]]


def define_own(site: Site, group: str, version: str, kind: str, *, scope: str, required: tuple[str, ...] = ()) -> str:
    """Of the same shape as the real one as far as it is used; the path of its things."""
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "required": list(required)}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec if required else anything, "status": anything}}
    site.send("POST", DEFINED, {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of the tests"},
        },
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{
                "name": version, "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })  # fmt: skip
    api = ("apis", group, version)
    path = site.within(plural, api=api) if scope == "Namespaced" else url(*api, plural)
    until(f"{kind} is served", lambda: _served(site, path))
    return path


def _served(site: Site, path: str) -> bool:
    try:
        return site.get(path) is not None
    except Exception:  # its storage is being made
        return False


class ManagedRig:
    owner: str
    calls_of: Calls
    can: frozenset[Capability]

    def __init__(self, site: Site, proxy: Proxy, kubeconfig: Path, **options: Any) -> None:
        self.site, self.proxy = site, proxy
        proxy.refusal = 422
        self._numbers = itertools.count(1)
        self._nodes: dict[str, Node] = {}
        """By machine."""
        self._joins, self._dead = True, False
        given = {"owners": [self.owner], "kubeconfig": str(kubeconfig)}
        self.managed: ManagedProvider = make("managed", given | options)
        self.provider: Provider = self.managed
        self.node = self.first(f"{site.run}-gpu-1")

    def first(self, name: str) -> Node:
        raise NotImplementedError

    def pass_time(self) -> None:
        raise NotImplementedError

    # -- counting ----------------------------------------------------------------------------------------------

    def trouble(self, verb: Verb, trouble: Trouble) -> None:
        method, path = self.calls_of[verb]
        self.proxy.script(method, path, trouble)

    def calls(self, verb: Verb) -> int:
        return len(self._made(verb))

    def applied(self, verb: Verb) -> int:
        return sum(200 <= status < 300 for status in self._made(verb))

    def _made(self, verb: Verb) -> list[int]:
        method, path = self.calls_of.get(verb, ("-", "-"))
        return [call.status for call in self.proxy.calls if call.method == method and re.search(path, call.path)]

    def unreadable(self) -> None:
        self.proxy.script("GET", r"/apis/[^/]+/v1\w*/", Trouble.TIMEOUT_BEFORE)

    def billed(self) -> int:
        return 0

    # -- the cluster's view ------------------------------------------------------------------------------------

    def join(self, name: str, id: str, owner: str = "") -> Node:
        n = next(self._numbers)
        machine = Machine(provider="managed", id=id, boot_id=f"boot-{n}", capabilities=self.can)
        self._nodes[id] = Node(cluster="real", name=name, uid=f"uid-{n}", machine=machine, owner=owner)
        return self._nodes[id]

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def boot(self, id: str) -> None:
        node = self._nodes[id]
        if self._dead:
            self._nodes[id] = node.model_copy(update={"ready": False})
            return
        machine = node.machine.model_copy(update={"boot_id": f"{node.machine.boot_id}+"})
        self._nodes[id] = node.model_copy(update={"machine": machine})

    def never_boots(self) -> None:
        self._dead = True

    def never_joins(self) -> None:
        self._joins = False

    def swap(self) -> Node:
        self.lose()
        return self.first(self.node.name)

    def lose(self) -> None:
        raise NotImplementedError

    # -- objects -----------------------------------------------------------------------------------------------

    def status(self, path: str, status: Object) -> None:
        self.site.must(self.site.send("PATCH", f"{path}/status", {"status": status}, MERGE))

    def let_go(self, path: str) -> None:
        """Its controller has done what there was to do; so it is gone, if it was deleted."""
        self.site.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)

    def remove(self, path: str) -> None:
        self.site.send("DELETE", path)
        self.let_go(path)
        until(f"{path} is gone", lambda: self.site.get(path) is None)


class KarpenterRig(ManagedRig):
    owner = "karpenter"
    calls_of = {Verb.REQUEST: ("POST", r"/nodeclaims(\?|$)"), Verb.TERMINATE: ("DELETE", r"/nodeclaims/")}
    can = frozenset({Capability.REPLACE, Capability.TERMINATE})
    CLAIMS, POOLS = "/apis/karpenter.sh/v1/nodeclaims", "/apis/karpenter.sh/v1/nodepools"
    KEPT = "karpenter.sh/termination"

    @property
    def pool(self) -> str:
        return f"{self.site.run}-pool"

    def first(self, name: str) -> Node:
        if self.site.get(f"{self.POOLS}/{self.pool}") is None:
            self.make_pool()
        claim = self.site.create(self.CLAIMS, {
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": f"{self.pool}-{secrets.token_hex(3)}", "finalizers": [self.KEPT],
                "labels": {"karpenter.sh/nodepool": self.pool, "node.kubernetes.io/instance-type": "p5.48xlarge"},
            },
            "spec": {**self.node_class(), "requirements": [], "resources": {"requests": {"nvidia.com/gpu": "8"}}},
        })  # fmt: skip
        return self.launched(metadata(claim)["name"], name)

    def make_pool(self, **spec: Any) -> None:
        wanted = [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge", "p4d.24xlarge"]}
        ]
        template = {
            "metadata": {"labels": {"team": "llm"}},
            "spec": {
                **self.node_class(),
                "requirements": wanted,
                "startupTaints": [{"key": "new", "effect": "NoSchedule"}],
            },
        }
        self.site.create(self.POOLS, {
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": self.pool, "annotations": {"karpenter.sh/nodepool-hash": "4711"}},
            "spec": {"template": template, **spec},
        })  # fmt: skip

    def node_class(self) -> Object:
        return {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpus"}}

    def launched(self, claim: str, name: str) -> Node:
        id = f"i-{secrets.token_hex(8)}"
        at = "2026-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": at}
        self.status(f"{self.CLAIMS}/{claim}", {
            "providerID": f"aws:///eu-west-1a/{id}", "nodeName": name, "conditions": [ready],
            "capacity": {"nvidia.com/gpu": "8", "cpu": "192"},
        })  # fmt: skip
        return self.join(name, id, f"NodeClaim/{claim}")

    def claims(self) -> list[Object]:
        mine = (self.pool, f"medevac-{self.site.run}")
        return [c for c in self.site.admin.list(self.CLAIMS)
                if metadata(c).get("labels", {}).get("karpenter.sh/nodepool") in mine]  # fmt: skip

    def pass_time(self) -> None:
        for claim in self.claims():
            name, status = metadata(claim)["name"], claim.get("status") or {}
            if "deletionTimestamp" in metadata(claim):
                self.let_go(f"{self.CLAIMS}/{name}")
                self._nodes.pop(str(status.get("providerID", "")).rpartition("/")[2], None)
            elif "providerID" not in status and self._joins:
                self.launched(name, f"{self.site.run}-{name}")

    def billed(self) -> int:
        return sum("medevac.dev/incident" in notes(claim) for claim in self.claims())

    def lose(self) -> None:
        del self._nodes[self.node.machine.id]
        self.remove(f"{self.CLAIMS}/{self.node.owner.partition('/')[2]}")

    def close(self) -> None:
        for claim in self.claims():
            self.remove(f"{self.CLAIMS}/{metadata(claim)['name']}")
        self.site.send("DELETE", f"{self.POOLS}/{self.pool}")


class ClusterApiRig(ManagedRig):
    owner = "cluster_api"
    calls_of = {Verb.TERMINATE: ("DELETE", r"/machines/")}
    can = frozenset({Capability.TERMINATE})

    @property
    def api(self) -> tuple[str, ...]:
        return ("apis", "cluster.x-k8s.io", "v1beta2")

    def path(self, name: str = "") -> str:
        return self.site.within("machines", *((name,) if name else ()), api=self.api)

    def first(self, name: str) -> Node:
        sets = self.site.within("machinesets", api=self.api)
        owner = self.site.get(f"{sets}/train") or self.site.create(sets, {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "metadata": {"name": "train"},
            "spec": {
                "clusterName": "real", "replicas": 1, "selector": {"matchLabels": {"set": "train"}},
                "template": {"metadata": {"labels": {"set": "train"}}, "spec": self.spec()},
            },
        })  # fmt: skip
        return self.machine(name, {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "train",
            "uid": metadata(owner)["uid"], "controller": True,
        })  # fmt: skip

    def machine(self, node: str, owner: Object | None) -> Node:
        id, name = f"i-{secrets.token_hex(8)}", f"train-{secrets.token_hex(3)}"
        self.site.create(self.path(), {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {
                "name": name, "finalizers": ["machine.cluster.x-k8s.io"],
                **({"ownerReferences": [owner]} if owner else {}),
            },
            "spec": {**self.spec(), "providerID": f"aws:///eu-west-1a/{id}"},
        })  # fmt: skip
        self.status(self.path(name), {"phase": "Running"})
        self.names = {**getattr(self, "names", {}), id: name}
        return self.join(node, id, f"Machine/{name}")

    def spec(self) -> Object:
        return {
            "clusterName": "real", "bootstrap": {"dataSecretName": "none"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachine", "name": "none"},
        }  # fmt: skip

    def pass_time(self) -> None:
        for machine in self.site.admin.list(self.path()):
            if "deletionTimestamp" in metadata(machine):
                self.let_go(self.path(metadata(machine)["name"]))
                self._nodes.pop(machine["spec"]["providerID"].rpartition("/")[2], None)

    def lose(self) -> None:
        del self._nodes[self.node.machine.id]
        self.remove(self.path(self.names[self.node.machine.id]))


class Metal3Rig(ManagedRig):
    owner = "metal3"
    calls_of = {Verb.REBOOT: ("PATCH", r"/baremetalhosts/")}
    can = frozenset({Capability.REBOOT, Capability.POWER_STATE})
    reboots = 0

    def path(self, name: str = "") -> str:
        return self.site.within("baremetalhosts", *((name,) if name else ()), api=("apis", "metal3.io", "v1alpha1"))

    def first(self, name: str) -> Node:
        host, machine = f"host-{secrets.token_hex(3)}", f"m3m-{secrets.token_hex(3)}"
        self.site.create(self.path(), {
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": host},
            "spec": {"online": True, "consumerRef": {"kind": "Metal3Machine", "name": machine}},
        })  # fmt: skip
        self.status(self.path(host), {
            "poweredOn": True, "operationalStatus": "OK", "provisioning": {"state": "provisioned"},
        })  # fmt: skip
        return self.join(name, f"{self.site.run}/{host}/{machine}", "Machine/x")

    def applied(self, verb: Verb) -> int:
        return self.reboots if verb is Verb.REBOOT else 0

    def pass_time(self) -> None:
        for host in self.site.admin.list(self.path()):
            name = metadata(host)["name"]
            if "reboot.metal3.io" not in notes(host):
                continue
            assert json.loads(notes(host)["reboot.metal3.io"])["mode"] in ("soft", "hard")
            self.reboots += 1
            self.site.must(
                self.site.send(
                    "PATCH", self.path(name), {"metadata": {"annotations": {"reboot.metal3.io": None}}}, MERGE
                )
            )
            if self._dead:
                self.status(self.path(name), {"operationalStatus": "error"})
            for id in [id for id in self._nodes if id.split("/")[1] == name]:
                self.boot(id)

    def lose(self) -> None:
        """Deprovisioned: the host is there, and waits for the next one."""
        del self._nodes[self.node.machine.id]
        name = self.node.machine.id.split("/")[1]
        self.site.must(self.site.send("PATCH", self.path(name), {"spec": {"consumerRef": None}}, MERGE))
        self.status(self.path(name), {"provisioning": {"state": "available"}})


class NvSentinelRig(ManagedRig):
    owner = "nvsentinel"
    calls_of = {Verb.REBOOT: ("POST", r"/rebootnodes"), Verb.TERMINATE: ("POST", r"/terminatenodes")}
    can = frozenset({Capability.REBOOT, Capability.TERMINATE})
    API = "/apis/janitor.dgxc.nvidia.com/v1alpha1"
    seen: set[str] = set()

    def first(self, name: str) -> Node:
        self.site.add_node(name)
        id = self.site.node(name)["spec"]["providerID"].rpartition("/")[2]
        return self.join(name, id)

    def unreadable(self) -> None:
        self.proxy.script("GET", r"/nodes/", Trouble.TIMEOUT_BEFORE)

    def pass_time(self) -> None:
        self._each("rebootnodes", self._reboot)
        self._each("terminatenodes", self._terminate)

    def _each(self, plural: str, act: Callable[[Object], None]) -> None:
        for thing in self.site.admin.list(f"{self.API}/{plural}"):
            if metadata(thing)["uid"] not in self.seen and self._name(thing) in self.site.names:
                self.seen.add(metadata(thing)["uid"])
                act(thing)

    def _name(self, thing: Object) -> str:
        return str(thing["spec"]["nodeName"])

    def _reboot(self, thing: Object) -> None:
        for id in [id for id, node in self._nodes.items() if node.name == thing["spec"]["nodeName"]]:
            self.boot(id)
            if self._dead:
                dies(self.site, self._nodes[id].name)

    def _terminate(self, thing: Object) -> None:
        node = self.site.node_path(thing["spec"]["nodeName"])
        self.remove(node)
        at = "2026-01-01T00:00:00Z"
        done = {
            "type": "NodeTerminated",
            "status": "True",
            "reason": "Succeeded",
            "message": "",
            "lastTransitionTime": at,
        }
        self.status(
            f"{self.API}/terminatenodes/{metadata(thing)['name']}", {"conditions": [done], "completionTime": at}
        )
        for id in [id for id, node in self._nodes.items() if node.name == thing["spec"]["nodeName"]]:
            del self._nodes[id]

    def lose(self) -> None:
        del self._nodes[self.node.machine.id]
        self.remove(self.site.node_path(self.node.name))


class ExternalRig(NvSentinelRig):
    """Somebody outside takes the requests that NVSentinel lets nodes go by."""

    owner = "nvsentinel_external"
    calls_of = dict.fromkeys((Verb.REBOOT, Verb.TERMINATE), ("POST", r"/externalremediationrequests"))
    API = "/apis/nvsentinel.nvidia.com/v1"

    def pass_time(self) -> None:
        self._each("externalremediationrequests", self._remedy)

    def _name(self, thing: Object) -> str:
        return str(thing["spec"]["healthEvent"]["nodeName"])

    def _remedy(self, thing: Object) -> None:
        name, action = self._name(thing), thing["spec"]["healthEvent"]["recommendedAction"]
        if action == "REPLACE_VM":
            self.remove(self.site.node_path(name))
        for id in [id for id, node in self._nodes.items() if node.name == name]:
            if action == "REPLACE_VM":
                del self._nodes[id]
                continue
            self.boot(id)
            if self._dead:
                dies(self.site, name)
        done = {"type": "ExternalRemediationComplete", "status": "True", "reason": "Done", "message": ""}
        self.status(f"{self.API}/externalremediationrequests/{metadata(thing)['name']}", {"conditions": [done]})
