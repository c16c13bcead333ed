"""Child processes of the embedded stack: started, waited for by condition, restarted, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

STOP_S = 20.0
POLL_S = 0.1


class ChildFailed(RuntimeError):
    """A process of the stack didn't come up; the message ends with the last lines of its log."""


class Child:
    def __init__(
        self, name: str, argv: Sequence[str], env: dict[str, str], log: Path, keep: Sequence[int] = ()
    ) -> None:
        """`keep`: descriptors that the child inherits (the data directory's lock)."""
        self.name = name
        self.restarts = 0
        self._argv = list(argv)
        self._env = env
        self._log = log
        self._keep = tuple(keep)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            # Its own session: Ctrl-C in the terminal reaches only the parent, which stops all in order.
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=self._keep,
            )

    async def until(self, ready: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not await ready():
                    if not self.running:
                        raise ChildFailed(f"{self.name} ended while it started:\n{self.tail()}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ChildFailed(f"{self.name} was not ready within {timeout_s:.0f} s:\n{self.tail()}") from None

    async def wait(self) -> int:
        return await self._process.wait() if self._process else 0

    def kill(self) -> None:
        if self.running and self._process:
            self._process.kill()

    async def stop(self) -> None:
        if not self.running or self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def tail(self, lines: int = 8) -> str:
        try:
            text = self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:]) + f"\n(all of it: {self._log})"


QUIET_PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections, which might take one before its child listens."""


def free_port(preferred: int = 0) -> int:
    """The preferred one if nobody has it, else any."""
    wished = [preferred] if preferred else []
    for port in (*wished, *random.sample(QUIET_PORTS, 50), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ChildFailed("no free port on 127.0.0.1")


def environment(**values: str) -> dict[str, str]:
    """Ours, without settings that were meant for another process of this machine."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MEDEVAC_", "TEMPORAL_", "DEMO_")) or name in ("MEDEVAC_KILL_FILE", "TEMPORAL_DEBUG")
    }
    return {**passed, **values}
