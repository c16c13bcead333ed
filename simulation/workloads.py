"""Pods and the jobs that they belong to: notice, eviction under budgets, exit, and the successor that finds a place."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime

from activities.ports import Eviction, Pod
from medevac.fleet.node import Workload
from simulation import population
from simulation.did import Did
from simulation.moment import Moment

SCHEDULABLE = "(marked_by IS NULL OR uncordoned) AND cordon IS NULL"
ROOM = "pool = ? AND gpus >= ? + (SELECT COALESCE(SUM(p.gpus), 0) FROM pods p WHERE p.machine = machines.id)"


def pods_on(m: Moment, cluster: str, node: str) -> list[Pod]:
    rows = m.all(
        "SELECT p.* FROM pods p JOIN machines x ON x.id = p.machine"
        " WHERE x.cluster = ? AND x.node = ? AND x.state != 'gone' ORDER BY p.uid",
        cluster, node,
    )  # fmt: skip
    return [
        Pod(
            uid=row["uid"], namespace=row["namespace"], name=row["name"], workload=row["workload"], tier=row["tier"],
            terminating=bool(row["terminating"]), tolerates_mark=bool(row["tolerates"]), budget=row["budget"],
            priority=row["priority"],
            ends_by=None if row["ends_by"] is None else datetime.fromtimestamp(row["ends_by"], UTC),
        )
        for row in rows
    ]  # fmt: skip


def workloads_on(m: Moment, cluster: str, node: str) -> list[Workload]:
    rows = m.all(
        "SELECT DISTINCT j.* FROM pods p JOIN machines x ON x.id = p.machine"
        " JOIN jobs j ON j.cluster = p.cluster AND j.name = p.workload"
        " WHERE x.cluster = ? AND x.node = ? AND x.state != 'gone' AND p.tier = 'workload' ORDER BY j.name",
        cluster, node,
    )  # fmt: skip
    return [_workload(m, row) for row in rows]


def workloads_by_node(m: Moment, cluster: str) -> dict[str, list[Workload]]:
    rows = m.all(
        "SELECT DISTINCT x.node AS on_node, j.* FROM pods p JOIN machines x ON x.id = p.machine"
        " JOIN jobs j ON j.cluster = p.cluster AND j.name = p.workload"
        " WHERE x.cluster = ? AND x.state != 'gone' AND p.tier = 'workload' ORDER BY x.node, j.name",
        cluster,
    )  # fmt: skip
    found: dict[str, list[Workload]] = {}
    for row in rows:
        found.setdefault(row["on_node"], []).append(_workload(m, row))
    return found


def _workload(m: Moment, row: sqlite3.Row) -> Workload:
    saved_at = row["noticed_at"] + m.durations.checkpoint_write if row["noticed_at"] is not None else math.inf
    ready = bool(row["cooperative"]) and m.now >= saved_at
    checkpoint: float | None = None
    if row["checkpoint_every"]:
        every = row["checkpoint_every"]
        checkpoint = row["started_at"] + (m.now - row["started_at"]) // every * every
    if ready:
        checkpoint = max(checkpoint or 0.0, saved_at)
    return Workload(
        name=row["name"],
        kind=row["kind"],
        owner=row["owner"],
        gpus=row["gpus"] * row["nodes"],
        gang=row["name"] if row["nodes"] > 1 else None,
        nodes=row["nodes"],
        started_at=datetime.fromtimestamp(row["started_at"], UTC),
        last_checkpoint=None if checkpoint is None else datetime.fromtimestamp(checkpoint, UTC),
        ready_to_evict=ready,
    )


def notice(m: Moment, cluster: str, node: str, by: float) -> Did[None]:
    row = m.one("SELECT id, notice_by FROM machines WHERE cluster = ? AND node = ? AND state != 'gone'", cluster, node)
    if row is None or row["notice_by"] == by:
        return Did(None, False)
    if row["notice_by"] is not None:
        forget_notice(m, cluster, row["id"])  # what was answered to it is no answer to this one
    m.run("UPDATE machines SET notice_by = ? WHERE id = ?", by, row["id"])
    m.run(
        "UPDATE jobs SET noticed_at = ? WHERE noticed_at IS NULL AND cluster = ? AND name IN"
        " (SELECT workload FROM pods WHERE machine = ? AND tier = 'workload')",
        m.now, cluster, row["id"],
    )  # fmt: skip
    return Did(None)


def take_back_notice(m: Moment, cluster: str, node: str, by: float) -> Did[None]:
    row = m.one(
        "SELECT id FROM machines WHERE cluster = ? AND node = ? AND state != 'gone' AND notice_by = ?",
        cluster, node, by,
    )  # fmt: skip
    if row is None:
        return Did(None, False)
    forget_notice(m, cluster, row["id"])
    return Did(None)


def forget_notice(m: Moment, cluster: str, machine: str) -> None:
    """Jobs that carry another machine's notice too go on with that one."""
    m.run("UPDATE machines SET notice_by = NULL WHERE id = ?", machine)
    m.run(
        "UPDATE jobs SET noticed_at = NULL WHERE cluster = ? AND name IN"
        " (SELECT workload FROM pods WHERE machine = ? AND tier = 'workload') AND name NOT IN"
        " (SELECT p.workload FROM pods p JOIN machines x ON x.id = p.machine"
        "  WHERE p.cluster = jobs.cluster AND x.notice_by IS NOT NULL)",
        cluster, machine,
    )  # fmt: skip


