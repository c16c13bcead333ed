"""A real stack for tests: Temporal server, ledger, simulated world, worker processes and gateway, in one directory.

    async with stack(tmp_path, workers=2) as up:
        node = up.pick(SKYLINE)
        up.world.inject(node.name, "xid/119")
        await up.send(senders.kmsg_xid(node, 119, utcnow()))
        await up.until(lambda: up.incident(node.name).end is End.RETURNED, "the node is back")

Everything is a process of its own, as in production, and can be killed, stopped and started again at any time; `up`
starts a worker again whenever it dies. On exit all are stopped, whatever happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client
from temporalio.service import RPCError

from medevac.fleet.node import Node
from medevac.incident import IncidentView, State
from simulation.evidence import Evidence, gather
from simulation.killpoints import VARIABLE as KILL_FILE
from simulation.killpoints import hits
from simulation.layout import TEST, Layout
from simulation.senders import Delivery
from simulation.verdict import Verdict, judge
from simulation.world import World
from tests.acceptance.killable import VARIABLE as STEPS_FILE
from worker.children import Child, environment, free_port
from worker.connection import MedevacPlugin
from worker.embedded import temporal_server
from worker.home import PEOPLE, SENDER, Home
from worker.installation import find_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.setup import prepare_ledger, prepare_namespace
from worker.stores import Stores, open_stores

ROOT = Path(__file__).parents[2]
POLICY = Path(__file__).parent / "policy.yaml"
SMALL = Layout(nodes=48, serve_share=0.0, spares=0, durations=TEST)
READY_S = 240.0
LOOK_S = 0.1
PATIENCE_S = 240.0
"""A wait ends with what it waits for; this only ends a test that would hang, on however slow a machine."""
KILLABLE = ("-m", "tests.acceptance.killable")
PLAIN = ("-m", "worker.cli", "worker")


def utcnow() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Running:
    """A stack that is up. `temporal`, `gateway` and `workers` are its processes."""

    path: Path
    home: Home
    settings: Settings
    stores: Stores
    world: World
    address: str
    temporal: Child
    gateway: Child
    workers: list[Child]
    http: httpx.AsyncClient
    kept_up: bool = True
    """Workers that die are started again at once; set it to False to leave them dead."""
    _taken: set[str] = field(default_factory=set)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while workers are started or stopped, so that each is started once."""

    # -- nodes and events --------------------------------------------------------------------------------------

    def pick(self, provider: str | None = None, *, busy: bool = True, pool: str | None = None) -> Node:
        """Another GPU node each time; `busy` = with work on it."""
        with self.world.read() as m:
            working = {
                row["node"]
                for row in m.all(
                    "SELECT x.node FROM pods p JOIN machines x ON x.id = p.machine WHERE tier = 'workload'"
                )
            }
        for cluster in self.world.layout.clusters:
            for node in self.world.nodes(cluster):
                if (
                    node.gpus
                    and node.name not in self._taken
                    and provider in (None, node.machine.provider)
                    and pool in (None, node.pool)
                    and (not busy or node.name in working)
                ):
                    self._taken.add(node.name)
                    return node
        raise LookupError(f"no node is left of provider {provider}, pool {pool}, busy={busy}")

    async def send(self, delivery: Delivery) -> list[dict[str, Any]]:
        """Posts a payload as its sender would, again while it is answered 503; what became of each part."""
        headers = {"Authorization": f"Bearer {self.home.token(SENDER)}", **delivery.headers}

        async def post() -> list[dict[str, Any]] | None:
            try:
                answer = await self.http.post(delivery.path, content=delivery.body, headers=headers)
            except httpx.TransportError:
                return None
            if answer.status_code == 503:
                return None
            assert answer.status_code == 202, f"POST {delivery.path}: {answer.status_code} {answer.text}"
            parts: list[dict[str, Any]] = answer.json()["parts"]
            return parts

        taken: list[dict[str, Any]] = await self.until(post, f"POST {delivery.path} is taken")
        return taken

    async def report(self, node: Node, fault: str, **more: Any) -> list[dict[str, Any]]:
        """A fault in our own plain form: any code."""
        body = {"node": node.name, "cluster": node.cluster, "kind": "fault", "fault": fault, **more}
        body.setdefault("time", utcnow().isoformat())
        return await self.send(Delivery("generic", json.dumps(body).encode(), {"Content-Type": "application/json"}))

    # -- seeing ------------------------------------------------------------------------------------------------

    def incidents(self, node: str | None = None) -> list[IncidentView]:
        """Oldest first, ended ones too; of the node that the fault was told of, also once another has replaced it."""
        found = reversed(self.stores.ledger.incidents(open_only=False, limit=10_000))
        return [view for view in found if node is None or view.workflow_id.endswith(f"/{node}")]

    def incident(self, node: str) -> IncidentView | None:
        """The newest of the node."""
        found = self.incidents(node)
        return found[-1] if found else None

    def evidence(self) -> Evidence:
        return gather(self.stores.database, self.world)

    def verdict(self) -> Verdict:
        return judge(self.evidence())

    async def until(self, look: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Waits until `look` (sync or async) gives something true, and gives it back."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    found = look()
                    if asyncio.iscoroutine(found):
                        found = await found
                    if found:
                        return found
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s:g} s: {what}\n{self.tell()}") from None

    async def settled(self, nodes: Iterable[str], timeout_s: float = 2 * PATIENCE_S) -> dict[str, IncidentView]:
        """The nodes' newest incidents, once each has ended or a person has it."""
        names = list(nodes)

        def look() -> dict[str, IncidentView] | None:
            found = {name: self.incident(name) for name in names}
            over = {n: v for n, v in found.items() if v and (v.end or v.state in (State.HANDED_OVER, State.OBSERVED))}
            return over if len(over) == len(names) else None

        settled: dict[str, IncidentView] = await self.until(look, f"{len(names)} incidents have settled", timeout_s)
        return settled

    def tell(self) -> str:
        """Open incidents with their last lines, for a test that fails."""
        text = []
        for view in self.stores.ledger.incidents(limit=100):
            text.append(f"{view.node} {view.fault} {view.state} step={view.step} waiting for {view.waiting_for!r}")
            text += [f"    {line.at:%H:%M:%S.%f} {line.text[:160]}" for line in self.stores.ledger.lines(view.id)[-6:]]
        return "\n".join(text)

    async def client(self) -> Client:
        return await Client.connect(self.address, plugins=[MedevacPlugin()])

    # -- people ------------------------------------------------------------------------------------------------

    async def order(self, path: str, who: str = "ada", **body: object) -> httpx.Response:
        """Posts a person's word, again while it is answered 503: then it may not have been taken."""

        async def post() -> httpx.Response | None:
            headers = {"Authorization": f"Bearer {self.home.token(who)}"}
            answer = await self.http.post(path, json=body, headers=headers)
            return answer if answer.status_code != 503 else None

        answered: httpx.Response = await self.until(post, f"POST {path} is answered")
        return answered

    async def vote(self, who: str, approval: str, shown_hash: str, verdict: str = "approve") -> httpx.Response:
        ballot = {"verdict": verdict, "shown_hash": shown_hash, "reason": "test"}
        headers = {"Authorization": f"Bearer {self.home.token(who)}"}
        return await self.http.post(f"/v1/approvals/{approval}/votes", json=ballot, headers=headers)

    @asynccontextmanager
    async def everyone_agrees(self, people: Iterable[str] = PEOPLE) -> AsyncIterator[None]:
        """In the block, people say yes to every question as they see it; again where nobody took the vote."""

        async def agree(who: str) -> None:
            done: set[str] = set()
            while True:
                for view in self.stores.ledger.approvals(pending_only=True):
                    ballot = f"{view.id} {view.shown_hash}"
                    if ballot in done:
                        continue
                    with suppress(httpx.TransportError):
                        answer = await self.vote(who, view.id, view.shown_hash)
                        if answer.status_code == 200:
                            done.add(ballot)
                await asyncio.sleep(LOOK_S)

        voters = [asyncio.create_task(agree(who)) for who in people]
        try:
            yield
            for voter in voters:
                if voter.done():
                    voter.result()
        finally:
            for voter in voters:
                voter.cancel()
            await asyncio.gather(*voters, return_exceptions=True)

    # -- processes ---------------------------------------------------------------------------------------------

    @property
    def kill_plan(self) -> Path:
        return self.path / "kill.json"

    def plan_kills(self, cells: list[dict[str, str]]) -> None:
        """From now on workers die at these cells, each once; a cell stands in the plan before its step begins."""
        fresh = self.kill_plan.with_suffix(".new")
        fresh.write_text(json.dumps(cells))
        fresh.replace(self.kill_plan)

    def reached(self) -> set[int]:
        return hits(self.kill_plan)

    def hit(self, cell: int) -> tuple[int, float]:
        """Which process was killed at a cell that was reached, and when; process 0 while it is being written."""
        file = Path(f"{self.kill_plan}.{cell}.hit")
        return int(file.read_text() or 0), file.stat().st_mtime

    @property
    def steps_file(self) -> Path:
        return self.path / "steps.jsonl"

    def steps(self) -> list[dict[str, Any]]:
        """When each attempt of each step began and ended, in which process."""
        return [json.loads(line) for line in self.steps_file.read_text().splitlines()]

    def worker_of(self, pid: int) -> Child:
        return next(worker for worker in self.workers if worker.pid == pid)

    async def start_workers(self) -> None:
        self.kept_up = True
        for worker in self.workers:
            await self.start_again(worker)

    async def start_again(self, worker: Child) -> None:
        """Unless it runs, or nothing is to be kept up any more."""
        async with self._starting:
            if self.kept_up and not worker.running:
                worker.restarts += 1
                await worker.start()

    async def leave_down(self) -> None:
        """From now on no worker is started, and none is just being started."""
        self.kept_up = False
        async with self._starting:
            pass

    async def kill_workers(self) -> None:
        """All at once, and they stay dead until `start_workers`."""
        await self.leave_down()
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            await worker.wait()

    async def kill_temporal(self) -> None:
        self.temporal.kill()
        await self.temporal.wait()

    async def start_temporal(self) -> None:
        await self.temporal.start()
        await self.temporal.until(lambda: _answers(self.address), READY_S)

    @property
    def temporal_file(self) -> Path:
        return self.path / "temporal.sqlite"

    def copy_temporal(self, to: Path) -> None:
        """A consistent copy of the running server's store, as a backup takes it."""
        with closing(sqlite3.connect(self.temporal_file)) as source, closing(sqlite3.connect(to)) as target:
            source.backup(target)

    def restore_temporal(self, copy: Path) -> None:
        """Only while the server is down."""
        assert not self.temporal.running
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.temporal_file}{suffix}").unlink(missing_ok=True)
        self.temporal_file.write_bytes(copy.read_bytes())


