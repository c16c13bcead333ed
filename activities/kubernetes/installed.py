"""Programs that repair nodes, known by their Deployments and DaemonSets, and whether they are switched on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from activities.kubernetes import others
from activities.kubernetes.client import Client, Forbidden, Object
from activities.kubernetes.nodes import metadata, notes
from activities.kubernetes.reach import Covers, Found, everywhere, unreadable
from activities.ports import Unreadable
from medevac.fleet.remediator import Remediator, Switch

DEPLOYMENTS = "/apis/apps/v1/deployments"
DAEMONSETS = "/apis/apps/v1/daemonsets"
NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
OPTED_OUT = "k8saas.nvidia.com/ManagedByNVSentinel"
KARPENTER_POOL = "karpenter.sh/nodepool"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that repairs nodes, known by its image or its own name."""

    name: str
    image: re.Pattern[str]
    names: frozenset[str] = frozenset()
    covers: Covers = everywhere

    def runs_as(self, thing: Object) -> bool:
        images = (str(one.get("image", "")) for one in _containers(thing))
        return metadata(thing).get("name") in self.names or any(self.image.search(image) for image in images)


def _tag(*names: str) -> re.Pattern[str]:
    """Of an image: the last segments of its name, whatever its registry."""
    return re.compile(rf"(?:^|/)(?:{'|'.join(names)})(?=[:@]|$)")


PROGRAMS = (
    Program(
        others.NVSENTINEL,
        _tag("(?:fault-quarantine|node-drainer|fault-remediation)(?:-module)?", "nvsentinel/janitor"),
        frozenset(("fault-quarantine", "node-drainer", "fault-remediation")),
        covers=lambda node: node.labels.get(OPTED_OUT) != "false",
    ),
    Program(
        others.KARPENTER,
        _tag("karpenter/controller", "karpenter"),
        frozenset(("karpenter",)),
        covers=lambda node: KARPENTER_POOL in node.labels,
    ),
    Program(others.DRAINO, _tag("draino"), frozenset(("draino",))),
    Program(
        others.TERMINATION_HANDLER,
        _tag("aws-node-termination-handler"),
        frozenset(("aws-node-termination-handler",)),
    ),
    Program(others.KURED, _tag("kured"), frozenset(("kured",))),
)  # fmt: skip


def running(client: Client) -> Iterator[Found]:
    """Raises `Unreadable`, but for a right that is missing: that is one of the answers."""
    found_on: dict[str, list[tuple[Program, Object, str]]] = {}
    for path, kind in ((DEPLOYMENTS, "deployment"), (DAEMONSETS, "daemonset")):
        try:
            for thing in client.list(path):
                for program in PROGRAMS:
                    if program.runs_as(thing) and _on(program.name, kind, thing):
                        found_on.setdefault(program.name, []).append((program, thing, kind))
        except Forbidden:
            yield unreadable(f"whatever runs as a {kind}", f"the account may not list {kind}s")
    for name, found in found_on.items():
        program, thing, _ = found[0]
        covers = _not_paused(client, program.covers, thing) if name == others.KARPENTER else program.covers
        seen = ", ".join(f"{kind} {metadata(t)['namespace']}/{metadata(t)['name']}" for _, t, kind in found)
        off = "; ".join(_off(name, t, kind) for _, t, kind in found)
        yield Found(Remediator(name=name, switch=Switch.ON, seen=seen, off=off), covers)


def _containers(thing: Object) -> list[Object]:
    return list(((thing.get("spec") or {}).get("template") or {}).get("spec", {}).get("containers") or ())


def _words(thing: Object) -> list[str]:
    return [str(word) for one in _containers(thing) for word in (*(one.get("command") or ()), *(one.get("args") or ()))]


def _env(thing: Object, name: str) -> list[Object]:
    """The variables of this name, of all its containers."""
    return [one for c in _containers(thing) for one in c.get("env") or () if one.get("name") == name]


def _on(name: str, kind: str, thing: Object) -> bool:
    """False where it is seen to do nothing: scaled down, a dry run, paused, or its repair switched off."""
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    if kind == "deployment" and spec.get("replicas", 1) == 0:
        return False
    if kind == "daemonset" and status.get("observedGeneration") and not status.get("desiredNumberScheduled"):
        return False
    if any(re.fullmatch(r"--?dry-run(=true)?", word) for word in _words(thing)):
        return False
    if name == others.KURED:
        return _lock(thing) != "manual"
    return name != others.KARPENTER or _repairs(thing)


def _repairs(thing: Object) -> bool:
    """Karpenter's own gate. One that is taken from elsewhere (a ConfigMap) can't be read here and counts as on."""
    return any("valueFrom" in one for one in _env(thing, "FEATURE_GATES")) or "noderepair=true" in _gates(thing)


def _gates(thing: Object) -> str:
    words = [word for word in _words(thing) if word.startswith("--feature-gates")]
    words += [str(one.get("value", "")) for one in _env(thing, "FEATURE_GATES")]
    return " ".join(words).replace(" ", "").lower()


def _lock(thing: Object) -> str:
    """Which node kured works on; `manual` is a person's pause."""
    try:
        held = json.loads(notes(thing).get("weave.works/kured-node-lock", ""))
    except ValueError:
        return ""
    return str(held.get("nodeID", "")) if isinstance(held, dict) else ""


def _off(name: str, thing: Object, kind: str) -> str:
    namespace, called = metadata(thing)["namespace"], metadata(thing)["name"]
    if name == others.KARPENTER:
        return (
            f"kubectl -n {namespace} set env deployment/{called} FEATURE_GATES=NodeRepair=false (and your others),"
            ' or from 1.15 on for one pool a budget `nodes: "0"` with `reasons: [Unhealthy]`'
        )
    if name == others.KURED:
        return f'kubectl -n {namespace} annotate {kind} {called} weave.works/kured-node-lock=\'{{"nodeID":"manual"}}\''
    if kind == "daemonset":
        return f"kubectl -n {namespace} delete {kind} {called}"
    return f"kubectl -n {namespace} scale {kind} {called} --replicas=0"


def _not_paused(client: Client, covers: Covers, thing: Object) -> Covers:
    """Without the pools whose budget allows Karpenter no repair. Its older repair asks no budget."""
    legacy = any(word.startswith("--legacy-node-repair") and not word.endswith("=false") for word in _words(thing))
    if legacy or any(one.get("value") != "false" for one in _env(thing, "LEGACY_NODE_REPAIR")):
        return covers
    try:
        pools = frozenset(metadata(pool)["name"] for pool in client.list(NODE_POOLS) if _spared(pool))
    except Unreadable:
        pools = frozenset()
    return lambda node: covers(node) and node.labels.get(KARPENTER_POOL) not in pools


def _spared(pool: Object) -> bool:
    budgets = ((pool.get("spec") or {}).get("disruption") or {}).get("budgets") or ()
    return any(
        str(budget.get("nodes")) in ("0", "0%") and "Unhealthy" in (budget.get("reasons") or ())
        and not budget.get("schedule")
        for budget in budgets
    )  # fmt: skip
