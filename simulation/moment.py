"""One transaction on the world at one instant; everything that happens in the world happens in one."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulation.hazards import Effect, Manner, Read
from simulation.layout import Durations, Layout


@dataclass(frozen=True, slots=True)
class Moment:
    sql: sqlite3.Connection
    now: float
    """Seconds since the epoch."""
    layout: Layout
    seed: int

    @property
    def durations(self) -> Durations:
        return self.layout.durations

    def at(self, now: float) -> Moment:
        return replace(self, now=now)

    def run(self, query: str, *values: Any) -> int:
        """Rows changed."""
        return self.sql.execute(query, values).rowcount

    def all(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return self.sql.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self.sql.execute(query, values).fetchone()
        return row

    def count(self, query: str, *values: Any) -> int:
        return int(self.sql.execute(query, values).fetchone()[0])

    # -- time --------------------------------------------------------------------------------------------------

    def later(self, seconds: float, kind: str, subject: str, **data: Any) -> None:
        """Something that will have happened `seconds` from now, whoever looks first."""
        self.run(
            "INSERT INTO timers (due_at, kind, subject, data) VALUES (?, ?, ?, ?)",
            self.now + seconds, kind, subject, json.dumps(data),
        )  # fmt: skip

    def cancel(self, subject: str, *kinds: str) -> None:
        for kind in kinds:
            self.run("DELETE FROM timers WHERE subject = ? AND kind = ?", subject, kind)

    # -- seeded randomness -------------------------------------------------------------------------------------

    def chance(self, *parts: Any) -> float:
        """In [0, 1), the same for the same seed and parts, in whichever process and order."""
        return int.from_bytes(self._hash(parts)[:7]) / 2**56

    def identity(self, *parts: Any) -> str:
        """A UUID, the same for the same seed and parts."""
        return str(uuid.UUID(bytes=self._hash(parts)[:16], version=4))

    def _hash(self, parts: Sequence[Any]) -> bytes:
        return hashlib.sha256(repr((self.seed, *parts)).encode()).digest()

    def next(self, counter: str) -> int:
        """1, 2, 3, … for each name."""
        row = self.one(
            "INSERT INTO meta VALUES (?, '1') ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value",
            f"counter/{counter}",
        )
        return int(row["value"]) if row else 0

    # -- misfortune --------------------------------------------------------------------------------------------

    def misfortune(self, verb: Effect | Read, cluster: str, node: str) -> tuple[Manner, float] | None:
        """How this call goes wrong, with its retry-after; a scripted one first, and one of its times is used up."""
        script = self.one(
            "SELECT id, manner, retry_after_s FROM scripts WHERE verb = ? AND (node IS NULL OR node = ?)"
            " AND (left IS NULL OR left > 0) ORDER BY id LIMIT 1",
            verb.value, node,
        )  # fmt: skip
        if script:
            self.run("UPDATE scripts SET left = left - 1 WHERE id = ? AND left IS NOT NULL", script["id"])
            return Manner(script["manner"]), float(script["retry_after_s"])
        hazards = [hazard for hazard in self.layout.hazards if hazard.verb == verb]
        if not hazards:
            return None
        call = self.next(f"call/{verb.value}/{cluster}/{node}")
        for hazard in hazards:
            if self.chance("hazard", verb.value, hazard.manner.value, cluster, node, call) < hazard.probability:
                return hazard.manner, hazard.retry_after_s
        return None

    # -- the log of effects ------------------------------------------------------------------------------------

    def log(
        self, verb: Effect, cluster: str, node: str, target: str, tag: str, *, applied: bool,
        manner: Manner | None = None, detail: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.run(
            "INSERT INTO effects (at, verb, cluster, node, target, tag, pid, applied, manner, detail)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self.now, verb.value, cluster, node, target, tag, os.getpid(), applied, manner and manner.value,
            json.dumps(dict(detail or {})),
        )  # fmt: skip
