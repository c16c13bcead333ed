"""The control plane's build: whole or not at all, patient with downloads, and clear about what it needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.control_plane import build

GO = """#!/bin/sh
case "$1" in
version) echo "go version go1.26.9 linux/amd64" ;;
list)
    echo x >>{folder}/fetched
    [ "$(wc -l <{folder}/fetched)" -gt {failures} ] || {{ echo "proxy: 503" >&2; exit 1; }} ;;
build) while [ "$1" != -o ]; do shift; done; printf '#!/bin/sh\\necho "{says}"\\n' >"$2"; chmod +x "$2" ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a Go of ours, an empty cache, and nothing built."""
    for tool in ("chrt", "ionice", "nice", "sh", "wc", "chmod"):
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(build, "FETCH_RETRIES_S", (0.0, 0.0))
    return tmp_path


def install_go(machine: Path, *, failures: int = 0, says: str | None = None) -> None:
    names = ("go.etcd.io/etcd/server/v3", "k8s.io/kubernetes", "sigs.k8s.io/kwok")
    said = says or ", ".join(f"{name} v{build._pinned(name)}" for name in names)
    (machine / "go").write_text(GO.format(folder=machine, failures=failures, says=said))
    (machine / "go").chmod(0o755)


def test_it_is_built_once_and_downloads_are_tried_again(machine: Path) -> None:
    install_go(machine, failures=2)
    programs = build.build()
    assert set(programs) == set(build.PROGRAMS)
    (machine / "go").unlink()
    assert build.build() == programs, "nothing is built again"


def test_a_download_that_keeps_failing_is_told(machine: Path) -> None:
    install_go(machine, failures=9)
    with pytest.raises(build.NotBuilt, match="503"):
        build.build()


def test_a_program_that_does_not_run_right_is_never_used(machine: Path) -> None:
    install_go(machine, says="something else")
    with pytest.raises(build.NotBuilt, match="does not say"):
        build.build()
    with pytest.raises(build.NotBuilt, match="make control-plane"):
        build.find()
    install_go(machine)
    assert build.build(), "what was left of it is in nobody's way"


def test_too_little_space_or_no_go_is_said_with_what_to_do(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(build.NotBuilt, match=r"Go 1\.26 or newer.*KUBEBUILDER_ASSETS"):
        build.build()
    install_go(machine)
    monkeypatch.setattr(build, "NEEDED_GIB", 1e9)
    with pytest.raises(build.NotBuilt, match="make room, or set XDG_CACHE_HOME"):
        build.build()
