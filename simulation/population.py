"""Fills a new world: machines in racks, jobs in gangs, daemons, budgets; the seed decides who runs what."""

from __future__ import annotations

import json
import random
from typing import Any

from simulation.layout import IRONWORKS
from simulation.moment import Moment

TEAMS = ("vision", "language", "robotics", "speech")
GANGS = (1, 1, 2, 4, 8)
PRODUCTS = ("chat", "embed", "rerank")


def letter(index: int) -> str:
    """`a`, `b`, …, `z`, `c26`, …"""
    return chr(ord("a") + index) if index < 26 else f"c{index}"


def populate(m: Moment) -> None:
    for index, cluster in enumerate(m.layout.clusters):
        rows = _machines(m, cluster, letter(index))
        insert(m, "machines", *rows)
        m.run("INSERT INTO meta VALUES (?, ?)", f"counter/node/{cluster}", str(m.layout.nodes))
        _work(m, cluster, [row for row in rows if row["gpus"]])


def template(m: Moment, machine: str, provider: str, cluster: str) -> dict[str, Any]:
    """What any machine has from its first moment on."""
    return {
        "id": machine,
        "provider": provider,
        "cluster": cluster,
        "virtual": m.layout.providers[provider].virtual,
        "gpus": m.layout.gpus,
        "sku": m.layout.sku,
        "boot_id": m.identity("boot", machine, 1),
        "boots": 1,
        "image_mark": m.identity("image", machine, 1),
        "gpu_mark": m.identity("gpu", machine, 1),
        "launched_at": m.now,
    }


def machine_id(m: Moment, provider: str, key: str) -> str:
    return f"{provider}/{'bm' if provider == IRONWORKS else 'vm'}-{m.identity('machine', provider, key)[:12]}"


