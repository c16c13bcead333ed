"""Checks of a machine: started once per key, finished by time, judged by the latent state."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from activities.ports import CheckResult
from medevac.faults.classes import Covers
from simulation.did import Did
from simulation.hazards import Behaviour, Read
from simulation.moment import Moment

LOAD = frozenset({Covers.THERMAL, Covers.COMPUTE, Covers.BUS})
"""Checks that work the node hard enough to show a fault that hides at boot."""


def start(m: Moment, key: str, machine: str, covers: Iterable[Covers]) -> Did[None]:
    row = m.one("SELECT boot_id FROM machines WHERE id = ?", machine)
    new = m.run(
        "INSERT INTO checks (key, machine, covers, started_at, boot_id) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        key, machine, json.dumps(sorted(covers)), m.now, row and row["boot_id"],
    )  # fmt: skip
    if new:
        m.later(m.durations.check, "check_ends", key)
    return Did(None, bool(new), {"covers": sorted(covers)})


def started(m: Moment, key: str) -> bool:
    return m.one("SELECT 1 FROM checks WHERE key = ?", key) is not None


def result(m: Moment, key: str) -> CheckResult | None:
    row = m.one("SELECT result FROM checks WHERE key = ?", key)
    return CheckResult.model_validate_json(row["result"]) if row and row["result"] else None


def ends(m: Moment, key: str) -> None:
    check = m.one(
        "SELECT c.*, x.cluster, x.node FROM checks c JOIN machines x ON x.id = c.machine WHERE c.key = ?", key
    )
    if check is None:
        return
    covers = tuple(Covers(word) for word in json.loads(check["covers"]))
    passed, reason = _judge(m, check["machine"], check["boot_id"], covers)
    flake = m.misfortune(Read.CHECK, check["cluster"], check["node"]) is not None
    if flake:
        passed, reason = False, "the check couldn't start its kernels"
    verdict = CheckResult(
        passed=passed, covers=covers, started_at=datetime.fromtimestamp(check["started_at"], UTC),
        boot_id=check["boot_id"], reason=reason, flake=flake, detail={"simulated": True},
    )  # fmt: skip
    m.run("UPDATE checks SET result = ? WHERE key = ?", verdict.model_dump_json(), key)


def _judge(m: Moment, machine: str, boot_id: str | None, covers: tuple[Covers, ...]) -> tuple[bool, str]:
    row = m.one("SELECT state, ready, boot_id FROM machines WHERE id = ?", machine)
    if row is None or row["state"] != "running":
        return False, "the machine is gone"
    if not row["ready"]:
        return False, "the node is not ready"
    if row["boot_id"] != boot_id:
        return False, "the machine booted during the check"
    for fault in m.all("SELECT code, covers, behaviour FROM faults WHERE machine = ? AND present", machine):
        hidden = Behaviour.model_validate_json(fault["behaviour"]).under_load
        telling = LOAD if hidden else frozenset(Covers(word) for word in json.loads(fault["covers"]))
        if telling & set(covers):
            return False, f"found {fault['code']}"
    return True, ""
