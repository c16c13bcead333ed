"""`make demo`: three real faults in a simulated fleet, from payload to verified repair, live.

`DEMO_SEED` changes nodes, order and failures; `DEMO_KILL=1` kills the worker in mid-drain; `DEMO_EXIT=1` ends by
itself with the status that a separate process derives from the ledger and the world's own effect log.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from medevac.fleet.node import Node
from simulation import senders
from simulation.hazards import Behaviour, Effect, Hazard, Manner
from simulation.layout import DEMO, IRONWORKS, SKYLINE, Layout
from simulation.senders import Delivery
from simulation.world import World
from worker.children import ChildFailed
from worker.embedded import Stack, stack, stop_event
from worker.home import PEOPLE, SENDER, SPARES, Home
from worker.installation import NotReady
from worker.settings import Settings, SettingsError
from worker.telling import APPROVED, Telling

LOOK_S = 0.3
LONGEST_S = 90.0
MARKER = "made-by-medevac-demo"
HAZARDS = (
    Hazard(verb=Effect.REBOOT, manner=Manner.TIMEOUT_AFTER, probability=0.2),
    Hazard(verb=Effect.EVICT, manner=Manner.THROTTLE, probability=0.2, retry_after_s=0.5),
    Hazard(verb=Effect.MARK, manner=Manner.THROTTLE, probability=0.1, retry_after_s=0.5),
    Hazard(verb=Effect.CHAT, manner=Manner.TIMEOUT_AFTER, probability=0.1),
)
"""What goes wrong by chance, drawn from the seed."""


@dataclass(frozen=True, slots=True)
class Fault:
    node: Node
    xid: int
    story: str
    delivery: Callable[[], Delivery]
    cure: tuple[Effect, ...] = (Effect.REBOOT,)
    behaviour: Behaviour = field(default_factory=Behaviour)


async def run_demo(settings: Settings, policy: Path | None) -> int:
    seed = _seed(os.environ.get("DEMO_SEED") or "1")
    kill = os.environ.get("DEMO_KILL") == "1"
    ends = os.environ.get("DEMO_EXIT") == "1"
    began = time.monotonic()
    root = settings.data_dir
    # Also where commands look for what runs here: an `up` in the same place would hide the demo from them.
    here = Home(root).lock()
    home = fresh_home(root / "demo")
    home.make(Layout(durations=DEMO, hazards=HAZARDS, spares=SPARES), seed)
    policy_file = policy or home.demo_policy()
    settings = settings.model_copy(update={"data_dir": home.path, "config": home.config, "database_url": None})
    stop = stop_event()
    try:
        print(f"medevac demo, seed {seed}: 64 nodes × 8 GPUs, two providers, jobs running. Starting ...", flush=True)
        async with stack(settings, policy_file, "demo") as up:
            up.announce(Home(root).running_file, home.running_file)
            print(f"Up after {time.monotonic() - began:.0f} s: real Temporal server, worker {up.worker.pid}, gateway.")
            code = await _heal(up, seed, kill, began, stop)
            _addresses(up, root)
            if ends:
                return await verdict(home, settings.database)
            if not stop.is_set():
                print("It stays up until Ctrl-C.", flush=True)
                await stop.wait()
                print("stopping ...", flush=True)
            return code
    except ChildFailed as error:
        raise NotReady(str(error)) from error
    finally:
        os.close(here)


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"DEMO_SEED: {text} is no whole number; write DEMO_SEED=7") from None


def fresh_home(path: Path) -> Home:
    """Each demo starts anew; only what an earlier demo made is removed."""
    home = Home(path)
    if path.exists():
        if not (path / MARKER).exists() and any(path.iterdir()):
            raise NotReady(f"{path} is not of an earlier demo; move it away or set MEDEVAC_DATA_DIR")
        os.close(home.lock())
        shutil.rmtree(path)
    path.mkdir(parents=True)
    (path / MARKER).touch()
    return home


def choose(world: World, seed: int) -> list[Fault]:
    """Three nodes with jobs on them, each with another fault, told by another sender."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    busy = [n for n in world.nodes() if n.gpus and not n.roles and "medevac.dev/spare" not in n.labels]
    cloud = rng.sample([n for n in busy if n.machine.provider == SKYLINE], 2)
    metal = rng.choice([n for n in busy if n.machine.provider == IRONWORKS])
    gpu = rng.randrange(8)
    faults = [
        Fault(
            cloud[0],
            119,
            "GSP time-outs, told by Alertmanager",
            lambda: senders.alertmanager_xid(cloud[0], 119, datetime.now(UTC), gpu=gpu),
        ),
        Fault(
            cloud[1],
            95,
            "an uncontained memory error, told by NVSentinel",
            lambda: senders.nvsentinel_xid(cloud[1], 95, datetime.now(UTC), gpu=gpu),
            cure=(),
        ),
        Fault(
            metal,
            79,
            "a GPU fallen off the bus, told by the kernel log",
            lambda: senders.kmsg_xid(metal, 79, datetime.now(UTC), gpu=gpu),
            behaviour=Behaviour(clears=(Effect.REBOOT,), recurs_after_s=0.1) if rng.random() < 0.3 else Behaviour(),
            cure=(Effect.REBOOT, Effect.REINSTALL),
        ),
    ]
    rng.shuffle(faults)
    return faults


