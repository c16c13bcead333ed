"""Where the tests take Kubernetes' programs from. Nothing is built here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control_plane import build
from tests.control_plane.build import PROGRAMS, NotBuilt


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names or PROGRAMS:
        (folder / name).touch(mode=0o755)
    return folder


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has none."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")


def test_assets_come_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path, assets = programs(tmp_path / "path"), programs(tmp_path / "assets")
    monkeypatch.setenv("PATH", str(on_path))
    assert build.build() == {name: on_path / name for name in PROGRAMS}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert build.build() == {name: assets / name for name in PROGRAMS}


def test_two_halves_make_no_control_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with KUBEBUILDER_ASSETS of envtest, which has an API server and etcd only."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs(tmp_path / "assets", "etcd", "kube-apiserver")))
    monkeypatch.setenv("PATH", str(programs(tmp_path / "path", *PROGRAMS[2:])))
    with pytest.raises(NotBuilt, match="make control-plane"):
        build.find()


def test_without_go_it_says_what_is_needed() -> None:
    with pytest.raises(NotBuilt, match=r"Go 1\.26"):
        build.build()


def test_what_goes_in_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build._built()
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_bytes((build.HERE / name).read_bytes())
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build._built() == before
    (tmp_path / "main.go").write_text("// changed")
    assert build._built() != before