def remove(m: Moment, uid: str, grace_s: float, *, budgets: bool) -> Did[Eviction]:
    """Eviction (budgets hold) or deletion (they don't). A name that another pod took over is gone: the UID counts."""
    row = m.one("SELECT * FROM pods WHERE uid = ?", uid)
    if row is None:
        return Did(Eviction.GONE, False)
    if row["terminating"]:
        return Did(Eviction.EVICTED, False)
    if budgets and row["budget"] and not _budget_allows(m, row):
        return Did(Eviction.BUDGET, False, {"budget": row["budget"]})
    m.run("UPDATE pods SET terminating = 1, ends_by = ? WHERE uid = ?", m.now + grace_s, uid)
    m.later(min(grace_s, m.durations.pod_exit), "pod_exits", uid)
    return Did(Eviction.EVICTED)


def _budget_allows(m: Moment, pod: sqlite3.Row) -> bool:
    budget = m.one("SELECT min_available FROM budgets WHERE cluster = ? AND name = ?", pod["cluster"], pod["budget"])
    if budget is None:
        return True
    healthy = m.count(
        "SELECT COUNT(*) FROM pods p JOIN machines x ON x.id = p.machine"
        " WHERE p.cluster = ? AND p.budget = ? AND NOT p.terminating AND x.ready",
        pod["cluster"], pod["budget"],
    )  # fmt: skip
    counted = m.count("SELECT COUNT(*) FROM machines WHERE id = ? AND ready", pod["machine"])
    return healthy - counted >= int(budget["min_available"])


# -- what time does --------------------------------------------------------------------------------------------


def exits(m: Moment, uid: str) -> None:
    """A pod on a silent node doesn't terminate; it stays until the node is back or gone."""
    row = m.one("SELECT p.*, x.ready FROM pods p LEFT JOIN machines x ON x.id = p.machine WHERE p.uid = ?", uid)
    if row and (row["ready"] or row["machine"] is None):
        leave(m, row)


def booted(m: Moment, machine: str) -> None:
    """What was terminating when the node went silent is gone now."""
    for row in m.all("SELECT * FROM pods WHERE machine = ? AND terminating", machine):
        leave(m, row)


def machine_gone(m: Moment, machine: str) -> None:
    m.run("DELETE FROM pods WHERE machine = ? AND tier = 'daemon'", machine)
    for row in m.all("SELECT * FROM pods WHERE machine = ?", machine):
        leave(m, row)


def leave(m: Moment, pod: sqlite3.Row) -> None:
    """The pod is gone; its controller makes another of the same name, which waits for a place."""
    m.run("DELETE FROM pods WHERE uid = ?", pod["uid"])
    columns = (
        "cluster",
        "namespace",
        "name",
        "workload",
        "tier",
        "pool",
        "home",
        "gpus",
        "tolerates",
        "budget",
        "priority",
    )
    successor = {name: pod[name] for name in columns}
    uid = m.identity("pod", pod["cluster"], pod["name"], m.next(f"pod/{pod['cluster']}/{pod['name']}"))
    population.insert(m, "pods", successor | {"uid": uid, "machine": None})
    m.later(m.durations.pod_start, "place", pod["cluster"])


def place(m: Moment, cluster: str) -> None:
    """Puts waiting pods where there is room, by priority."""
    full: set[tuple[str, str, int]] = set()
    for pod in m.all("SELECT * FROM pods WHERE cluster = ? AND machine IS NULL ORDER BY priority DESC, uid", cluster):
        want = (pod["home"] or "", pod["pool"] or "", pod["gpus"])
        if want in full:
            continue
        fits, values = ("node = ?", (pod["home"],)) if pod["home"] else (ROOM, (pod["pool"], pod["gpus"]))
        taint = "1" if pod["tolerates"] else SCHEDULABLE
        row = m.one(
            f"SELECT id FROM machines WHERE cluster = ? AND state = 'running' AND ready AND {taint} AND {fits}"  # noqa: S608
            " ORDER BY node LIMIT 1",
            cluster, *values,
        )  # fmt: skip
        if row is None:
            full.add(want)
            continue
        m.run("UPDATE pods SET machine = ? WHERE uid = ?", row["id"], pod["uid"])
        m.run(
            "UPDATE jobs SET started_at = ?, noticed_at = NULL WHERE cluster = ? AND name = ?",
            m.now,
            cluster,
            pod["workload"],
        )
