"""The world: one SQLite file that any number of processes share and that survives their deaths.

Time passes lazily: each transition is stored with the time at which it happens, and whoever looks next after that
time carries it out, as of that time.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from activities.ports import Verb
from medevac.faults import catalogue
from medevac.faults.classes import Covers
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator
from simulation import checking, machines, others, population, reading, workloads
from simulation.hazards import Behaviour, Effect, Manner, Read
from simulation.layout import Layout
from simulation.moment import Moment
from simulation.reading import Billed, Injected, Logged

BUSY_S = 30.0
VERSION = 2

Clock = Callable[[], datetime]


def real_clock() -> datetime:
    return datetime.now(UTC)


HAPPENINGS: dict[str, Callable[..., None]] = {
    "booted": machines.booted,
    "refreshed": machines.refreshed,
    "joined": machines.joined,
    "first_boot": machines.first_boot,
    "terminated": machines.terminated,
    "recurs": machines.recurs,
    "pod_exits": workloads.exits,
    "place": workloads.place,
    "check_ends": checking.ends,
}


class World:
    """Thread-safe; one connection. Open one in each process."""

    def __init__(self, path: str | Path, clock: Clock = real_clock) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"no simulated world at {path}; make one with World.create")
        self.clock = clock
        self._lock = threading.RLock()
        self._sql = _connect(self.path)
        if self._sql.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            self._sql.close()
            raise ValueError(f"{path} is not a simulated world of this version; make a new one with World.create")
        meta = dict(self._sql.execute("SELECT key, value FROM meta WHERE key IN ('layout', 'seed')").fetchall())
        self.layout = Layout.model_validate_json(meta["layout"])
        self.seed = int(meta["seed"])

    @classmethod
    def create(cls, path: str | Path, layout: Layout | None = None, seed: int = 0, clock: Clock = real_clock) -> World:
        """A new world. Raises `FileExistsError`: a world is never overwritten."""
        layout = layout or Layout()
        Path(path).touch(exist_ok=False)
        sql = _connect(Path(path))
        try:
            sql.execute("PRAGMA journal_mode = WAL")
            sql.execute("BEGIN IMMEDIATE")
            for statement in files("simulation").joinpath("schema.sql").read_text().split(";\n"):
                sql.execute(statement)
            sql.execute("INSERT INTO meta VALUES ('layout', ?), ('seed', ?)", (layout.model_dump_json(), str(seed)))
            population.populate(Moment(sql, clock().timestamp(), layout, seed))
            sql.execute(f"PRAGMA user_version = {VERSION}")
            sql.execute("COMMIT")
        finally:
            sql.close()
        return cls(path, clock)

    def close(self) -> None:
        with self._lock:
            self._sql.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- transactions ------------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[Moment]:
        """What is due has happened before the block sees the world; the block is all or nothing."""
        with self._lock, self._transaction("BEGIN IMMEDIATE"):
            m = self._now()
            self._settle(m)
            yield m

    @contextmanager
    def read(self) -> Iterator[Moment]:
        with self._lock:
            m = self._now()
            if m.one("SELECT 1 FROM timers WHERE due_at <= ? LIMIT 1", m.now):
                with self._transaction("BEGIN IMMEDIATE"):
                    self._settle(m)
            with self._transaction("BEGIN"):
                yield m

    def _now(self) -> Moment:
        return Moment(self._sql, self.clock().timestamp(), self.layout, self.seed)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._sql.execute(begin)
        try:
            yield
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")

    def _settle(self, m: Moment) -> None:
        while due := m.one("SELECT * FROM timers WHERE due_at <= ? ORDER BY due_at, id LIMIT 1", m.now):
            m.run("DELETE FROM timers WHERE id = ?", due["id"])
            HAPPENINGS[due["kind"]](m.at(due["due_at"]), due["subject"], **json.loads(due["data"]))

    # -- seeing ------------------------------------------------------------------------------------------------

    def nodes(self, cluster: str | None = None) -> list[Node]:
        """Of one cluster, or of the only one."""
        with self.read() as m:
            return reading.nodes(m, cluster or self._only_cluster())

    def node(self, name: str, cluster: str | None = None) -> Node | None:
        with self.read() as m:
            return reading.one(m, cluster or self._only_cluster(), name)

    def effects(self, *, tag: str | None = None, node: str | None = None, verb: Effect | None = None) -> list[Logged]:
        """Physical calls in order; `applied` tells those that began a transition."""
        with self.read() as m:
            rows = m.all(
                "SELECT * FROM effects WHERE tag = COALESCE(?, tag) AND node = COALESCE(?, node)"
                " AND verb = COALESCE(?, verb) ORDER BY id",
                tag, node, verb and verb.value,
            )  # fmt: skip
        return [reading.logged(row) for row in rows]

    def faults(self, *, node: str | None = None) -> list[Injected]:
        with self.read() as m:
            return [
                reading.injected(row)
                for row in m.all("SELECT * FROM faults WHERE node = COALESCE(?, node) ORDER BY id", node)
            ]

    def billing(self) -> list[Billed]:
        """Every machine that ever was; `until` is None while it costs money."""
        with self.read() as m:
            return [reading.billed(row) for row in m.all("SELECT * FROM machines ORDER BY launched_at, id")]

    def messages(self) -> list[str]:
        with self.read() as m:
            return [row["text"] for row in m.all("SELECT text FROM messages ORDER BY id")]

    def next_due(self) -> datetime | None:
        """When the next thing happens by itself; for clocks that are moved by hand."""
        with self.read() as m:
            row = m.one("SELECT MIN(due_at) AS due FROM timers")
        return None if row is None or row["due"] is None else reading.moment(row["due"])

    def misfortunes(self, read: Read) -> bool:
        """Whether this read can fail at all; spares the good ones a write."""
        if any(hazard.verb == read for hazard in self.layout.hazards):
            return True
        with self.read() as m:
            return m.one("SELECT 1 FROM scripts WHERE verb = ? AND (left IS NULL OR left > 0)", read.value) is not None

    # -- fate --------------------------------------------------------------------------------------------------

    def inject(
        self, node: str, code: str, *, covers: Iterable[Covers] | None = None,
        cure: Iterable[Effect] = (Effect.REBOOT,), behaviour: Behaviour | None = None, cluster: str | None = None,
    ) -> int:  # fmt: skip
        """A hardware fault on the node's machine. `covers` defaults to what the catalogue says of the code.

        `cure` are the verbs that end it for good; nothing ends it but another machine when that is empty.
        """
        if covers is None:
            covers = catalogue.lookup(code).covers
        cluster = cluster or self._only_cluster()
        with self.write() as m:
            found = reading.one(m, cluster, node)
            if found is None:
                raise KeyError(f"no node {cluster}/{node} in the simulated world")
            return machines.present(
                m, found.machine.id, node, cluster, code,
                json.dumps(sorted(covers)), json.dumps([effect.value for effect in cure]), behaviour or Behaviour(),
            )  # fmt: skip

    def repair(self, node: str, cluster: str | None = None) -> None:
        """Someone mends the machine by hand and boots it, at once; nothing tells us."""
        with self.write() as m:
            machine = self._machine(m, node, cluster)
            m.run("UPDATE faults SET present = 0, cured_at = ? WHERE machine = ? AND cured_at IS NULL", m.now, machine)
            m.cancel(machine, "booted", "refreshed")
            machines.booted(m, machine, Verb.REBOOT.value)

    def script(
        self, verb: Effect | Read | Verb, manner: Manner, *, node: str | None = None, times: int | None = 1,
        retry_after_s: float = 1.0,
    ) -> None:  # fmt: skip
        """The next `times` calls of the verb (on that node) go wrong in this manner; None = all."""
        with self.write() as m:
            m.run(
                "INSERT INTO scripts (verb, node, manner, left, retry_after_s) VALUES (?, ?, ?, ?, ?)",
                verb.value, node, manner.value, times, retry_after_s,
            )  # fmt: skip

    # -- what other people do ----------------------------------------------------------------------------------

    def cordon(self, node: str, who: str = "unknown", cluster: str | None = None) -> None:
        self._set(node, cluster, cordon=who)

    def uncordon(self, node: str, cluster: str | None = None) -> None:
        """By hand: takes anybody's cordon, ours too (the rest of our mark stays)."""
        self._set(node, cluster, cordon=None, uncordoned=True)

    def hands_off(self, node: str, who: str | None, cluster: str | None = None) -> None:
        self._set(node, cluster, hands_off=who)

    def remediators(self, *remediators: Remediator, cluster: str | None = None) -> None:
        """Those, and no others, repair nodes of the cluster beside us. What they do the caller plays."""
        with self.write() as m:
            others.put(m, cluster or self._only_cluster(), list(remediators))

    def by_hand(self, verb: Verb, node: str, who: str, cluster: str | None = None) -> None:
        """A person makes the call at the provider's console; logged with the tag `person:<who>`."""
        cluster = cluster or self._only_cluster()
        with self.write() as m:
            machine = self._machine(m, node, cluster)
            did = machines.apply(m, verb, machine, f"person:{who}")
            m.log(Effect(verb.value), cluster, node, machine, f"person:{who}", applied=did.applied, detail=did.detail)

    def swap(self, node: str, cluster: str | None = None) -> Node:
        """Another machine takes the node's name, at once: the one that a plan knew is gone."""
        cluster = cluster or self._only_cluster()
        with self.write() as m:
            old = m.one("SELECT * FROM machines WHERE id = ?", self._machine(m, node, cluster))
            assert old is not None  # noqa: S101  read in the same transaction
            machines.terminated(m, old["id"])
            machine = population.machine_id(m, old["provider"], f"swap/{m.next('swap')}")
            row = population.template(m, machine, old["provider"], cluster) | {
                name: old[name] for name in ("pool", "topology", "labels", "roles", "reserved")
            }
            row |= {"state": "running", "ready": True, "node": node, "uid": m.identity("uid", machine)}
            population.insert(m, "machines", row)
            population.insert(m, "pods", *population.daemons(m, machine, cluster, node))
            found = reading.one(m, cluster, node)
            assert found is not None  # noqa: S101
            return found

    def budget(self, name: str, min_available: int, cluster: str | None = None) -> None:
        """Sets a disruption budget (`namespace/name`)."""
        with self.write() as m:
            m.run(
                "INSERT OR REPLACE INTO budgets VALUES (?, ?, ?)", cluster or self._only_cluster(), name, min_available
            )

    def guard_pod(self, uid: str, budget: str | None) -> None:
        with self.write() as m:
            m.run("UPDATE pods SET budget = ? WHERE uid = ?", budget, uid)

    # ----------------------------------------------------------------------------------------------------------

    def _only_cluster(self) -> str:
        if len(self.layout.clusters) != 1:
            raise ValueError(f"say which cluster: {', '.join(self.layout.clusters)}")
        return self.layout.clusters[0]

    def _machine(self, m: Moment, node: str, cluster: str | None) -> str:
        found = reading.one(m, cluster or self._only_cluster(), node)
        if found is None:
            raise KeyError(f"no node {cluster or ''}/{node} in the simulated world")
        return found.machine.id

    def _set(self, node: str, cluster: str | None, **columns: str | bool | None) -> None:
        with self.write() as m:
            machine = self._machine(m, node, cluster)
            for name, value in columns.items():
                m.run(f"UPDATE machines SET {name} = ? WHERE id = ?", value, machine)  # noqa: S608  our own names
            workloads.place(m, cluster or self._only_cluster())


def _connect(path: Path) -> sqlite3.Connection:
    sql = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    sql.row_factory = sqlite3.Row
    sql.execute("PRAGMA synchronous = NORMAL")
    return sql
