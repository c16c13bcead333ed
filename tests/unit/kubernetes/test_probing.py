"""A command that tells of a checkpoint: what it says counts only when it is surely complete."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.kubernetes.probing import probe
from medevac.fleet.node import Workload

WORK = Workload(name="team/JobSet/llm; touch x", kind="JobSet")
PRINTS = "import sys; print(sys.argv[1])"


def told(code: str, *arguments: str, timeout_s: float = 20.0) -> datetime | None:
    return probe({"last": (sys.executable, "-c", code, *arguments)}, "last", WORK, timeout_s)


def test_one_past_time_and_a_good_end_are_a_checkpoint() -> None:
    assert told(PRINTS, "2026-05-04T10:00:00Z") == datetime(2026, 5, 4, 10, tzinfo=UTC)


@pytest.mark.parametrize("said", ["", "soon", "2026-05-04T10:00:00", "2999-01-01T00:00:00Z", "2026-05-04T10:00:00Z x"])
def test_anything_else_is_none(said: str) -> None:
    assert told(PRINTS, said) is None


def test_a_bad_end_is_none_whatever_was_printed() -> None:
    assert told(f"{PRINTS}; sys.exit(1)", "2026-05-04T10:00:00Z") is None


def test_a_name_stays_one_argument_and_nothing_is_run_by_it(tmp_path: Path) -> None:
    code = f"import sys, pathlib; pathlib.Path({str(tmp_path / 'seen')!r}).write_text('|'.join(sys.argv[1:]))"
    told(code, "{namespace}", "{kind}", "{name}", "x{name}")
    assert (tmp_path / "seen").read_text() == "team|JobSet|llm; touch x|x{name}"


def test_secrets_of_the_worker_are_not_its_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDEVAC_DATABASE", "postgresql://u:p@db/medevac")
    seen = tmp_path / "seen"
    told(f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text(','.join(os.environ))")
    assert seen.exists()
    assert "MEDEVAC_DATABASE" not in seen.read_text()


def test_one_that_hangs_ends_with_all_that_it_has_started() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    began = time.monotonic()
    assert told(code, timeout_s=0.5) is None
    assert time.monotonic() - began < 30


def test_what_is_not_configured_or_not_there_is_none() -> None:
    assert probe({}, "last", WORK, 1) is None
    assert probe({"last": ("/no/such/program",)}, "last", WORK, 1) is None
