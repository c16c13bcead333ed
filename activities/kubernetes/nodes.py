"""A Node object of the API as the domain's `Node`. Pure: what isn't there is left out, never guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from activities.kubernetes import others
from activities.kubernetes.client import FIELD_MANAGER, Object
from activities.kubernetes.names import GPU_IDS, HANDS_OFF, MARK, REQUEUING, TAINT
from activities.kubernetes.options import DOMAINS, Options
from medevac.fleet.names import names_in
from medevac.fleet.node import Machine, Node
from medevac.model import Model

ROLE = "node-role.kubernetes.io/"
ROLES = {"master": "control-plane"}
RESERVED = {
    "karpenter.sh/capacity-type": "reserved",
    "eks.amazonaws.com/capacityType": "CAPACITY_BLOCK",
    "cloud.google.com/gke-provisioning": "reservation-bound",
}
CAPI_MACHINE = "cluster.x-k8s.io/machine"
OPENSHIFT_MACHINE = "machine.openshift.io/machine"
NODE_GROUPS = (
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
"""Labels by which the clouds name the group that a node came from. The cluster has no object of that name."""
INSTANCE_ID = "container.googleapis.com/instance_id"
"""Annotation of GKE's nodes: the number that Google's logs and metrics have where they don't have the name."""
METAL = re.compile(r"metal|\bbm\b", re.IGNORECASE)


class Before(Model):
    """What a mark found, so that lifting restores just that."""

    unschedulable: bool = False
    cordoned_by: str = ""


class Marked(Model):
    """Our annotation on a node."""

    incident: str
    code: str
    faults: tuple[str, ...] = ()
    reason: str = ""
    since: str = ""
    before: Before = Before()


def metadata(thing: Object) -> Object:
    return thing.get("metadata") or {}


def notes(thing: Object) -> dict[str, str]:
    """Its annotations."""
    return metadata(thing).get("annotations") or {}


def labels(thing: Object) -> dict[str, str]:
    return metadata(thing).get("labels") or {}


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """A Kubernetes label selector. What isn't understood selects."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for wanted in selector.get("matchExpressions") or ():
        key, values = wanted.get("key"), wanted.get("values") or ()
        match wanted.get("operator"):
            case "In" if labels.get(key) not in values:
                return False
            case "NotIn" if key in labels and labels[key] in values:
                return False
            case "Exists" if key not in labels:
                return False
            case "DoesNotExist" if key in labels:
                return False
    return True


def conditions(thing: Object) -> dict[str, Object]:
    return {str(one.get("type")): one for one in (thing.get("status") or {}).get("conditions") or ()}


def controller(thing: Object) -> Object | None:
    """The owner reference that controls it."""
    owners = metadata(thing).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def marked(thing: Object) -> Marked | None:
    """None also where our annotation can't be understood: what isn't surely ours is treated as someone else's."""
    text = notes(thing).get(MARK)
    if not text:
        return None
    try:
        found = json.loads(text)
        return Marked.model_validate({key: value for key, value in found.items() if key in Marked.model_fields})
    except (ValueError, AttributeError):
        return None


def taints(thing: Object) -> list[Object]:
    return list((thing.get("spec") or {}).get("taints") or ())


def ours(taint: Object) -> bool:
    return taint.get("key") == TAINT


def unschedulable(thing: Object) -> bool:
    return bool((thing.get("spec") or {}).get("unschedulable"))


def cordoned_by(thing: Object) -> str:
    """The tool that set `unschedulable`, as the API server keeps it; empty where nobody says."""
    for entry in metadata(thing).get("managedFields") or ():
        if "f:unschedulable" in (entry.get("fieldsV1") or {}).get("f:spec", {}):
            return str(entry.get("manager", ""))
    return ""


def foreign_cordon(thing: Object) -> str | None:
    """Who else cordoned it, or has it in repair. Ours alone is no foreign one; nor is one that nobody has set anew."""
    if keeper := others.keeper(thing):
        return keeper
    if not unschedulable(thing):
        return None
    by, mark = cordoned_by(thing), marked(thing)
    if mark is None:
        # Ours without a mark: its annotation was taken away, so nothing says any more whose it is.
        return by or "unknown"
    if mark.before.unschedulable:
        return mark.before.cordoned_by or "unknown"
    return by if by and by != FIELD_MANAGER else None


def reachable(thing: Object) -> bool:
    """False once Kubernetes itself has given up on hearing its kubelet. A node that isn't ready may still answer."""
    ready = conditions(thing).get("Ready")
    return ready is None or ready.get("status") != "Unknown"


def requeuing(thing: Object) -> tuple[str, ...]:
    try:
        return tuple(str(one["title"]) for one in json.loads(notes(thing).get(REQUEUING) or "[]"))
    except (ValueError, TypeError, KeyError):
        return ()


