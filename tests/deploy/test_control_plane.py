"""The control plane's build: whole or not at all, patient with downloads, and clear about what it needs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.control_plane import build, processes

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


STARTS = """
import pathlib, sys, time
from tests.control_plane.processes import ControlPlane
plane = ControlPlane(pathlib.Path(sys.argv[1]))
plane._run("etcd", ["sleep", "600"])
print(plane._running["etcd"].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(processes.PRCTL is None, reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_its_processes_end_with_the_tests_however_these_end(tmp_path: Path, sign: signal.Signals) -> None:
    argv = [sys.executable, "-c", STARTS, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        assert _runs(pid)
        tests.send_signal(sign)
        tests.wait(60)
    deadline = time.monotonic() + 60
    while _runs(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("it still runs, and nobody is left to stop it")
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Also not where nobody has asked for its status yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
