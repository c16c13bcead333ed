"""The one way to Temporal: address and credentials from `TEMPORAL_*`, our data converter, and our sandbox."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from worker.converter import DATA_CONVERTER

PASSED_THROUGH = (
    "pydantic",
    "cryptography",
    "pydantic_core",
    "medevac",
    "activities",
    "workflows.messages",
    "workflows.run",
)
"""Re-importing these in every sandbox costs more CPU than all the rest of a workflow start; they keep no state."""

CONNECT_TIMEOUT = timedelta(seconds=5)
RETRY_S = 0.5

log = logging.getLogger(__name__)


class MedevacPlugin(SimplePlugin):
    """Clients, workers and replayers that share it read the same payloads and run the same sandbox."""

    def __init__(self) -> None:
        super().__init__(
            "medevac",
            data_converter=DATA_CONVERTER,
            workflow_runner=SandboxedWorkflowRunner(
                restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
            ),
        )


def identity(role: str) -> str:
    """Of this process among Temporal's clients: `medevac-worker/4711@host`."""
    return f"medevac-{role}/{os.getpid()}@{socket.gethostname()}"


async def connect(role: str, *, runtime: Runtime | None = None, lazy: bool = False, patience_s: float = 0.0) -> Client:
    """`lazy` connects at the first call: a gateway starts, and says that it isn't ready, without Temporal.

    `patience_s`: how long a server that doesn't answer yet is waited for, as when all start at once.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return await _connect(role, runtime, lazy)
        except RuntimeError as error:
            if time.monotonic() > until:
                raise
            log.info("Temporal doesn't answer yet: %s", str(error).splitlines()[0][:200])
            await asyncio.sleep(RETRY_S)


async def _connect(role: str, runtime: Runtime | None, lazy: bool) -> Client:
    options = ClientConfig.load_client_connect_config(override_env_vars=_environment())
    options.setdefault("target_host", "127.0.0.1:7233")
    return await Client.connect(
        **options,
        plugins=[MedevacPlugin()],
        identity=identity(role),
        runtime=runtime,
        lazy=lazy,
        connect_timeout=CONNECT_TIMEOUT,
    )


def _environment() -> dict[str, str] | None:
    """The environment, with `TEMPORAL_API_KEY_FILE` read where it is set (a mounted secret)."""
    path = os.environ.get("TEMPORAL_API_KEY_FILE")
    if not path:
        return None
    return {**os.environ, "TEMPORAL_API_KEY": Path(path).read_text(encoding="utf-8").strip()}
