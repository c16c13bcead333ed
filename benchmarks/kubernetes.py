"""The Kubernetes adapter on a real API server whose kubelets KWOK plays: marks, API calls, drains, memory.

Marks go the whole way: a kernel line to the gateway, Temporal, the worker, the API server; seen by another's watch.
Drains are the activity as the worker runs it, with ledger and guard, beside `kubectl drain` on a node of the same load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

from activities.kubernetes.client import Client, Object
from activities.kubernetes.cluster import KubernetesCluster, make
from activities.kubernetes.nodes import metadata
from activities.kubernetes.options import Options
from benchmarks import _wide
from benchmarks._fleet import NAMESPACE, Audit, Fleet, container, settled, until
from benchmarks._stack import quantile
from medevac.incident import Outcome
from medevac.policy.loading import preset
from medevac.policy.plan import Drain
from tests.control_plane.build import kubectl
from tests.control_plane.processes import ControlPlane, write_kubeconfig
from tests.integration.kubernetes.conftest import DEPLOY, LEVELS, _apply
from tests.integration.kubernetes.house import RealHouse
from tests.integration.kubernetes.stack import Installation, installation
from tests.unit.activities.house import run
from worker.children import Child

CONSOLE = Console()
BUDGETS, EACH = 5, 4
"""Disruption budgets over the nodes that are drained at once, and pods on each of those nodes."""


def resident_mb(child: Child) -> float:
    for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"the memory of {child.name} can't be read; this needs Linux's /proc")


# -- marks -----------------------------------------------------------------------------------------------------


async def marks(fleet: Fleet, house: Installation, names: list[str]) -> list[float]:
    """Seconds from each line's delivery to the node that is seen unschedulable; all lines at once."""
    seen: dict[str, float] = {}

    def look(change: Object, at: float) -> None:
        name = metadata(change["object"]).get("name", "")
        if (change["object"].get("spec") or {}).get("unschedulable"):
            seen.setdefault(name, at)

    with fleet.watching("/api/v1/nodes") as tell:
        tell(look)
        began: dict[str, float] = {}

        async def deliver(name: str) -> None:
            began[name] = time.time()
            await house.kernel_line(name, 79)

        await asyncio.gather(*map(deliver, names))
        await asyncio.to_thread(until, f"{len(names)} marks", lambda: set(names) <= set(seen), 0.05)
    return [seen[name] - began[name] for name in names]


async def measure_marks(arguments: argparse.Namespace, plane: ControlPlane, fleet: Fleet, path: Path) -> dict[str, Any]:
    names = fleet.add_nodes("gpu", arguments.nodes)
    fleet.add_pods((f"work-{n}", names[n % len(names)]) for n in range(arguments.pods))
    kubeconfig = write_kubeconfig(path / "marking", fleet.token("medevac-mark"), plane.server, plane.certificate)
    policy = preset("default").replace("mode: observe", "mode: approve", 1)
    async with installation(path, kubeconfig, rights="mark", policy=policy) as house:
        worker = await house.start_worker("worker", "benchmarks._worker", "ours", **{_wide.VARIABLE: "marks"})
        warm, one, many = 10, arguments.single, arguments.faulty
        await marks(fleet, house, names[:warm])
        single = [second for name in names[warm : warm + one] for second in await marks(fleet, house, [name])]
        audit = Audit(plane.audit_log, "medevac-mark")
        started = time.monotonic()
        storm = await marks(fleet, house, names[warm + one : warm + one + many])
        took = time.monotonic() - started
        calls = settled(audit)
        return {
            "single": single,
            "storm": storm,
            "nodes_per_s": many / took,
            "calls_a_marked_node": sum(calls.values()) / many,
            "calls": dict(calls),
            "worker_mb": resident_mb(worker),
            "watcher_mb": await watcher_mb(house),
        }


async def watcher_mb(house: Installation) -> float:
    """Of `medevac watch`, a while after it has seen the whole fleet."""
    from worker.children import free_port

    port = free_port()
    health = f"http://127.0.0.1:{port}/readyz"
    child = await house.start("watch", "worker.cli", "watch", health=health, MEDEVAC_INTAKE_PORT=str(port))
    await asyncio.sleep(15)
    return resident_mb(child)


# -- drains ----------------------------------------------------------------------------------------------------


