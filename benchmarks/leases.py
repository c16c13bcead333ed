"""How many leases a second the guard gives: hundreds of askers at once, on SQLite and on PostgreSQL.

Each asker takes a lease and gives it back, as an incident does; no limit holds anyone, so what is measured is the
guard's own transaction. All askers are threads of one process, as on one worker.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from activities.guard.store import GuardStore
from activities.storage.database import Database
from benchmarks._stack import POLICY, quantile
from benchmarks._wide import WidePolicies
from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.lease import Granted, LeaseRequest
from tests.integration.storage import postgres

NODES = 2_000
AT_ONCE = (200, 1_000)
CENSUS = Census(cluster="sim-a", sizes={"pool:sim-a/train": NODES, "cluster:sim-a": NODES, "rack:sim-a/r1": NODES})


@dataclass(frozen=True, slots=True)
class Measured:
    store: str
    at_once: int
    leases_s: float
    acquire_p50_ms: float
    acquire_p99_ms: float
    failed: int


@contextmanager
def stores(console: Console) -> Iterator[dict[str, Callable[[], str]]]:
    """By name, how to make an empty database; its URL."""
    with tempfile.TemporaryDirectory(prefix="medevac-bench-") as folder:

        def sqlite() -> str:
            return f"sqlite:///{Path(folder) / uuid.uuid4().hex}.sqlite"

        if why := postgres.missing():
            console.print(f"PostgreSQL is left out: {why}")
            yield {"sqlite": sqlite}
            return
        with postgres.server() as url:
            yield {"sqlite": sqlite, "postgresql": lambda: postgres.new_database(url, f"b{uuid.uuid4().hex}")}


def measure(store: str, url: str, at_once: int) -> Measured:
    prepare(url)
    database = Database(url)
    guard = GuardStore(database, WidePolicies(database))
    start = threading.Barrier(at_once + 1)
    lock = threading.Lock()
    took: list[float] = []
    failed: list[str] = []

    def ask(number: int) -> None:
        incident = f"inc-{at_once}-{number}"
        node = f"gpu-{number:04d}"
        now = datetime.now(UTC)
        request = LeaseRequest(
            lease_id=incident,
            incident=incident,
            workflow_id=f"node/sim-a/{node}",
            cluster="sim-a",
            node=node,
            pool="sim-a/train",
            domains={"pool": "sim-a/train", "cluster": "sim-a", "rack": "sim-a/r1"},
            fault="xid/79",
            fault_class=FaultClass.CRITICAL,
            plan_hash="0123456789abcdef",
            asked_at=now,
        )
        start.wait()
        began = time.monotonic()
        try:
            answer = guard.acquire(request, datetime.now(UTC), CENSUS)
            seconds = time.monotonic() - began
            if not isinstance(answer, Granted):
                raise RuntimeError(f"not granted: {answer}")
            guard.release(incident, datetime.now(UTC))
        except Exception as error:
            with lock:
                failed.append(str(error))
            return
        with lock:
            took.append(seconds)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(at_once)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    database.close()
    if not took:
        raise SystemExit(f"{store}: nobody of {at_once} got a lease: {failed[0]}")
    return Measured(
        store, at_once, len(took) / seconds, 1e3 * quantile(took, 0.5), 1e3 * quantile(took, 0.99), len(failed)
    )


def prepare(url: str) -> None:
    database = Database(url)
    database.upgrade()
    policies = WidePolicies(database)
    now = datetime.now(UTC)
    policies.activate(policies.propose(POLICY.read_text(encoding="utf-8"), "benchmark", now), None, now)
    database.close()


def main(rounds: int) -> None:
    console = Console()
    found: list[Measured] = []
    with stores(console) as known:
        for store, empty in known.items():
            for at_once in AT_ONCE:
                ordered = sorted((measure(store, empty(), at_once) for _ in range(rounds)), key=lambda m: m.leases_s)
                found.append(ordered[len(ordered) // 2])
    table = Table(title=f"Leases taken and given back, all at once (median of {rounds})")
    for column in ("store", "at once", "leases/s", "acquire p50 ms", "acquire p99 ms", "failed"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for one in found:
        table.add_row(
            one.store, str(one.at_once), f"{one.leases_s:.0f}", f"{one.acquire_p50_ms:.0f}",
            f"{one.acquire_p99_ms:.0f}", str(one.failed),
        )  # fmt: skip
    console.print(table)
    rows = [
        {
            "store": one.store,
            "at_once": one.at_once,
            "leases_per_s": round(one.leases_s, 1),
            "acquire_p50_ms": round(one.acquire_p50_ms, 1),
            "acquire_p99_ms": round(one.acquire_p99_ms, 1),
            "failed": one.failed,
        }
        for one in found
    ]
    print(json.dumps({"benchmark": "leases", "rounds": rounds, "found": rows}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args().rounds)
