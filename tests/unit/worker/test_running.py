"""What runs here is found by the commands that need more than its gateway."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from worker.cli.running import running, settings_here
from worker.demo import run_demo
from worker.embedded import run_up
from worker.home import Home
from worker.installation import NotReady
from worker.settings import Settings, SettingsError


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that it is taken back whatever the code under test puts there.
    for name in ("MEDEVAC_CONFIG", "MEDEVAC_DATABASE_URL", "TEMPORAL_ADDRESS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def written(path: Path) -> dict[str, str]:
    home = path / "demo"
    found = {"config": str(home / "medevac.yaml"), "data_dir": str(home), "temporal": "127.0.0.1:7999"}
    (path / "running.json").write_text(json.dumps(found))
    return found


def test_without_a_configuration_the_running_stack_is_meant(tmp_path: Path) -> None:
    found = written(tmp_path)
    settings = settings_here(Settings(data_dir=tmp_path))
    assert settings.config == Path(found["config"])
    assert settings.database == f"sqlite:///{found['data_dir']}/ledger.sqlite"
    assert os.environ["TEMPORAL_ADDRESS"] == "127.0.0.1:7999"


def test_an_installation_of_its_own_is_never_confused_with_a_demo(tmp_path: Path) -> None:
    written(tmp_path)
    own = Settings(data_dir=tmp_path, config=tmp_path / "ours.yaml")
    assert settings_here(own) == own
    assert "TEMPORAL_ADDRESS" not in os.environ


def test_nothing_runs_here(tmp_path: Path) -> None:
    assert running(tmp_path) == {}
    (tmp_path / "running.json").write_text("[]")
    assert settings_here(Settings(data_dir=tmp_path)) == Settings(data_dir=tmp_path)


async def test_a_demo_does_not_start_beside_an_up(tmp_path: Path) -> None:
    """Both would write down how to reach them in the same place, and the first to end would hide the other."""
    here = Home(tmp_path).lock()
    with pytest.raises(NotReady, match="is in use"):
        await run_demo(Settings(data_dir=tmp_path), None)
    os.close(here)


async def test_an_up_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    here = Home(tmp_path).lock()
    with pytest.raises(NotReady, match="is in use"):
        await run_up(Settings(data_dir=tmp_path), None)
    os.close(here)
    assert os.listdir(tmp_path) == ["lock"]


async def test_a_seed_that_is_no_number_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_SEED", "seven")
    with pytest.raises(SettingsError, match="DEMO_SEED: seven is no whole number"):
        await run_demo(Settings(data_dir=tmp_path), None)
