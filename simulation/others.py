"""Other people's repair programs in the simulated clusters."""

from __future__ import annotations

import json

from medevac.fleet.remediator import Remediator
from simulation.moment import Moment


def of(m: Moment, cluster: str) -> list[Remediator]:
    row = m.one("SELECT value FROM meta WHERE key = ?", f"remediators/{cluster}")
    return [Remediator.model_validate(one) for one in json.loads(row["value"])] if row else []


def put(m: Moment, cluster: str, remediators: list[Remediator]) -> None:
    found = json.dumps([one.model_dump(mode="json") for one in sorted(remediators, key=lambda one: one.name)])
    m.run("INSERT OR REPLACE INTO meta VALUES (?, ?)", f"remediators/{cluster}", found)
