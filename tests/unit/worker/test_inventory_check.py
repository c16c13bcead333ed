"""`medevac inventory check`: what a ladder needs and nobody knows, until the inventory says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulation.layout import IRONWORKS, TEST, Layout
from worker.cli.app import run
from worker.home import Home
from worker.installation import find_config
from worker.parts import build_registry
from worker.settings import Settings, load_settings
from worker.setup import prepare_ledger
from worker.stores import open_stores


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    home = Home(tmp_path)
    home.make(Layout(nodes=16, spares=0, durations=TEST))
    monkeypatch.setenv("MEDEVAC_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("MEDEVAC_CONFIG", str(home.config))
    settings = load_settings()
    registry = build_registry(find_config(settings), tmp_path)
    prepare_ledger(open_stores(settings.database), registry, home.demo_policy())
    return settings


def check(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    status = run(["inventory", "check", "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_bare_metal_lacks_its_contract_until_the_inventory_says_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lacks = check(capsys)
    config = find_config(settings)
    registry = build_registry(config, settings.data_dir)
    nodes = [node for cluster in registry.clusters() for node in cluster.nodes()]
    bare = sorted(node.name for node in nodes if node.machine.provider == IRONWORKS and node.pool)
    assert status == 1
    assert sorted(one["node"] for one in lacks) == bare
    assert all("no support contract" in " ".join(one["lacks"]) for one in lacks)

    rows = "".join(f"{name},{name}-sn,gold\n" for name in bare if "serial" in " ".join(lacks[0]["lacks"]))
    rows = rows or "".join(f"{name},,gold\n" for name in bare)
    (settings.data_dir / "hall.csv").write_text(f"node,serial,support\n{rows}")
    assert settings.config is not None
    with settings.config.open("a") as file:
        file.write(f"\ninventory: [{settings.data_dir / 'hall.csv'}]\n")
    assert check(capsys) == (0, [])


def test_a_wrong_inventory_stops_every_process_with_its_line(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings.data_dir / "hall.csv"
    file.write_text("node,rack\nn1,a\nn1,b\n")
    assert settings.config is not None
    with settings.config.open("a") as config:
        config.write(f"\ninventory: [{file}]\n")
    assert run(["inventory", "check"]) == 2
    said = capsys.readouterr().err
    assert f"{file}:3: `rack` contradicts {file}:2" in said
    assert len(said.splitlines()) == 1