async def _heal(up: Stack, seed: int, kill: bool, began: float, stop: asyncio.Event) -> int:
    world = World(up.home.world)
    try:
        faults = choose(world, seed)
        for fault in faults:
            world.inject(fault.node.name, f"xid/{fault.xid}", cure=fault.cure, behaviour=fault.behaviour)
    finally:
        world.close()
    headers = {"Authorization": f"Bearer {up.home.token(SENDER)}"}
    telling = Telling([fault.node.name for fault in faults])
    async with httpx.AsyncClient(base_url=up.url, timeout=10, trust_env=False) as client:
        for fault in faults:
            delivery = fault.delivery()
            answer = await client.post(delivery.path, content=delivery.body, headers={**headers, **delivery.headers})
            if answer.status_code != 202:
                raise NotReady(f"POST {delivery.path}: {answer.status_code} {answer.text}")
            outcome = answer.json()["parts"][0]["outcome"]
            telling.say(
                fault.node.name, "posted", f"POST {delivery.path} (Xid {fault.xid}, {fault.story}) → 202 {outcome}"
            )
        people = [Person(client, who, up.home.token(who)) for who in PEOPLE]
        with telling.live():
            await _follow(up, people, telling, kill, stop)
    telling.summary(time.monotonic() - began)
    if not telling.settled():
        print("Not all incidents came to their end in time; `medevac incidents` shows where they are.")
    return 0 if telling.well() else 1


@dataclass(slots=True)
class Person:
    """Reads and votes over HTTP with their own token, as anyone would."""

    client: httpx.AsyncClient
    name: str
    token: str
    voted: set[str] = field(default_factory=set)

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.client.get(path, params=query, headers={"Authorization": f"Bearer {self.token}"})
        answer.raise_for_status()
        return answer.json()

    async def vote(self, telling: Telling) -> None:
        for view in await self.get("/v1/approvals"):
            if view["id"] + view["shown_hash"] in self.voted:
                continue
            ballot = {"verdict": "approve", "shown_hash": view["shown_hash"], "reason": "demo"}
            answer = await self.client.post(
                f"/v1/approvals/{view['id']}/votes", json=ballot, headers={"Authorization": f"Bearer {self.token}"}
            )
            said = answer.json()
            if answer.status_code == 503 or "not been asked yet" in said.get("error", ""):
                continue  # it stands in the ledger a moment before its workflow runs
            self.voted.add(view["id"] + view["shown_hash"])
            kind = APPROVED if answer.is_success else "vote"
            for waiter in view["waiters"]:
                telling.say(waiter["node"], kind, f"by {self.name}: {said.get('answer') or said.get('error')}")


async def _follow(up: Stack, people: list[Person], telling: Telling, kill: bool, stop: asyncio.Event) -> None:
    """Until every incident has ended, or a person has it, or the time is over."""
    deadline = time.monotonic() + LONGEST_S
    killed_at: float | None = None
    while time.monotonic() < deadline and not stop.is_set():
        await asyncio.sleep(LOOK_S)
        try:
            listed = await people[0].get("/v1/incidents", open=False, limit=100)
            for view in listed:
                found = await people[0].get(f"/v1/incidents/{view['id']}")
                telling.take(found["incident"], found["lines"])
            for person in people:
                await person.vote(telling)
        except httpx.HTTPError as error:
            telling.note(f"the gateway did not answer: {error}")
            continue
        if kill and killed_at is None and any(view["step"] == "evacuate" for view in listed):
            killed_at = time.monotonic()
            telling.note(f"kill -9 {up.worker.pid}: the worker dies in mid-drain")
            os.kill(up.worker.pid, signal.SIGKILL)
            telling.killed()
        telling.draw()
        if telling.settled():
            break


def _addresses(up: Stack, root: Path) -> None:
    print(f"\n  console   {up.url}    (token: {up.home.token_file(next(iter(PEOPLE)))})")
    print(f"  API       {up.url}/docs")
    print(f"  Temporal  {up.ui}")
    print("  ledger    medevac incidents --all · medevac incidents NODE")
    print("  any payload: medevac send FILE", flush=True)


async def verdict(home: Home, database: str) -> int:
    """Judged by a process that shares nothing with the stack but its files."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulation.verdict", "--world", str(home.world), "--ledger", database
    )
    return await process.wait()