def emptied(fleet: Fleet, node: str) -> float:
    until(f"{node} is empty", lambda: fleet.left(node) == 0, 0.05)
    return time.monotonic()


def drain(house: RealHouse, name: str, incident: str) -> None:
    node = house.marked(name, incident)
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 600), start_to_close_s=900, whole_s=900)
    if result.outcome not in (Outcome.DONE, Outcome.ALREADY):
        raise SystemExit(f"the drain of {name} ended {result.outcome}: {result.reason}")


def ours(fleet: Fleet, house: RealHouse, name: str) -> tuple[float, float]:
    """Seconds until the node is empty, and until the drain says so after its second look."""
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        empty = pool.submit(emptied, fleet, name)
        drain(house, name, name)
        done = time.monotonic()
    house.cluster.lift(name, name)
    return empty.result() - began, done - began


def theirs(program: str, fleet: Fleet, kubeconfig: Path, name: str) -> tuple[float, float]:
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        empty = pool.submit(emptied, fleet, name)
        subprocess.run(
            [program, f"--kubeconfig={kubeconfig}", "drain", name, "--force", "--ignore-daemonsets"],
            check=True, capture_output=True, env={"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent)},
        )  # fmt: skip
        done = time.monotonic()
    return empty.result() - began, done - began


def measure_drains(arguments: argparse.Namespace, plane: ControlPlane, fleet: Fleet, house: RealHouse) -> list[Any]:
    program = kubectl()
    if program is None:
        raise SystemExit("there is no kubectl on PATH to compare with; install one, or put it into KUBEBUILDER_ASSETS")
    rows = []
    for pods in arguments.drains:
        found: dict[str, list[tuple[float, float]]] = {"ours": [], "kubectl": []}
        calls: Counter[str] = Counter()
        for turn in range(arguments.turns):
            names = fleet.add_nodes(f"drain{pods}x{turn}", 2)
            fleet.add_pods(((f"{name}-{n}", name) for name in names for n in range(pods)), ends_after="1s")
            audit = Audit(plane.audit_log, "medevac-evict")
            found["ours"].append(ours(fleet, house, names[0]))
            calls = settled(audit)
            found["kubectl"].append(theirs(program, fleet, plane.kubeconfig, names[1]))
        empty, whole = zip(*found["ours"], strict=True)
        their_empty, their_whole = zip(*found["kubectl"], strict=True)
        rows.append({
            "pods": pods, "empty_s": statistics.median(empty), "kubectl_empty_s": statistics.median(their_empty),
            "whole_s": statistics.median(whole), "kubectl_whole_s": statistics.median(their_whole),
            "calls": sum(calls.values()), "by_kind": dict(calls),
        })  # fmt: skip
    return rows


def measure_at_once(
    arguments: argparse.Namespace, plane: ControlPlane, fleet: Fleet, house: RealHouse
) -> dict[str, Any]:
    """Nodes drained at once whose pods come back elsewhere, as their Deployments' disruption budgets let them go."""
    count = arguments.at_once
    names = fleet.add_nodes("once", count, **{"bench/at-once": "yes"})
    each = count * EACH // BUDGETS
    for n in range(BUDGETS):
        labels = {"app": f"serve-{n}"}
        fleet.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"serve-{n}"},
            "spec": {
                "replicas": each, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"test.medevac.dev/ends-after": "1s"}},
                    "spec": {"nodeSelector": {"bench/at-once": "yes"}, **container()},
                },
            },
        })  # fmt: skip
        fleet.create(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": f"serve-{n}"},
            "spec": {"maxUnavailable": "10%", "selector": {"matchLabels": labels}},
        })  # fmt: skip

    def served() -> bool:
        budgets = fleet.admin.list(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets")
        return all((budget.get("status") or {}).get("currentHealthy") == each for budget in budgets)

    until("the replicas run", served)
    on_them = sum(map(fleet.left, names))
    fleet.add_nodes("spare", count, **{"bench/at-once": "yes"})
    audit, began = Audit(plane.audit_log, "medevac-evict"), time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda name: drain(house, name, name), names))
    took = time.monotonic() - began
    calls = settled(audit)
    return {
        "nodes": count,
        "pods": on_them,
        "seconds": took,
        "calls_a_node": sum(calls.values()) / count,
        "by_kind": dict(calls),
    }