def _machines(m: Moment, cluster: str, short: str) -> list[dict[str, Any]]:
    layout = m.layout
    providers = list(layout.providers)
    racks = -(-layout.nodes // layout.rack_size)
    first_serve = racks - round(racks * layout.serve_share)
    rows = []
    for i in range(layout.nodes):
        rack = i // layout.rack_size
        provider = providers[rack % len(providers)]
        pool = "serve" if rack >= first_serve else "train"
        rows.append(_machine(m, cluster, short, f"gpu-{short}-{i + 1:03d}", provider, pool, rack))
    for i in range(layout.control):
        row = _machine(m, cluster, short, f"ctl-{short}-{i}", providers[0], None, 0)
        rows.append(row | {"gpus": 0, "sku": "cpu", "roles": '["control-plane"]'})
    for pool in ("train", "serve"):
        for row in [row for row in rows if row["pool"] == pool][: layout.spares]:
            row["labels"] = json.dumps(json.loads(row["labels"]) | {"medevac.dev/spare": "true"})
    return rows


def _machine(
    m: Moment, cluster: str, short: str, node: str, provider: str, pool: str | None, rack: int
) -> dict[str, Any]:
    machine = machine_id(m, provider, f"{cluster}/{node}")
    region = f"{provider}-{1 + rack // 64}"
    topology = {
        "rack": f"{short}-r{rack + 1:02d}",
        "switch": f"{short}-s{1 + rack // m.layout.racks_per_switch}",
        "region": region,
        "image": f"{provider}-os-7",
    }
    return template(m, machine, provider, cluster) | {
        "node": node,
        "uid": m.identity("uid", machine),
        "pool": pool,
        "serial": None if m.layout.providers[provider].virtual else f"SN{m.identity('serial', machine)[:8].upper()}",
        "reserved": m.chance("reserved", machine) < m.layout.reserved,
        "local_data": "instance-store /scratch" if m.chance("data", machine) < m.layout.local_data else None,
        "topology": json.dumps(topology),
        "labels": json.dumps({"pool": pool or "", "topology.kubernetes.io/region": region}),
        "roles": "[]",
        "state": "running",
        "ready": True,
    }


def _work(m: Moment, cluster: str, machines: list[dict[str, Any]]) -> None:
    dice = random.Random(f"{m.seed}/{cluster}")
    pods = [pod for machine in machines for pod in daemons(m, machine["id"], cluster, machine["node"])]
    racks: dict[str, str] = {}
    for machine in machines:
        racks.setdefault(json.loads(machine["topology"])["rack"], machine["node"])
    for rack, home in racks.items():
        uid = m.identity("pod", cluster, "storage", rack)
        machine_of = next(row["id"] for row in machines if row["node"] == home)
        pods.append(_pod(uid, cluster, machine_of, "storage", f"shard-{rack}", "ShardStore", "storage", home=home))
    jobs: list[dict[str, Any]] = []
    free = {
        pool: [
            row["id"] for row in machines
            if row["pool"] == pool and "medevac.dev/spare" not in row["labels"] and dice.random() < m.layout.busy
        ]
        for pool in ("train", "serve")
    }  # fmt: skip
    while free["train"]:
        size = dice.choice(GANGS)
        taken, free["train"] = free["train"][:size], free["train"][size:]
        owner = dice.choice(TEAMS)
        name = f"{owner}-{len(jobs) + 1:03d}"
        every = m.durations.checkpoint_every if dice.random() < 0.9 else None
        jobs.append(
            _job(m, cluster, name, "JobSet" if len(taken) > 1 else "Job", owner, len(taken),
                 dice.choice((0, 100, 1_000)), every, m.now - dice.random() * 10 * m.durations.checkpoint_every,
                 cooperative=every is not None and dice.random() < 0.7)
        )  # fmt: skip
        for i, machine_of in enumerate(taken):
            uid = m.identity("pod", cluster, name, i)
            pods.append(
                _pod(uid, cluster, machine_of, owner, f"{name}-{i}", name, "workload", pool="train",
                     gpus=m.layout.gpus, priority=int(jobs[-1]["priority"]))
            )  # fmt: skip
    budgets = []
    for i, product in enumerate(PRODUCTS):
        taken = free["serve"][i :: len(PRODUCTS)]
        if not taken:
            continue
        budget = f"serving/{product}"
        budgets.append({"cluster": cluster, "name": budget, "min_available": len(taken) - 1})
        jobs.append(_job(m, cluster, product, "Deployment", "serving", 1, 2_000, None, m.now, cooperative=False))
        for j, machine_of in enumerate(taken):
            uid = m.identity("pod", cluster, product, j)
            pods.append(
                _pod(uid, cluster, machine_of, "serving", f"{product}-{j}", product, "workload", pool="serve",
                     gpus=m.layout.gpus, budget=budget, priority=2_000)
            )  # fmt: skip
    insert(m, "jobs", *jobs)
    insert(m, "pods", *pods)
    insert(m, "budgets", *budgets)


def daemons(m: Moment, machine: str, cluster: str, node: str) -> list[dict[str, Any]]:
    """A monitor that stays on a marked node, and a cache that doesn't."""
    return [
        _pod(m.identity("pod", machine, "monitor"), cluster, machine, "kube-system", f"gpu-monitor-{node}",
             "gpu-monitor", "daemon", home=node, tolerates=True),
        _pod(m.identity("pod", machine, "cache"), cluster, machine, "kube-system", f"image-cache-{node}",
             "image-cache", "daemon", home=node),
    ]  # fmt: skip


def _pod(
    uid: str, cluster: str, machine: str | None, namespace: str, name: str, workload: str, tier: str, *,
    pool: str | None = None, home: str | None = None, gpus: int = 0, tolerates: bool = False,
    budget: str | None = None, priority: int = 0,
) -> dict[str, Any]:  # fmt: skip
    return {
        "uid": uid, "cluster": cluster, "machine": machine, "namespace": namespace, "name": name,
        "workload": workload, "tier": tier, "pool": pool, "home": home, "gpus": gpus, "tolerates": tolerates,
        "budget": budget, "priority": priority,
    }  # fmt: skip


def _job(
    m: Moment, cluster: str, name: str, kind: str, owner: str, nodes: int, priority: int,
    checkpoint_every: float | None, started_at: float, *, cooperative: bool,
) -> dict[str, Any]:  # fmt: skip
    return {
        "cluster": cluster, "name": name, "kind": kind, "owner": owner, "nodes": nodes, "gpus": m.layout.gpus,
        "priority": priority, "started_at": started_at, "checkpoint_every": checkpoint_every,
        "cooperative": cooperative,
    }  # fmt: skip


def insert(m: Moment, table: str, *rows: dict[str, Any]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        places = ", ".join(f":{name}" for name in rows[0])
        m.sql.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)  # noqa: S608  our own names