@asynccontextmanager
async def stack(
    path: Path,
    *,
    layout: Layout = SMALL,
    seed: int = 1,
    policy: Path = POLICY,
    timing: str = "test",
    workers: int = 1,
    worker: tuple[str, ...] = KILLABLE,
    gateway: bool = True,
    variables: dict[str, str] | None = None,
) -> AsyncIterator[Running]:
    home = Home(path)
    home.make(layout, seed)
    settings = Settings(data_dir=path, timing=timing, database_url=None)
    temporal_port, gateway_port = free_port(), free_port()
    address = f"127.0.0.1:{temporal_port}"
    env = environment(
        PYTHONPATH=str(ROOT),
        TEMPORAL_ADDRESS=address,
        TEMPORAL_NAMESPACE="default",
        MEDEVAC_CONFIG=str(home.config),
        MEDEVAC_DATA_DIR=str(path),
        MEDEVAC_DATABASE_URL=settings.database,
        MEDEVAC_TIMING=timing,
        MEDEVAC_GATEWAY_PORT=str(gateway_port),
        MEDEVAC_LOG_LEVEL="warning",
        MEDEVAC_SHUTDOWN_S="15",
        MEDEVAC_SWEEP_S="5",
        MEDEVAC_SIGNAL_TIMEOUT_S="10",
        MEDEVAC_CHAT_CALLS_PER_S="100",
        MEDEVAC_MACHINE_CALLS_PER_S="100",
        PYTHONUNBUFFERED="1",
        **(variables or {}),
    )

    def child(name: str, *argv: str, **more: str) -> Child:
        return Child(name, argv, {**env, **more}, path / f"{name}.log")

    running = Running(
        path=path,
        home=home,
        settings=settings,
        stores=open_stores(settings.database),
        world=World(home.world),
        address=address,
        temporal=child("temporal", *temporal_server(temporal_port, path / "temporal.sqlite")),
        gateway=child(
            "gateway", sys.executable, "-m", "worker.cli", "gateway", MEDEVAC_VOTE_KEY_FILE=str(home.vote_key)
        ),
        workers=[],
        http=httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway_port}", timeout=90, trust_env=False),
    )  # fmt: skip
    running.plan_kills([])
    running.steps_file.touch()
    running.workers = [
        child(
            f"worker-{n}", sys.executable, *worker, MEDEVAC_WORKER_PORT=str(free_port()),
            **{KILL_FILE: str(running.kill_plan), STEPS_FILE: str(running.steps_file)},
        )
        for n in range(1, workers + 1)
    ]  # fmt: skip
    keepers: list[asyncio.Task[None]] = []
    try:
        await running.temporal.start()
        registry = build_registry(find_config(settings), path)
        await asyncio.to_thread(prepare_ledger, running.stores, registry, policy)
        await running.temporal.until(lambda: _answers(address), READY_S)
        for one in (*running.workers, *([running.gateway] if gateway else [])):
            await one.start()
        if gateway:
            await running.gateway.until(lambda: _ready(running.http), READY_S)
        keepers = [asyncio.create_task(_keep_up(running, one)) for one in running.workers]
        yield running
    finally:
        await running.leave_down()
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        await running.http.aclose()
        for one in running.workers:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)  # a stopped process hears no SIGTERM
        await asyncio.gather(running.gateway.stop(), *(one.stop() for one in running.workers))
        await running.temporal.stop()
        running.stores.database.close()
        running.world.close()


async def _keep_up(running: Running, worker: Child) -> None:
    while True:
        await worker.wait()
        await running.start_again(worker)
        await asyncio.sleep(0 if worker.running else LOOK_S)


async def _answers(address: str) -> bool:
    try:
        client = await Client.connect(address, plugins=[MedevacPlugin()])
        await prepare_namespace(client, 30)
    except (RPCError, RuntimeError):
        return False
    return True


async def _ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).is_success
    except httpx.TransportError:
        return False


__all__ = ["KILLABLE", "PLAIN", "POLICY", "SMALL", "Running", "stack", "utcnow"]
