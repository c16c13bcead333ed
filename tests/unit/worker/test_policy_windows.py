"""`medevac policy check` says when windows are next, in their own zone."""

from __future__ import annotations

from pathlib import Path

import pytest

from medevac.policy.loading import preset
from worker.cli.app import run


def test_the_next_times_are_told_in_the_windows_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.yaml"
    window = "windows: {night: {cron: '0 22 * * *', lasts: 8h, zone: Asia/Tokyo, holds: [destructive]}}"
    file.write_text(preset("default").replace("windows: {}", window))
    assert run(["policy", "check", str(file)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("window night")]
    assert line.count(" 22:00 to ") == 2
    assert "Asia/Tokyo" in line


def test_a_window_without_a_zone_is_refused_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(preset("default").replace("windows: {}", "windows: {night: {cron: '0 22 * * *', lasts: 8h}}"))
    assert run(["policy", "check", str(file)]) == 2
    assert "zone" in capsys.readouterr().err