def connect(plane: ControlPlane, fleet: Fleet, path: Path) -> KubernetesCluster:
    kubeconfig = write_kubeconfig(path / "evicting", fleet.token("medevac-evict"), plane.server, plane.certificate)
    return make("main", {"kubeconfig": str(kubeconfig), "rights": "evict", "read_timeout_s": 10, "connections": 64})


# -- report ----------------------------------------------------------------------------------------------------


def show_drains(drains: list[Any], once: dict[str, Any]) -> None:
    table = Table(title="A drain beside kubectl drain (pods take a second to end)")
    for column in ("pods", "empty s", "kubectl s", "ratio", "confirmed s", "API calls, with mark and release"):
        table.add_column(column, justify="right")
    for row in drains:
        table.add_row(
            str(row["pods"]), f"{row['empty_s']:.2f}", f"{row['kubectl_empty_s']:.2f}",
            f"{row['empty_s'] / row['kubectl_empty_s']:.2f}", f"{row['whole_s']:.2f}", str(row["calls"]),
        )  # fmt: skip
    CONSOLE.print(table)
    CONSOLE.print(
        f"{once['nodes']} nodes at once with {once['pods']} pods under {BUDGETS} disruption budgets: "
        f"{once['seconds']:.0f} s, {once['calls_a_node']:.0f} API calls a node"
    )


def show_marks(marked: dict[str, Any], arguments: argparse.Namespace) -> None:
    table = Table(title=f"From the delivery to the unschedulable node, of {arguments.nodes} with {arguments.pods} pods")
    for column in ("nodes at once", "p50 s", "p99 s", "nodes/s", "API calls a node"):
        table.add_column(column, justify="right")
    rate, calls = f"{marked['nodes_per_s']:.1f}", f"{marked['calls_a_marked_node']:.1f}"
    for label, kind, more in (("1", "single", ("", "")), (str(arguments.faulty), "storm", (rate, calls))):
        seconds = marked[kind]
        table.add_row(label, f"{quantile(seconds, 0.5):.3f}", f"{quantile(seconds, 0.99):.3f}", *more)
    CONSOLE.print(table)
    CONSOLE.print(f"memory: worker {marked['worker_mb']:.0f} MB, watcher {marked['watcher_mb']:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2048)
    parser.add_argument("--pods", type=int, default=16_000)
    parser.add_argument("--faulty", type=int, default=200, help="nodes that fall ill at once")
    parser.add_argument("--single", type=int, default=20, help="nodes that fall ill one after the other")
    parser.add_argument("--drains", type=int, nargs="+", default=[1, 8, 100], help="pods on a drained node")
    parser.add_argument("--turns", type=int, default=3, help="drains of each kind; the median counts")
    parser.add_argument("--at-once", type=int, default=50, help="nodes drained at once")
    arguments = parser.parse_args()
    # Stopped from outside, it still stops its processes: they have sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        tempfile.TemporaryDirectory(prefix="medevac-bench-") as folder,
        ControlPlane(Path(folder) / "plane", audit=True, lease_s=400) as plane,
    ):
        path = Path(folder)
        admin = Client(Options(kubeconfig=plane.kubeconfig))
        for level in LEVELS:
            for thing in YAML(typ="safe").load_all(DEPLOY / f"{level}.yaml"):
                _apply(admin, thing)
        fleet = Fleet(plane.kubeconfig)
        cluster = connect(plane, fleet, path)
        house = RealHouse(path, cluster, _wide.WidePolicies)
        try:
            drains = measure_drains(arguments, plane, fleet, house)
            once = measure_at_once(arguments, plane, fleet, house)
            show_drains(drains, once)
        finally:
            house.close()
            cluster.close()
        (path / "stack").mkdir()
        marked = asyncio.run(measure_marks(arguments, plane, fleet, path / "stack"))
    show_marks(marked, arguments)
    print(json.dumps({
        "benchmark": "kubernetes", "nodes": arguments.nodes, "pods": arguments.pods,
        "one_p50_s": round(quantile(marked["single"], 0.5), 3), "faulty": arguments.faulty,
        "storm_p50_s": round(quantile(marked["storm"], 0.5), 3),
        "storm_p99_s": round(quantile(marked["storm"], 0.99), 3),
        **{key: value for key, value in marked.items() if key not in ("single", "storm")},
        "drains": drains, "at_once": once,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
