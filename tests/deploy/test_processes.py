"""Each service of docker-compose.yml that can run here runs: its own command, environment and health check, as a
plain process against a real PostgreSQL and a real Temporal server."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from ruamel.yaml import YAML

from tests.deploy.compose import ROOT, load
from tests.deploy.servers import (
    make_secrets,
    temporal_dev_server,
    wait_until,
)
from tests.integration.storage import postgres
from worker.children import free_port

BIN = Path(sys.executable).parent
SERVICES: dict[str, Any] = load()["services"]
pytestmark = pytest.mark.postgres


@dataclass
class Site:
    """What containers share: the network's addresses, mounted secrets, the configuration, the volume."""

    folder: Path
    secrets: dict[str, str]
    postgres: dict[str, str]
    """How psql finds the server as its superuser."""
    temporal: str

    def environment(self, service: str) -> dict[str, str]:
        """The service's own, with what is elsewhere in a container put where it is here."""
        given = {"MEDEVAC_DATA_DIR": "/var/lib/medevac", **SERVICES[service]["environment"]}
        for key, value in given.items():
            value = value.replace("/run/secrets", str(self.folder / "secrets")).replace("0.0.0.0", "127.0.0.1")  # noqa: S104
            value = value.replace("/etc/medevac", str(self.folder)).replace("/var/lib/medevac", str(self.folder))
            given[key] = value.replace("temporal:7233", self.temporal)
        return {**given, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.folder)}

    def run(self, service: str) -> subprocess.CompletedProcess[str]:
        service_file = SERVICES[service]
        command = service_file.get("entrypoint", ["medevac"]) + service_file.get("command", [])
        command = [part.replace("/var/lib/medevac", str(self.folder)) for part in command]
        return subprocess.run(
            [BIN / command[0], *command[1:]],
            env=self.environment(service),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if why := postgres.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("site")
    secrets = make_secrets(folder / "secrets")
    with postgres.server(superuser="postgres") as server, temporal_dev_server(folder) as temporal:
        found = psycopg.conninfo.conninfo_to_dict(server)
        url = folder / "secrets" / "medevac_database_url"
        url.chmod(0o644)
        url.write_text(secrets["medevac_database_url"].replace("postgres:5432", f"{found['host']}:{found['port']}"))
        config = (ROOT / "deploy" / "medevac.yaml").read_text(encoding="utf-8")
        (folder / "medevac.yaml").write_text(config.replace("/run/secrets", str(folder / "secrets")))
        psql = {"PGHOST": "host", "PGPORT": "port", "PGPASSWORD": "password", "POSTGRES_USER": "user"}
        yield Site(folder, secrets, {name: str(found[key]) for name, key in psql.items()}, temporal)


@pytest.fixture(scope="module")
def prepared(site: Site) -> Site:
    """As `depends_on` has it: databases, then the jobs. Each job may be run again."""
    script = subprocess.run(
        ["sh", ROOT / "deploy" / "postgres" / "10-databases.sh"],
        env={**site.postgres, "PATH": os.environ["PATH"], "SECRETS": str(site.folder / "secrets")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert script.returncode == 0, script.stderr
    for job in ("simulated-fleet", "setup", "setup"):
        done = site.run(job)
        assert done.returncode == 0, done.stdout + done.stderr
    return site


def connect(site: Site, user: str, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1",
        port=int(site.postgres["PGPORT"]),
        user=user,
        password=site.secrets[f"{user}_db_password"],
        dbname=database,
        connect_timeout=60,
    )


def test_each_role_opens_its_own_databases_only(prepared: Site) -> None:
    for user, database in (("temporal", "temporal"), ("temporal", "temporal_visibility"), ("medevac", "medevac")):
        with connect(prepared, user, database) as connection:
            connection.execute("CREATE TABLE mine (id int)")
            connection.execute("DROP TABLE mine")
    for user, database in (("temporal", "medevac"), ("medevac", "temporal"), ("medevac", "temporal_visibility")):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            connect(prepared, user, database)


@contextmanager
def service(site: Site, name: str, **ports: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """Runs it until its health check, the image's own, passes; then yields."""
    environment = {**site.environment(name), **ports}
    log_path = site.folder / f"{name}-{time.monotonic_ns()}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [BIN / "medevac", *SERVICES[name]["command"]], env=environment, cwd=site.folder, stdout=log, stderr=log
        )
    try:
        wait_until(
            f"{name} is healthy",
            lambda: healthy(environment),
            timeout_s=300,
            alive=lambda: log_path.read_text() if process.poll() is not None else "",
        )
        yield process, environment
    finally:
        process.kill()
        process.wait(60)


def healthy(environment: dict[str, str]) -> bool:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    match = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])$", text, re.MULTILINE | re.DOTALL)
    assert match
    command = YAML(typ="safe").load(match[1])
    return (
        subprocess.run([BIN / command[0], *command[1:]], env=environment, capture_output=True, check=False).returncode
        == 0
    )


def stops_gracefully(process: subprocess.Popen[bytes], name: str) -> None:
    process.send_signal(signal.SIGTERM)
    grace = float(re.sub(r"s$", "", SERVICES[name]["stop_grace_period"]))
    assert process.wait(grace) == 0


def test_workers_are_healthy_while_they_poll_count_and_stop_when_told(prepared: Site) -> None:
    def ports() -> dict[str, str]:
        health, sdk = free_port(), free_port()
        return {
            "MEDEVAC_WORKER_PORT": str(health),
            "MEDEVAC_TEMPORAL_METRICS": f"127.0.0.1:{sdk}",
            "PROBE_URL": f"http://127.0.0.1:{health}/readyz",
        }

    with (
        service(prepared, "worker", **ports()) as (first, environment),
        service(prepared, "worker", **ports()) as (second, _),
    ):
        ours = httpx.get(environment["PROBE_URL"].replace("readyz", "metrics"), timeout=60).text
        for queue in ("medevac", "medevac-machines", "medevac-chat"):
            assert f'medevac_worker_polling{{queue="{queue}"}} 1.0' in ours
        assert "medevac_sweeps_total" in ours

        def told() -> bool:
            """The names that deploy/alerts.yaml selects by; the SDK shows failures only once there are some."""
            sdk = httpx.get(f"http://{environment['MEDEVAC_TEMPORAL_METRICS']}/metrics", timeout=60).text
            return "temporal_worker_task_slots_available{" in sdk and 'task_queue="medevac"' in sdk

        wait_until("the SDK's metrics", told)
        stops_gracefully(first, "worker")
        stops_gracefully(second, "worker")


def test_the_gateway_is_healthy_lets_nobody_in_unasked_and_stops_when_told(prepared: Site) -> None:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with (
        service(prepared, "gateway", MEDEVAC_GATEWAY_PORT=str(port), PROBE_URL=f"{base}/readyz") as (process, _),
        httpx.Client(base_url=base, timeout=60) as client,
    ):
        assert client.post("/v1/events/kmsg", content=b"x").status_code == 401
        assert client.get("/v1/incidents").status_code == 401
        token = prepared.secrets["operator_token"]
        listed = client.get("/v1/incidents", headers={"authorization": f"Bearer {token}"})
        assert listed.status_code == 200, listed.text
        stops_gracefully(process, "gateway")


def test_a_worker_without_temporal_says_so_and_ends(prepared: Site) -> None:
    nowhere = {"TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}", "MEDEVAC_TEMPORAL_WAIT_S": "1"}
    environment = {**prepared.environment("worker"), **nowhere}
    done = subprocess.run(
        [BIN / "medevac", "worker"],
        env=environment,
        cwd=prepared.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode > 0
    assert environment["TEMPORAL_ADDRESS"] in done.stderr