def read(thing: Object, cluster: str, options: Options) -> Node:
    meta, status = metadata(thing), thing.get("status") or {}
    tags, mark = labels(thing), marked(thing)
    hands_off = notes(thing).get(HANDS_OFF, tags.get(HANDS_OFF))
    return Node(
        cluster=cluster,
        name=meta["name"],
        uid=meta.get("uid"),
        pool=_first(tags, options.pool_labels),
        gpus=_gpus(thing, options),
        sku=_first(tags, options.sku_labels),
        ready=conditions(thing).get("Ready", {}).get("status") == "True",
        reachable=reachable(thing),
        schedulable=not unschedulable(thing),
        machine=_machine(thing, options),
        topology=_topology(tags, status, options),
        labels=dict(tags),
        roles=tuple(sorted(_roles(tags, options))),
        aliases=tuple(sorted(set(_aliases(thing)) - {meta["name"]})),
        gpu_ids=tuple(sorted(set(re.split(r"[\s,;]+", notes(thing).get(GPU_IDS, ""))) - {""})),
        owner=_owner(thing),
        marked_by=mark.incident if mark else None,
        foreign_cordon=foreign_cordon(thing),
        hands_off=None if hands_off is None else hands_off or "unknown",
        requeuing=requeuing(thing),
    )


def _first(tags: dict[str, str], names: Iterable[str]) -> str | None:
    return next((tags[name] for name in names if tags.get(name)), None)


def _gpus(thing: Object, options: Options) -> int:
    """The most that anyone says: a dead device plugin must not turn a GPU node into one without GPUs."""
    status = thing.get("status") or {}
    said = [
        int(amounts[name])
        for amounts in (status.get("capacity") or {}, status.get("allocatable") or {})
        for name in options.gpu_resources
        if str(amounts.get(name, "")).isdigit()
    ]
    counted = labels(thing).get("nvidia.com/gpu.count", "")
    return max([*said, int(counted) if counted.isdigit() else 0], default=0)


def _machine(thing: Object, options: Options) -> Machine:
    spec, info = thing.get("spec") or {}, (thing.get("status") or {}).get("nodeInfo") or {}
    tags = labels(thing)
    provider_id = str(spec.get("providerID") or "")
    scheme, _, path = provider_id.partition("://")
    provider = options.providers.get(scheme, scheme) if path else options.provider
    id = machine_id(provider_id) or info.get("systemUUID") or metadata(thing).get("uid") or ""
    metal = (
        not path or scheme in ("metal3", "baremetal") or METAL.search(tags.get("node.kubernetes.io/instance-type", ""))
    )
    return Machine(
        provider=provider,
        id=id,
        boot_id=info.get("bootID") or None,
        installation=info.get("machineID") or None,
        virtual=not metal,
        reserved=any(tags.get(name) == value for name, value in RESERVED.items()),
        public_addresses=tuple(_public(thing)),
    )


def _public(thing: Object) -> Iterator[str]:
    for address in (thing.get("status") or {}).get("addresses") or ():
        if address.get("type") == "ExternalIP" and address.get("address"):
            yield str(address["address"])


def machine_id(provider_id: str) -> str:
    """As the provider's own API calls it: of AWS only the instance id, of the others all that follows the scheme."""
    scheme, _, path = provider_id.partition("://")
    path = path.strip("/")
    return path.rsplit("/", 1)[-1] if scheme == "aws" else path


def _topology(tags: dict[str, str], status: Object, options: Options) -> dict[str, str]:
    found = {domain: _first(tags, names) for domain, names in {**DOMAINS, **options.topology}.items()}
    image = (status.get("nodeInfo") or {}).get("osImage")
    return {name: value for name, value in {"image": image, **{k: v for k, v in found.items() if v}}.items() if value}


def _roles(tags: dict[str, str], options: Options) -> Iterator[str]:
    for name in tags:
        if name.startswith(ROLE) and (role := name.removeprefix(ROLE)):
            yield ROLES.get(role, role)
    for role, wanted in options.roles.items():
        if wanted and all(tags.get(key) == value for key, value in wanted.items()):
            yield role


def _aliases(thing: Object) -> Iterator[str]:
    status = thing.get("status") or {}
    for address in status.get("addresses") or ():
        if address.get("address"):
            yield str(address["address"])
    info, provider_id = status.get("nodeInfo") or {}, str((thing.get("spec") or {}).get("providerID") or "")
    for name in (provider_id, info.get("systemUUID"), info.get("machineID"), notes(thing).get(INSTANCE_ID)):
        if name:
            yield str(name)
    yield from names_in(provider_id)
    if "ocid1." in provider_id and (host := labels(thing).get("hostname")):
        yield host  # OKE calls its nodes by their addresses, the machines' own logs by this


def _owner(thing: Object) -> str:
    """Whose object brought the node up, or else which node group: replacing the machine goes through it."""
    for owner in metadata(thing).get("ownerReferences") or ():
        return f"{owner.get('kind')}/{owner.get('name')}"
    machine = notes(thing).get(CAPI_MACHINE) or notes(thing).get(OPENSHIFT_MACHINE)
    if machine:
        return f"Machine/{machine}"
    group = _first(labels(thing), NODE_GROUPS)
    return f"NodeGroup/{group}" if group else ""
