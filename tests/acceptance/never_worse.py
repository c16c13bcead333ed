"""What the tests of "never worse" share: policies made for one purpose, time that passes in the ledger, and counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from ruamel.yaml import YAML

from activities.storage import tables
from activities.storage.database import Database
from medevac.policy.loading import preset
from simulation.hazards import Effect
from simulation.world import World

PROTECTIVE = frozenset(
    {Effect.MARK, Effect.LIFT, Effect.NOTICE, Effect.TAKE_BACK, Effect.CHECK, Effect.TICKET, Effect.CHAT}
)
DISRUPTIVE = frozenset(Effect) - PROTECTIVE
SAID = frozenset({Effect.CHAT})
"""All that a node in mode `observe` may cause."""

_AGES = {
    tables.sightings: ("at",),
    tables.grants: ("at",),
    tables.asked: ("at",),
    tables.breakers: ("opened_at", "closed_at"),
    tables.intents: ("at",),
    tables.latches: ("until",),
    tables.successors: ("at",),
    tables.incidents: ("opened_at",),
}


def policy_text(name: str = "default", **changes: Any) -> str:
    """A preset for the simulated fleet, with whole sections replaced; JSON is YAML too."""
    text: dict[str, Any] = json.loads(json.dumps(YAML(typ="safe").load(preset(name))))
    return json.dumps(text | {"name": f"never-worse-{name}", "simulated_only": True, **changes}, indent=1)


def made_policy(path: Path, name: str = "default", **changes: Any) -> Path:
    file = path / "policy.json"
    file.write_text(policy_text(name, **changes))
    return file


def pools(mode: str, *clusters: str) -> dict[str, Any]:
    """The simulated fleet's two pools in one mode."""
    return {name: {"clusters": list(clusters), "select": {"pool": name}, "mode": mode} for name in ("train", "serve")}


def passes(db: Database, span: timedelta) -> None:
    """Time goes by for everything that is counted over time: what the ledger and the guard know grows older."""
    with db.transaction() as connection:
        for table, columns in _AGES.items():
            key = list(table.primary_key.columns)
            for row in connection.execute(sa.select(table)).all():
                older = {c: getattr(row, c) - span for c in columns if getattr(row, c) is not None}
                if older:
                    here = sa.and_(*(column == getattr(row, column.name) for column in key))
                    connection.execute(sa.update(table).where(here).values(**older))
        # Processes remember the guard's rows by this stamp.
        connection.execute(sa.update(tables.guard).values(stamp="aged"))


def disrupted(world: World) -> set[tuple[str, str]]:
    """Nodes that anything was done to which a job would notice."""
    return {(e.cluster, e.node) for e in world.effects() if e.verb in DISRUPTIVE}


def did(world: World, *verbs: Effect, node: str | None = None) -> Counter[Effect]:
    """How often the world was really changed; all verbs when none is named."""
    return Counter(e.verb for e in world.effects(node=node) if e.applied and e.verb in (verbs or frozenset(Effect)))


def touched(world: World, nodes: Iterable[str]) -> Counter[Effect]:
    names = set(nodes)
    return Counter(e.verb for e in world.effects() if e.node in names and e.verb not in SAID)
