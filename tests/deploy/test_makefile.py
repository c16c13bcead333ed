"""`make` does what the documents say, and says what to do where it can't."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.compose import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE))


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # Without the variables of a `make test` around us.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "AGAIN"))}
    environment["PATH"] = path or environment["PATH"]
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_bare_make_lists_every_target() -> None:
    listed = make(ROOT)
    assert listed.returncode == 0
    assert {f"make {target}" for target in TARGETS} <= set(re.findall(r"make [a-z]+", listed.stdout))


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md", "docs/decisions/0003-dependencies.md"])
def test_documented_targets_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", text, re.MULTILINE)) <= {
        pair for target in TARGETS for pair in ((target, ""), ("", target))
    }


def test_an_old_python_is_refused_with_what_to_do(checkout: Path) -> None:
    old = checkout / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n', encoding="utf-8")
    old.chmod(0o755)
    done = make(checkout, "setup", f"PYTHON={old}")
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert "make setup PYTHON=" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_finished_setup_is_left_alone(checkout: Path) -> None:
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(shutil.which("python3") or "")
    (venv / ".ready").touch()
    done = make(checkout, "setup")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    # A changed lock file is noticed. The network is not asked: the interpreter is a stub that notes its arguments.
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    (venv / "bin" / "python").chmod(0o755)
    newer = (venv / ".ready").stat().st_mtime + 5
    os.utime(checkout / "requirements.lock", (newer, newer))
    done = make(checkout, "setup")
    assert done.returncode == 0, done.stderr
    assert re.search(r"pip install .*--require-hashes -r requirements\.lock", done.stdout)


def test_ci_runs_the_same_tests_and_names_no_host() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert re.findall(r"^make .*", script, re.MULTILINE) == ["make setup", "make test", "make test-kubernetes"]
    assert "MEDEVAC_TEST_NO_SKIP=1" in script
    for name in (".ci/run", "Makefile", "Dockerfile", "requirements.lock", "deploy/requirements.lock"):
        assert not re.search(
            r"https?://(?!127\.)|--(extra-)?index-url|--find-links", (ROOT / name).read_text(encoding="utf-8")
        )
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)


STUB = """#!/bin/sh
[ "$2" = pytest ] || exit 0
echo "$@" >>asked
case "$*" in *--last-failed*) exit "$AGAINST" ;; esac
exit "$FIRST"
"""


@pytest.mark.parametrize(
    ("first", "again", "settings", "asked", "passes"),
    [
        (0, 0, ["AGAIN=1"], 1, True),
        (1, 0, ["AGAIN=1"], 2, True),
        (1, 1, ["AGAIN=1"], 2, False),
        (2, 0, ["AGAIN=1"], 1, False),  # interrupted, or not collected: nothing was answered
        (1, 0, [], 1, False),
    ],
)
def test_a_failed_test_is_asked_once_more_where_that_is_wanted(
    checkout: Path, first: int, again: int, settings: list[str], asked: int, passes: bool
) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(STUB.replace("$AGAINST", str(again)).replace("$FIRST", str(first)), encoding="utf-8")
    python.chmod(0o755)
    (checkout / ".venv" / ".ready").touch()
    done = make(checkout, "test-kubernetes", "KUBECONFIG=of-a-test", *settings)
    assert (done.returncode == 0) is passes, done.stderr
    assert len((checkout / "asked").read_text(encoding="utf-8").splitlines()) == asked
    assert ("UNSTEADY" in done.stdout) is (asked == 2)
