"""A real PostgreSQL in a temporary folder, for as long as a test session."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from worker.children import free_port

OWNER = "postgres"
"""initdb refuses root; then the server runs as this user."""


def binaries() -> Path | None:
    """Where initdb and pg_ctl are: on the path, or where Debian puts them."""
    if found := shutil.which("pg_ctl"):
        return Path(found).parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda p: int(p.parts[-3]))
    return debian[-1].parent if debian else None


def missing() -> str | None:
    """Why no server can be started here."""
    if binaries() is None:
        return "no PostgreSQL server here; install it (`apt-get install postgresql`)"
    if os.geteuid() == 0 and not any(user.pw_name == OWNER for user in pwd.getpwall()):
        return f"root can't run PostgreSQL, and there is no user {OWNER} to run it"
    return None


@contextmanager
def server(superuser: str = "medevac") -> Iterator[str]:
    """Yields the superuser's URL of its database `postgres`, by TCP as a production one is reached."""
    bin_dir = binaries()
    assert bin_dir is not None
    home = Path(tempfile.mkdtemp(prefix="medevac-postgres-"))
    data = home / "data"
    as_owner: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(home, OWNER, OWNER)
        as_owner = ["runuser", "-u", OWNER, "--"]
    port = free_port()
    secret = home / "secret"
    secret.write_text("s3cret/pw")
    if as_owner:
        shutil.chown(secret, OWNER, OWNER)

    def run(*command: str | Path) -> None:
        done = subprocess.run(
            [*as_owner, *map(str, command)], check=False, capture_output=True, text=True, cwd=home, timeout=400
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"

    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=200"
    try:
        run(
            bin_dir / "initdb", "-D", data, "-U", superuser, "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8",
            "--no-sync",
        )  # fmt: skip
        run(bin_dir / "pg_ctl", "-D", data, "-l", home / "log", "-w", "-t", "300", "-o", options, "start")
        try:
            yield f"postgresql://{superuser}:s3cret%2Fpw@127.0.0.1:{port}/postgres"
        finally:
            run(bin_dir / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def new_database(url: str, name: str, template: str = "template1") -> str:
    """Makes a database beside the one of `url`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return url.rsplit("/", 1)[0] + f"/{name}"
