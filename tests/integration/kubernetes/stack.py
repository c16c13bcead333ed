"""A whole, real installation: Temporal's dev server, gateway and worker as processes, one cluster on a real API server.

Beside the cluster stand stand-ins (`standins.py`), as real parts and simulated ones never mix.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx

from simulation.senders import TEXTS, pci
from tests.integration.kubernetes import standins
from worker.children import Child, environment, free_port
from worker.embedded import http_ready, temporal_ready, temporal_server
from worker.settings import Settings
from worker.stores import Stores, open_stores

ROOT = Path(__file__).parents[3]
READY_S = 300.0
CLUSTER = "main"
"""As the shipped policy calls it."""


@dataclass
class Installation:
    path: Path
    env: dict[str, str]
    url: str
    stores: Stores
    http: httpx.AsyncClient
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def effects(self) -> list[str]:
        """What was asked of the stand-ins."""
        noted = self.path / "effects"
        return noted.read_text().splitlines() if noted.exists() else []

    async def kernel_line(self, node: str, xid: int, *, gpu: int = 4) -> int:
        """Delivers it as a log shipper does, again while it is answered 503; how often that was."""
        at = datetime.now(UTC)
        said = f"NVRM: Xid (PCI:{pci(gpu)}): {xid}, {TEXTS[xid]}"
        line = f"{at:%b} {at.day:2d} {at:%H:%M:%S} {node} kernel: [93211.512004] {said}\n"
        again = 0
        while (answer := await self.http.post("/v1/events/kmsg", content=line)).status_code == 503:
            again += 1
            await asyncio.sleep(float(answer.headers["Retry-After"]))
        assert answer.status_code == 202, f"{answer.status_code} {answer.text}"
        return again

    async def command(self, *words: str) -> None:
        child = Child(words[0], [sys.executable, "-m", "worker.cli", *words], self.env, self.path / f"{words[0]}.log")
        await child.start()
        assert await child.wait() == 0, child.tail(30)

    async def start(self, name: str, *argv: str, health: str, **variables: str) -> Child:
        child = Child(name, [sys.executable, "-m", *argv], {**self.env, **variables}, self.path / f"{name}.log")
        self.children[name] = child
        await child.start()
        await child.until(lambda: http_ready(health), READY_S)
        return child

    async def start_worker(self, name: str = "worker", *argv: str, **variables: str) -> Child:
        port = free_port()
        health = f"http://127.0.0.1:{port}/readyz"
        argv = argv or ("worker.cli", "worker")
        return await self.start(name, *argv, health=health, MEDEVAC_WORKER_PORT=str(port), **variables)

    def said(self) -> str:
        return "\n".join(f"-- {name}:\n{child.tail(30)}" for name, child in self.children.items())


def write_config(path: Path, kubeconfig: Path, rights: str) -> str:
    """`medevac.yaml` of the installation, and its stand-ins in `site`; returns the sender's token."""
    standins.install(path / "site")
    token = secrets.token_urlsafe(32)
    noting = {"kind": standins.KIND, "options": {"calls": str(path / "effects")}}
    config = {
        "installation": "test",
        "clusters": [
            {"name": CLUSTER, "kind": "kubernetes", "options": {"kubeconfig": str(kubeconfig), "rights": rights}}
        ],
        "providers": [{"name": "aws", **noting}],
        "checks": [{"name": "checks", **noting}],
        "tickets": [{"name": "tickets", **noting}],
        "chat": {"name": "chat", **noting},
        "watchers": [{"name": "own", "clusters": [CLUSTER]}],
        "senders": [{
            "name": "monitoring", "sources": ["kmsg"], "clusters": [CLUSTER],
            "bearer": {"sha256": hashlib.sha256(token.encode()).hexdigest()},
        }],
    }  # fmt: skip
    (path / "medevac.yaml").write_text(json.dumps(config))
    return token


@asynccontextmanager
async def installation(
    path: Path, kubeconfig: Path, *, rights: str, policy: str = "", timing: str = "production"
) -> AsyncIterator[Installation]:
    """Ready for its first worker; without `policy` it has the shipped one, which observes."""
    token = write_config(path, kubeconfig, rights)
    if policy:
        (path / "policy.yaml").write_text(policy)
    temporal, gateway = free_port(), free_port()
    url = f"http://127.0.0.1:{gateway}"
    env = environment(
        PYTHONPATH=f"{ROOT}:{path / 'site'}",
        TEMPORAL_ADDRESS=f"127.0.0.1:{temporal}",
        TEMPORAL_NAMESPACE="default",
        MEDEVAC_CONFIG=str(path / "medevac.yaml"),
        MEDEVAC_DATA_DIR=str(path),
        MEDEVAC_GATEWAY_PORT=str(gateway),
        MEDEVAC_TIMING=timing,
        MEDEVAC_LOG_LEVEL="warning",
        PYTHONUNBUFFERED="1",
    )
    env.pop("KUBECONFIG", None)
    server = Child("temporal", temporal_server(temporal, path / "temporal.sqlite"), env, path / "temporal.log")
    stores = open_stores(Settings(data_dir=path, database_url=None).database)
    limits = httpx.Limits(max_connections=200)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=240, trust_env=False, limits=limits) as http:
        made = Installation(path, env, url, stores, http)
        try:
            await server.start()
            await server.until(lambda: temporal_ready(env["TEMPORAL_ADDRESS"], 30), READY_S)
            await made.command("setup", *(["--policy", str(path / "policy.yaml")] if policy else []))
            await made.start("gateway", "worker.cli", "gateway", health=f"{url}/readyz")
            yield made
        except BaseException:
            print(made.said(), file=sys.stderr)
            raise
        finally:
            for child in (*made.children.values(), server):
                await child.stop()
            stores.database.close()
