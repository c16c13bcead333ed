"""Our mark on a node, and what others put there."""

from __future__ import annotations

from typing import Literal

from activities.ports import Mark, NotSent
from simulation import workloads
from simulation.did import Did
from simulation.moment import Moment

Written = Literal["done", "already"]


def mark(m: Moment, cluster: str, node: str, mark: Mark) -> Did[Written]:
    row = m.one("SELECT * FROM machines WHERE cluster = ? AND node = ? AND state != 'gone'", cluster, node)
    if row is None:
        raise NotSent(f"node {cluster}/{node} doesn't exist", final=True)
    if row["marked_by"] not in (None, mark.incident, mark.instead_of):
        raise NotSent(f"node {cluster}/{node} carries the mark of {row['marked_by']}", final=True)
    if row["marked_by"] == mark.incident and row["uncordoned"]:
        raise NotSent(f"node {cluster}/{node} was uncordoned by someone, which is a veto", final=True)
    text = mark.model_dump_json(exclude={"instead_of"})
    if row["mark"] == text:
        return Did("already", False)
    m.run("UPDATE machines SET marked_by = ?, mark = ?, uncordoned = 0 WHERE id = ?", mark.incident, text, row["id"])
    return Did("done", True, {"code": mark.code})


def lift(m: Moment, cluster: str, node: str, incident: str) -> Did[Written]:
    row = m.one(
        "SELECT id FROM machines WHERE cluster = ? AND node = ? AND state != 'gone' AND marked_by = ?",
        cluster, node, incident,
    )  # fmt: skip
    if row is None:
        return Did("already", False)
    workloads.forget_notice(m, cluster, row["id"])
    m.run("UPDATE machines SET marked_by = NULL, mark = NULL, uncordoned = 0 WHERE id = ?", row["id"])
    workloads.place(m, cluster)
    return Did("done")
