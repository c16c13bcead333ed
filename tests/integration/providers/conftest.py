from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from moto.server import ThreadedMotoServer

from tests.contracts.desk import Desk
from tests.contracts.rigs import ProviderRig
from tests.integration.providers.bmcs import PASSWORD, USER, Bmcs, Emulator
from tests.integration.providers.far_side import REGION, FarSide
from tests.integration.providers.neocloud import TOKEN, Neocloud


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # a second for each reset
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def far(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarSide]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    httpx.post(f"{moto}/moto-api/reset").raise_for_status()
    with FarSide(moto) as far:
        yield far


@pytest.fixture
def neocloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Neocloud]:
    monkeypatch.setenv("NEOCLOUD_TOKEN", TOKEN)
    with Neocloud() as far:
        monkeypatch.setenv("NEOCLOUD_URL", far.url)
        yield far


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    emulator = Emulator(tmp_path_factory.mktemp("bmcs"))
    yield emulator
    emulator.close()


@pytest.fixture
def bmcs(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bmcs]:
    monkeypatch.setenv("TEST_BMC", f"{USER}:{PASSWORD}")
    for id in list(emulator.state):
        del emulator.state[id]
    with Bmcs(emulator) as far:
        yield far


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[[ProviderRig], Desk]]:
    made: list[Desk] = []

    def open_desk(rig: ProviderRig) -> Desk:
        made.append(Desk(rig, tmp_path / "ledger.sqlite"))
        return made[-1]

    yield open_desk
    for one in made:
        one.close()
